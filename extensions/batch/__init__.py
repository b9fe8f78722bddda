"""Model requests by a provider's batch API at half price. May import the core alone."""
