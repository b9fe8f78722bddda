"""Writes pairs with models or the offline provider. May import rules, judge and vectors."""
