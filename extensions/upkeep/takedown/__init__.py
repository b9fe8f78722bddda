"""Upkeep of a home beyond its runs: what is taken away, and why it may be."""
