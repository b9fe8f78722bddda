"""Environments of public standards, made of a release's tasks: OpenEnv servers, verifiers tasksets.

May import the core, and no other extension. `package/` is copied into each export and runs without
Toolmill: it imports its own modules and the frameworks alone.
"""
