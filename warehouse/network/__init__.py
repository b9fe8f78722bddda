"""Egress guard: which hosts and addresses may be reached."""
