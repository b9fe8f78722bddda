"""Where independent pieces of work run: threads of this process, or workers of a Ray cluster."""
