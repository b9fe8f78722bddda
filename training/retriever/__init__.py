"""The role retriever: LoRA of the embedder."""
