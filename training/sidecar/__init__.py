"""The sidecar: a small causal model that revises a draft call which the ladder cannot repair."""
