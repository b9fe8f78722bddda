"""Fits the router's weights on many query sets and proves them by leaving whole sets out."""
