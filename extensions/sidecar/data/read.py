"""The sidecar's data out of the warehouse."""

from collections.abc import Sequence
from typing import Any

import polars as pl

from assets.contracts.quarantined_tools import read_clear
from assets.contracts.rename_history import ContractHistory
from assets.synthesis.tables import PAIRS, read_origin
from extensions.sidecar.data.build import Known, build_rows, choose_rows, make_row
from extensions.sidecar.data.calls import PlacedCall, place_calls
from extensions.sidecar.data.drafted import collect_drafts
from extensions.sidecar.flaws.kinds import HELD_OUT, WEIGHTS
from extensions.sidecar.rows import RevisionRow
from training.evaluation.predictors.endpoint import EndpointPredictor
from training.evaluation.predictors.interface import Predictor
from training.last_run import set_name, set_rows
from training.releases.index_source import collect_moves
from training.sets.pool import load_pool
from training.sets.split import TRAIN
from warehouse.llm.roles import Role
from warehouse.storage.digest import sha256
from warehouse.store import Warehouse

_DRAFTED = 0.25  # of the calls are drafted by another model too, where there is one


def read_revision_rows(
    warehouse: Warehouse,
    splits: Sequence[str],
    most: int,
    *,
    candidates: int,
    seed: int = 0,
    drafter: Predictor | None = None,
) -> list[RevisionRow]:
    """At most `most` rows of each split of the current training set. The train split has no kind of
    HELD_OUT. Raises BadOffer for a set without its pool, CannotPredict."""
    known = read_known(warehouse)
    entries = load_pool(warehouse.home, set_name(warehouse))
    found: list[RevisionRow] = []
    for split in splits:
        rows = sorted(set_rows(warehouse, split, tasks=None), key=_draw_place)[: most // 2 + 1]
        calls = place_calls(rows, entries, candidates=candidates, seed=seed)
        kinds = [kind for kind in WEIGHTS if split != TRAIN or kind not in HELD_OUT]
        here = Known(known.moves, known.worlds, kinds)
        made = build_rows(calls, here, seed)
        if drafter is not None:
            private = _list_private_pairs(warehouse)
            free = [call for call in calls if call.row["pair_id"] not in private]
            made += _collect_drafted_rows(free[: round(_DRAFTED * most)], here, drafter)
        found += choose_rows(made, most)
    return found


def read_known(warehouse: Warehouse) -> Known:
    """What the warehouse knows beside the calls: moves of contracts, tasks of worlds."""
    servers = {row["server_id"] for row in read_clear(warehouse)}
    pairs = warehouse.tables.read(PAIRS).drop_nulls("world_task").to_dicts()
    origins = {str(row["pair_id"]): read_origin(row) for row in pairs}
    worlds = {name: one.id for name, one in origins.items() if one is not None}
    return Known(collect_moves(warehouse.tables, servers), worlds)


def open_drafter(warehouse: Warehouse, role: Role | None) -> Predictor | None:
    """The model whose drafts are learned from, where there is one. Raises CannotPredict."""
    if role is None:
        return None
    return EndpointPredictor(role, warehouse.ledger, stage="draft:sidecar")


def _list_private_pairs(warehouse: Warehouse) -> set[str]:
    """Pairs of private tools: nobody else's model is asked about those."""
    pairs = warehouse.tables.read(PAIRS).filter(pl.col("marketplace") == "private")
    return set(pairs["pair_id"])


def _collect_drafted_rows(
    calls: Sequence[PlacedCall], known: Known, drafter: Predictor
) -> list[RevisionRow]:
    history = ContractHistory(tuple(known.moves))
    return [make_row(draft, known, history) for draft in collect_drafts(calls, drafter)]


def _draw_place(row: Any) -> str:
    return sha256(str(row["pair_id"]).encode())
