"""Ranking of tools for one request."""
