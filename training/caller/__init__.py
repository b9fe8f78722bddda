"""The role caller: a causal model that writes the call."""
