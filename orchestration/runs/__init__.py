"""Runs without a daemon: processes, recovery, progress, summary."""
