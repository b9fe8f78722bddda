"""Outcomes: calls that really ran, in worlds that can be checked, and whose fault a failure was."""
