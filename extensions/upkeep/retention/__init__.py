"""Retention: what a home keeps of its past, and taking away what nothing refers to."""
