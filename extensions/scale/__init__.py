"""Several machines: ledger in Postgres, launches on Ray, folders in a bucket. May import the core
alone."""
