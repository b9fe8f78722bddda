"""The tiny base model that ships, and how it is built."""
