"""The table of listings: one row per server that a marketplace lists."""

import polars as pl

from assets.columns import LISTING_ID, MARKETPLACE
from warehouse.storage.tables import TableSpec

LISTINGS = TableSpec(
    name="listings",
    key=("listing_id",),
    columns={
        "listing_id": LISTING_ID,
        "marketplace": MARKETPLACE,
        "native_id": (pl.String, "Id of the server in the marketplace"),
        "name": (pl.String, "Name that the marketplace shows"),
        "description": (pl.String, "Description that the marketplace shows"),
        "repository": (pl.String, "URL of the source; null where none is stated"),
        "subfolder": (pl.String, "Folder of the repository that holds the server"),
        "transport": (pl.String, "stdio, streamable-http or sse; null where none is stated"),
        "command": (pl.String, "Program that a person would type; null where none is stated"),
        "args": (pl.String, "Arguments of the command, as a JSON list"),
        "launch": (pl.String, "What the command line says: JSON {own_args, entry, directory}"),
        "env": (pl.String, "Variables: JSON list of {name, required, secret, default}"),
        "headers": (pl.String, "HTTP headers of a remote server, as env"),
        "package": (pl.String, "JSON {type, identifier, version, digest}; null where none"),
        "flags": (pl.String, "Oddities of the listing, as a JSON list, e.g. hidden_text"),
        "url": (pl.String, "Address of a remote server"),
        "evidence": (pl.String, "Where in the page or record the launch facts stood"),
        "runnable": (pl.Boolean, "Whether the listing says enough to launch the server"),
        "reason": (pl.String, "Why the server is not runnable; null where it is"),
        "updated_at": (pl.String, "Last edit, by the marketplace"),
        "listing_digest": (pl.String, "Digest of the listing without updated_at, launch and tools"),
        "tools_blob": (pl.String, "SHA-256 of the listed tools (a JSON list); null where none"),
        "fetched_at": (pl.Float64, "Time of the fetch, in seconds since the epoch"),
    },
    volatile=("fetched_at",),
)
