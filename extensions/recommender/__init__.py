"""Role of the reranker, learnt from calls that ran, and reports of outcomes. May import the core
alone."""
