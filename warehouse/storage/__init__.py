"""Digests, blobs, immutable tables, LanceDB."""
