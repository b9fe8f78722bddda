"""Measurements as ratios against a named peer or a limit in the same run."""
