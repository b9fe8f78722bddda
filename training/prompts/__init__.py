"""Prompts of trained models and the forms of their answers."""
