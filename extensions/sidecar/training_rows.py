"""The sidecar's data out of the warehouse."""

from dataclasses import replace
from typing import Any

from assets.contracts.quarantined_tools import read_clear
from assets.synthesis.tables import PAIRS, read_origin
from extensions.sidecar.flaws import HELD_OUT, WEIGHTS
from extensions.sidecar.prompt import RevisionRow
from extensions.sidecar.revision_data import KnownContracts, build_rows, choose_rows, place_calls
from training.adapter_table import set_name, set_rows
from training.releases.index_source import collect_moves
from training.sets.pool import load_pool
from training.sets.split import TRAIN
from warehouse.storage.digest import sha256
from warehouse.store import Warehouse


def read_revision_rows(
    warehouse: Warehouse, split: str, most: int, *, candidates: int
) -> list[RevisionRow]:
    """At most `most` rows of one split of the current training set. The train split has no kind of
    HELD_OUT. Raises BadOffer for a set without its pool."""
    known = read_known(warehouse)
    entries = load_pool(warehouse.home, set_name(warehouse))
    rows = sorted(set_rows(warehouse, split, tasks=None), key=_draw_place)[: most // 2 + 1]
    calls = place_calls(rows, entries, candidates=candidates)
    kinds = [kind for kind in WEIGHTS if split != TRAIN or kind not in HELD_OUT]
    return choose_rows(build_rows(calls, replace(known, kinds=kinds)), most)


def read_known(warehouse: Warehouse) -> KnownContracts:
    servers = {row["server_id"] for row in read_clear(warehouse)}
    pairs = warehouse.tables.read(PAIRS).drop_nulls("world_task").to_dicts()
    origins = {str(row["pair_id"]): read_origin(row) for row in pairs}
    worlds = {name: origin.id for name, origin in origins.items() if origin is not None}
    return KnownContracts(collect_moves(warehouse.tables, servers), worlds)


def _draw_place(row: Any) -> str:
    return sha256(str(row["pair_id"]).encode())
