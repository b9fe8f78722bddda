"""Proxy between a client and a model: repairs tool calls, serves the local caller.

May import the core, and no other extension.
"""
