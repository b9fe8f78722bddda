"""One adapter per marketplace."""
