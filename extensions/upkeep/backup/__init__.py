"""Backup: a home and its state as they were at one moment, kept in another folder."""
