"""Conversations with an MCP server over any transport, and what their end amounts to."""
