"""Encoders: how a text becomes a vector, and where an encoder comes from."""
