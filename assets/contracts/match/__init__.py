"""Whether two calls are the same."""
