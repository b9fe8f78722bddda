"""Calls: one tool of an indexed server, run in the sandbox or asked over HTTP."""
