"""Reliability: how often each version of a tool works, from calls that really ran."""
