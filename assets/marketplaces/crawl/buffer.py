"""Rows: the listings of a crawl as columns, gathered in chunks."""

import time

import polars as pl

from assets.marketplaces.listing import Listing, make_row
from assets.marketplaces.listing_table import LISTINGS
from warehouse.storage.blobs import Blobs

_CHUNK = 500  # listings are Python objects until then: about 10 KB each, as columns 1-2 KB


class Rows:
    """Listings as they come, in the order in which their records were named; the tools they show
    go to `blobs`."""

    def __init__(self, blobs: Blobs | None = None) -> None:
        self._blobs = blobs
        self._chunks: list[pl.DataFrame] = []
        self._open: list[dict[str, object]] = []
        self._count = 0
        self._schema = {**dict(LISTINGS.columns), "_number": pl.Int64}

    def __len__(self) -> int:
        return self._count

    def add(self, number: int, listing: Listing) -> None:
        """Keeps the listing of the record that was named as the `number`-th."""
        kept = listing.tools and self._blobs
        blob = kept.put(str(listing.tools).encode()) if kept else None
        row = make_row(listing, fetched_at=time.time(), tools_blob=blob)
        self._open.append({**row, "_number": number})
        self._count += 1
        if len(self._open) >= _CHUNK:
            self._close_chunk()

    def make_frame(self) -> tuple[pl.DataFrame, set[str]]:
        """All rows sorted by key, the first of equal ids kept; and the ids that came twice."""
        self._close_chunk()
        empty = pl.DataFrame(schema=self._schema)
        rows = pl.concat([empty, *self._chunks]).sort("listing_id", "_number")
        twice = rows.filter(pl.col("listing_id").is_duplicated())["native_id"].unique().to_list()
        kept = rows.unique("listing_id", keep="first", maintain_order=True)
        return kept.select(list(LISTINGS.columns)), set(twice)

    def _close_chunk(self) -> None:
        if self._open:
            self._chunks.append(pl.DataFrame(self._open, schema=self._schema, strict=False))
            self._open = []
