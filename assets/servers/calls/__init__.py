"""Calls: a tool of a server that the index knows, run in the sandbox or asked elsewhere."""
