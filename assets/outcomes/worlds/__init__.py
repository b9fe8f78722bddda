"""Worlds: seeded, resettable environments for stateful servers, with tasks whose end is checked."""
