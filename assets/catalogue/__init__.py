"""Servers across marketplaces: which listings are one server."""
