"""Deployments: one launch of each server under its user's grants, and the table of them."""
