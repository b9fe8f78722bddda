"""The router's index: one immutable folder per version."""
