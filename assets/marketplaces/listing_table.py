"""The table of listings: one row per server that a marketplace lists."""

from assets.columns import read_table_spec

LISTINGS = read_table_spec(__file__, "listings")
