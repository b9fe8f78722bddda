"""The served reranker learns from the log of calls while it serves, off the path of every query."""
