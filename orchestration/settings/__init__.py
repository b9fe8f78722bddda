"""Settings from `toolmill.toml` and the environment."""
