"""The table of listings."""

import polars as pl

from warehouse.storage.tables import TableSpec

LISTINGS = TableSpec(
    name="listings",
    key=("listing_id",),
    columns={
        "listing_id": pl.String,
        "marketplace": pl.String,
        "native_id": pl.String,
        "name": pl.String,
        "description": pl.String,
        "repository": pl.String,
        "subfolder": pl.String,
        "transport": pl.String,
        "command": pl.String,
        "args": (pl.String, "this and the six below: canonical JSON"),
        "launch": (pl.String, "{own_args, entry, directory}: what command and args say"),
        "env": pl.String,
        "headers": pl.String,
        "package": pl.String,
        "flags": pl.String,
        "url": pl.String,
        "evidence": pl.String,
        "runnable": pl.Boolean,
        "reason": pl.String,
        "updated_at": pl.String,
        "listing_digest": (pl.String, "over all of the above but updated_at and own_args"),
        "tools_blob": (pl.String, "sha256 of the tools it shows (a JSON list); null: none"),
        "fetched_at": (pl.Float64, "seconds since the epoch"),
    },
    volatile=("fetched_at",),
)
