"""Router, meta-server and call repair. Imports neither dagster nor torch nor training."""
