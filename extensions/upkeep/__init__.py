"""Maintenance of a home: health checks, garbage collection, take-downs, backup.

May import the core, and no other extension.
"""
