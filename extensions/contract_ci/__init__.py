"""Check of a server's pull request: broken calls, poisoned text, look-alikes. May import the core
alone."""
