"""Fits the tool retriever that ships with the package, and proves it on sets it never saw."""
