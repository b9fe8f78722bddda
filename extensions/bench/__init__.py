"""Evaluators beyond the pipeline's own: agents, outside benchmarks, robustness, ablations.

May import the core, and no other extension.
"""
