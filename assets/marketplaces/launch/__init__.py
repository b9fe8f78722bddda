"""Launch facts in configs, pages and command lines."""
