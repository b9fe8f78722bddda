"""Exports: accepted pairs in the shapes that trainers read, as of any day."""
