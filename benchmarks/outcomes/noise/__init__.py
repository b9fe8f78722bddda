"""The noise bench: real tools and damaged copies, called over MCP, as a table to learn from."""
