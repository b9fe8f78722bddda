"""What the files of a sentence-transformers model say of it: its modules, its head, its prompts."""
