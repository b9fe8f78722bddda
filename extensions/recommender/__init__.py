"""Role of the reranker, learnt from calls that ran, and the reports of their outcomes.

May import the core, and no other extension.
"""
