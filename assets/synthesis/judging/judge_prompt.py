"""What the judge is shown of a row: its words for the prompt, and the facts they come from."""

import json
from collections.abc import Mapping
from dataclasses import dataclass

from assets.synthesis.common.tables import SINGLE, read_goldens
from assets.synthesis.prompts import make_marker
from warehouse.json_types import Contract, Json, JsonObject, Row

_CONTRACT_CAP = 24_000  # characters of the own contract; the longest real one has 61,000
_OTHERS, _OTHER_CAP = 12, 400  # tools beside it, and characters of each one's description
_TALK_CAP = 16_000


class NoContract(ValueError):
    """A contract that the row stands on is not among those at hand."""


@dataclass(frozen=True)
class View:
    """`words` fill the prompt; `meta` is what the offline judge reads (`role_schemas.py`)."""

    words: dict[str, str]
    meta: dict[str, Json]


def make_view(row: Row, contracts: Mapping[str, Contract]) -> View:
    """The view of a row of PAIRS. Raises NoContract; ValueError where a column is no JSON."""
    own = _get_contract(row["contract_digest"], contracts)
    calls = read_goldens(row)
    named = {call.contract_digest for call in calls} - {row["contract_digest"]}
    needed = {one: _get_contract(one, contracts) for one in sorted(named)}
    offered = [one for one in json.loads(row.get("offered") or "[]") if one in contracts]
    beside = {**needed, **{one: contracts[one] for one in offered}}
    beside.pop(row["contract_digest"], None)
    messages = json.loads(row.get("messages") or "[]")
    meta = {
        "contract": own,
        "contracts": [own, *beside.values()],
        "task": row.get("task") or SINGLE,
        "instruction": row["instruction"],
        "messages": messages,
        "calls": [
            {"tool": c.tool, "arguments": c.arguments, "borrowed": list(c.borrowed)} for c in calls
        ],
        "server": row.get("server_id") or "",
    }
    return View(_make_words(meta, set(needed), beside), meta)


def _get_contract(found: str, contracts: Mapping[str, Contract]) -> JsonObject:
    if found not in contracts:
        hint = "the snapshot that wrote the pair is gone or held; compose the tool again"
        raise NoContract(f"{found} is not among the clear contracts; {hint}")
    return contracts[found]


def _make_words(
    meta: JsonObject, needed: set[str], beside: Mapping[str, JsonObject]
) -> dict[str, str]:
    others = [
        _dump(one)[:_CONTRACT_CAP] if name in needed else _shorten(one)
        for name, one in list(beside.items())[: len(needed) + _OTHERS]
    ]
    calls = [{k: call[k] for k in ("tool", "arguments")} for call in meta["calls"]]
    talk = [_dump(message) for message in meta["messages"]]
    parts = {
        "contract": _dump(meta["contract"])[:_CONTRACT_CAP],
        "others": "\n".join(others) or "(none)",
        "instruction": str(meta["instruction"]),
        "calls": _dump(calls),
        "conversation": "\n".join(talk)[:_TALK_CAP] or "(the request and the calls above)",
    }
    return {**parts, "task": str(meta["task"]), "marker": make_marker(*parts.values())}


def _shorten(contract: Contract) -> str:
    said = str(contract.get("description") or "")[:_OTHER_CAP]
    return _dump({"name": contract.get("name"), "description": said})


def _dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
