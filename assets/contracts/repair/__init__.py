"""Repairs of one call to fit its contract."""
