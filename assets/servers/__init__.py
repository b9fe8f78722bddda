"""Servers: pinned, launched in a sandbox or asked over HTTP, and called."""
