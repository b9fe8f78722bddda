"""The table of listed contracts: tools that a marketplace shows and no launch has confirmed.

Nothing is made of them. `assets/contracts/listed/read.py` gives those that a search may show, with
their mark; no other module reads this table (a test holds them to it).
"""

import polars as pl

from assets.columns import LISTING_ID, MARKETPLACE
from warehouse.storage.tables import TableSpec

UNVERIFIED = "unverified"  # nobody launched its server; also the mark that a search shows
HELD = "held"  # a scan or a person keeps it out; its text is not in the row
DIFFERS = "differs"  # its server was launched and lists the tool otherwise
ABSENT = "absent"  # its server was launched and does not list it
STANDINGS = (UNVERIFIED, HELD, DIFFERS, ABSENT)

LISTED = TableSpec(
    name="listed_contracts",
    key=("listing_id", "tool"),
    columns={
        "listing_id": LISTING_ID,
        "marketplace": MARKETPLACE,
        "server_id": (pl.String, 'of a launch of it; "listing:<id>" where nothing names a server'),
        "tool": (pl.String, "its name, as it is shown"),
        "contract_digest": (pl.String, '"c1:<sha256>" of what is shown'),
        "contract": (pl.String, "canonical JSON; null: held"),
        "shown": (pl.String, "JSON list of its fields that are shown; any other is made up"),
        "standing": (pl.String, f"one of {', '.join(STANDINGS)}"),
        "rules": (pl.String, "JSON list of the rules of the scan that hold it"),
        "scan_key": (pl.String, "of everything that those depend on"),
        "launched_digest": (pl.String, "of the contract that a launch gave; null: none"),
        "listed_differs": (pl.String, "JSON {cls, fields, why}: listed -> launched"),
        "first_seen": (pl.String, "UTC date on which this contract was first shown"),
    },
)
