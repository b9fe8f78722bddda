"""Reorders what the router found by how likely each tool is to succeed; NumPy only."""
