"""Replay: worlds that were recorded answer the same calls, offline, and score who makes them."""
