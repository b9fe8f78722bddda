"""A month of nightly runs over the full-scale replicas, with what goes wrong in a month."""
