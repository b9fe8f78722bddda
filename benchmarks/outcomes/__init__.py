"""Benchmarks of what is learnt from the outcomes of calls."""
