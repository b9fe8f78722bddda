"""Maintenance of a home: checks, garbage collection, take-downs, backup. May import the core
alone."""
