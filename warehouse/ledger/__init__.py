"""Effects on the world outside: recorded before they are sent, paid once, bounded by a budget."""
