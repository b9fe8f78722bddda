"""The meta-server: one MCP server through which a model finds, reads and calls other tools."""
