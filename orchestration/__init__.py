"""Wiring: settings, resources, definitions, automation and the `toolmill` command."""
