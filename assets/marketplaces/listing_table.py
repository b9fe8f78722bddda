"""The table of listings."""

import polars as pl

from assets.columns import LISTING_ID, MARKETPLACE
from warehouse.storage.tables import TableSpec

LISTINGS = TableSpec(
    name="listings",
    key=("listing_id",),
    columns={
        "listing_id": LISTING_ID,
        "marketplace": MARKETPLACE,
        "native_id": (pl.String, "the marketplace's own id of it"),
        "name": (pl.String, "as the marketplace shows it"),
        "description": (pl.String, "as the marketplace shows it"),
        "repository": (pl.String, "URL of its source; null: none is stated"),
        "subfolder": (pl.String, "of the repository, where it holds several servers"),
        "transport": (pl.String, "stdio, streamable-http, sse; null: not stated"),
        "command": (pl.String, "the program that a person would type; null: none is stated"),
        "args": (pl.String, "JSON list of the words after it"),
        "launch": (pl.String, "JSON {own_args, entry, directory}: what command and args say"),
        "env": (pl.String, "JSON list of {name, required, secret, default, description}"),
        "headers": (pl.String, "the same of HTTP headers, of a remote server"),
        "package": (pl.String, "JSON {type, identifier, version, digest}; null: none"),
        "flags": (pl.String, "JSON list of what is odd about it, as hidden_text"),
        "url": (pl.String, "of a remote server"),
        "evidence": (pl.String, "where in the page or record the launch facts stood"),
        "runnable": (pl.Boolean, "whether it says enough to launch the server"),
        "reason": (pl.String, "why it is not runnable; null: it is"),
        "updated_at": (pl.String, "when it was last edited, as the marketplace says"),
        "listing_digest": (
            pl.String,
            "over what it says, but for updated_at, launch and tools",
        ),
        "tools_blob": (pl.String, "sha256 of the tools it shows (a JSON list); null: none"),
        "fetched_at": (pl.Float64, "seconds since the epoch"),
    },
    volatile=("fetched_at",),
)
