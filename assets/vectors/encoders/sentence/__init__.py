"""Sentence-transformers models: opened as they say of themselves, with an adapter where one is."""
