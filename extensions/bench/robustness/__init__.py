"""Perturbed contracts and requests."""
