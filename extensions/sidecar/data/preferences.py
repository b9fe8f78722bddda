"""Rows of the sidecar's data as preference pairs: what a draft should have been, over it."""

from collections.abc import Collection, Iterable, Mapping
from typing import Any

from assets.contracts.canonical import contract_digest
from assets.contracts.validate import validate_call
from assets.synthesis.export.examples import PreferencePair
from assets.synthesis.tables import REVISION
from extensions.sidecar.data.read import read_revision_rows
from extensions.sidecar.prompt import make_revision_request
from extensions.sidecar.rows import UNTOUCHED, RevisionRow
from serving.repair.revision import make_revision_messages
from training.prompts.render import build_call_message, render_tool_schema
from training.sets.split import TEST, TRAIN, UNSEEN_SERVER
from warehouse.store import Warehouse

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
    return [one for one in found if one is not None]


def _make_preference(row: RevisionRow) -> PreferencePair | None:
    right = row.right[0] if row.right else None
    draft = {"name": row.draft_name, "arguments": row.draft_arguments}
    drawn = row.kind != UNTOUCHED and row.split in _SIDES
    if not drawn or not isinstance(row.draft_arguments, Mapping) or right == draft:
        return None
    contracts = {str(one["name"]): one for one in row.contracts}
    contract = contracts.get(str(right["name"] if right else row.draft_name))
    if right and (contract is None or validate_call(contract, right["arguments"])):
        return None
    request = make_revision_request(row)
    return PreferencePair(
        make_revision_messages(request),
        build_call_message(row.right, row.question),
        build_call_message([draft]),
        [render_tool_schema(dict(one)) for one in row.contracts],
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
