"""The sandbox: what contains a third-party process tree, and its only way to a network."""
