"""What attaches to the core by entry points; the core imports none of it."""
