"""Demo: replica marketplaces on loopback, of real packages, local bundles or invented servers."""
