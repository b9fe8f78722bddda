"""The `toolmill` commands."""
