"""Review of samples, model and dataset cards, exported weights, push to a hub. May import the core
alone."""
