"""Drift signals and the decision to retrain."""
