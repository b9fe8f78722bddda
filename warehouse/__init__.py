"""Digests, blobs, versioned tables, audits, publication and paid effects; nothing of marketplaces
or tools."""
