"""More than one machine: the ledger in Postgres, launches on Ray, folders published to a bucket.

May import the core, and no other extension.
"""
