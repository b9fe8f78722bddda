"""Answers every role without a model, from grammar, schema and rules."""
