"""What the replica marketplaces list."""
