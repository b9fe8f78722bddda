"""Embeddings of tools and servers, their encoders, and look-alike tools."""
