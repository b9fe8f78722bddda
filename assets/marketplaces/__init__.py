"""Crawls of marketplaces: listings in one normal form."""
