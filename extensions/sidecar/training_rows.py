"""The sidecar's data out of the warehouse."""

from collections.abc import Collection, Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from assets.contracts.canonical import contract_digest
from assets.contracts.quarantined_tools import read_clear
from assets.contracts.rename_history import ContractHistory
from assets.contracts.validate import validate_call
from assets.synthesis.export.examples import PreferencePair
from assets.synthesis.tables import PAIRS, REVISION, read_origin
from extensions.sidecar.flaws import HELD_OUT, WEIGHTS
from extensions.sidecar.prompt import UNTOUCHED, RevisionRow, make_revision_request
from extensions.sidecar.revision_data import (
    KnownContracts,
    PlacedCall,
    build_rows,
    choose_rows,
    collect_drafts,
    make_row,
    place_calls,
)
from serving.repair.tools import make_revision_messages
from training.adapter_table import set_name, set_rows
from training.evaluation.endpoint_predictor import EndpointPredictor
from training.evaluation.predictor import Predictor
from training.prompts.render import build_call_message, render_tool_schema
from training.releases.index_source import collect_moves
from training.sets.pool import load_pool
from training.sets.split import TEST, TRAIN, UNSEEN_SERVER
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
    results: list[RevisionRow] = []
    for split in splits:
        rows = sorted(set_rows(warehouse, split, tasks=None), key=_draw_place)[: most // 2 + 1]
        calls = place_calls(rows, entries, candidates=candidates, seed=seed)
        kinds = [kind for kind in WEIGHTS if split != TRAIN or kind not in HELD_OUT]
        here = KnownContracts(known.moves, known.worlds, kinds)
        made = build_rows(calls, here, seed)
        if drafter is not None:
            private = _list_private_pairs(warehouse)
            free = [call for call in calls if call.row["pair_id"] not in private]
            made += _collect_drafted_rows(free[: round(_DRAFTED * most)], here, drafter)
        results += choose_rows(made, most)
    return results


def read_known(warehouse: Warehouse) -> KnownContracts:
    """What the warehouse knows beside the calls: moves of contracts, tasks of worlds."""
    servers = {row["server_id"] for row in read_clear(warehouse)}
    pairs = warehouse.tables.read(PAIRS).drop_nulls("world_task").to_dicts()
    origins = {str(row["pair_id"]): read_origin(row) for row in pairs}
    worlds = {name: one.id for name, one in origins.items() if one is not None}
    return KnownContracts(collect_moves(warehouse.tables, servers), worlds)


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
    calls: Sequence[PlacedCall], known: KnownContracts, drafter: Predictor
) -> list[RevisionRow]:
    history = ContractHistory(tuple(known.moves))
    return [make_row(draft, known, history) for draft in collect_drafts(calls, drafter)]


def _draw_place(row: Any) -> str:
    return sha256(str(row["pair_id"]).encode())


_SIDES = {TRAIN: TRAIN, UNSEEN_SERVER: TEST}  # other splits are of servers that are trained on


def list_revisions(
    warehouse: Warehouse, clear: Collection[str], most: int, candidates: int
) -> list[PreferencePair]:
    """The preference pairs of the current training set's drafts, at most so many rows a split.
    Raises BadOffer."""
    rows = read_revision_rows(warehouse, tuple(_SIDES), most, candidates=candidates)
    return make_preferences(rows, clear)


def make_preferences(rows: Iterable[RevisionRow], clear: Collection[str]) -> list[PreferencePair]:
    """One of each row whose draft is to be changed, asked as a sidecar is. Left out: untouched
    drafts, drafts that are no object, right calls that do not fit, rows of neither side, and rows
    that show a contract whose digest is not `clear`."""
    found = (
        _make_preference(row)
        for row in rows
        if all(contract_digest(contract) in clear for contract in row.contracts)
    )
    return [item for item in found if item is not None]


def _make_preference(row: RevisionRow) -> PreferencePair | None:
    right = row.right[0] if row.right else None
    draft = {"name": row.draft_name, "arguments": row.draft_arguments}
    drawn = row.kind != UNTOUCHED and row.split in _SIDES
    if not drawn or not isinstance(row.draft_arguments, Mapping) or right == draft:
        return None
    contracts = {str(contract["name"]): contract for contract in row.contracts}
    contract = contracts.get(str(right["name"] if right else row.draft_name))
    if right and (contract is None or validate_call(contract, right["arguments"])):
        return None
    request = make_revision_request(row)
    return PreferencePair(
        make_revision_messages(request),
        build_call_message(row.right, row.question),
        build_call_message([draft]),
        [render_tool_schema(dict(contract)) for contract in row.contracts],
        REVISION,
        _describe_row(row, contract),
    )


def _describe_row(row: RevisionRow, contract: Mapping[str, Any] | None) -> dict[str, Any]:
    return {
        "pair_id": row.row_id,
        "task": REVISION,
        "kind": row.kind,
        "marketplace": None,
        "server_id": row.server_id,
        "tool": contract["name"] if contract else row.draft_name,
        "contract_digest": contract_digest(contract) if contract else None,
        "license": None,
        "provider": "offline",
        "model": None,
        "simulated": False,
        "migrated_from": None,
        "split": _SIDES[row.split],
        "judge": "offline:rules",
        "score": None,
    }
