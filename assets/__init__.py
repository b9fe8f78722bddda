"""The pipeline, one package per stage (README.md). May import warehouse."""
