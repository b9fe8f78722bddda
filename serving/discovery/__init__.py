"""The iterative search of a model for tools (MCP-Zero)."""
