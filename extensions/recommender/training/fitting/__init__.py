"""The parts of a fit: what it starts from, kinds of requests and tools, the posterior, changes."""
