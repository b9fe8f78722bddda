"""Kinds of worlds: what each is seeded with, and how its state is read."""
