"""The contracts that are clear: published once per marketplace, read by everything downstream.

What is held stands beside it by name alone, so that a contract that one marketplace holds is held
in what joins all of them. A hold by a person counts from the moment of the decision; a release
takes effect with the next publication.
"""

from collections.abc import Iterable

import polars as pl

from assets.columns import CONTRACT_DIGEST, MARKETPLACE, SERVER_ID, TOOL
from assets.contracts.canonical import DIGEST_PREFIX
from assets.contracts.quarantine.decisions import Decided, read_decisions
from assets.contracts.quarantine.firewall import key_contract
from warehouse.json_types import JsonObject, Record
from warehouse.storage.digest import sha256
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

_NAMES = {
    "marketplace": MARKETPLACE,
    "server_id": SERVER_ID,
    "tool": TOOL,
    "contract_digest": CONTRACT_DIGEST,
    "recipe_digest": (pl.String, "of the launch that listed it"),
    "first_seen": (pl.String, "UTC date on which this contract was first listed"),
}
CLEAR = TableSpec(
    name="clear_contracts",
    key=("server_id", "tool"),
    columns={
        **_NAMES,
        "contract": (pl.String, "canonical JSON"),
        "schema_problem": (pl.String, "why the input schema is no JSON Schema; null: it is one"),
    },
)
HELD = TableSpec(name="held_contracts", key=("server_id", "tool"), columns=_NAMES)


def select_columns(spec: TableSpec, snapshots: Iterable[JsonObject]) -> list[Record]:
    """Rows of CLEAR or HELD, of snapshot rows."""
    return [{name: row[name] for name in spec.columns} for row in snapshots]


def read_contracts(
    warehouse: Warehouse, marketplace: str | None = None
) -> tuple[list[Record], list[Record]]:
    """(clear, held): rows of CLEAR and of HELD, of one marketplace or of all.

    Of all marketplaces, what any of them holds is held. Raises DecisionError when the record of
    decisions cannot be trusted.
    """
    tables = warehouse.tables
    by_person = Decided(read_decisions(warehouse.home)).find_held_digests()
    held = tables.read(HELD, marketplace).to_dicts()
    elsewhere = set() if marketplace else set(map(key_contract, held))
    clear = []
    for row in tables.read(CLEAR, marketplace).to_dicts():
        if row["contract_digest"] in by_person or key_contract(row) in elsewhere:
            held.append({name: row[name] for name in HELD.columns})
        else:
            clear.append(row)
    return clear, held


def read_clear(warehouse: Warehouse, marketplace: str | None = None) -> list[Record]:
    """The contracts that may enter prompts, embeddings, training rows and the served index."""
    return read_contracts(warehouse, marketplace)[0]


def find_unresolvable(rows: Iterable[JsonObject]) -> list[str]:
    """Digests that are not those of the contract beside them."""
    return [
        row["contract_digest"]
        for row in rows
        if row["contract_digest"] != DIGEST_PREFIX + sha256(row["contract"].encode())
    ]
