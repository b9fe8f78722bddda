"""The repair ladder for one draft call."""
