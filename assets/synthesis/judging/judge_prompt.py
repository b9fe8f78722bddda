"""What the judge is shown of a row: its words for the prompt, and the facts they come from."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from assets.synthesis.common.tables import SINGLE, Golden, dump_text, read_goldens
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
    own, calls = row["contract_digest"], read_goldens(row)
    needed = {call.contract_digest for call in calls} - {own}
    offered = [one for one in json.loads(row.get("offered") or "[]") if one in contracts]
    known = {one: _get_contract(one, contracts) for one in (own, *sorted(needed), *offered)}
    texts = {name: row.get(name) for name in ("instruction", "messages", "calls")}
    texts |= {"contract_digest": own, "task": row.get("task") or SINGLE}
    meta = {"row": {**texts, "offered": dump_text(list(known))}, "contracts": known}
    return View(_make_words(meta["row"], calls, needed, known), meta)


def _get_contract(found: str, contracts: Mapping[str, Contract]) -> JsonObject:
    if found not in contracts:
        hint = "the snapshot that wrote the pair is gone or held; compose the tool again"
        raise NoContract(f"{found} is not among the clear contracts; {hint}")
    return contracts[found]


def _make_words(
    row: Row, calls: Sequence[Golden], needed: set[str], known: Mapping[str, Contract]
) -> dict[str, str]:
    own = known[row["contract_digest"]]
    beside = [one for one in known if one != row["contract_digest"]][: len(needed) + _OTHERS]
    others = [
        _dump(known[one])[:_CONTRACT_CAP] if one in needed else _shorten(known[one])
        for one in beside
    ]
    talk = [_dump(message) for message in json.loads(row["messages"] or "[]")]
    parts = {
        "contract": _dump(own)[:_CONTRACT_CAP],
        "others": "\n".join(others) or "(none)",
        "instruction": str(row["instruction"]),
        "calls": _dump([{"tool": call.tool, "arguments": call.arguments} for call in calls]),
        "conversation": "\n".join(talk)[:_TALK_CAP] or "(the request and the calls above)",
    }
    return {**parts, "task": str(row["task"]), "marker": make_marker(*parts.values())}


def _shorten(contract: Contract) -> str:
    description = str(contract.get("description") or "")[:_OTHER_CAP]
    return _dump({"name": contract.get("name"), "description": description})


def _dump(value: Json) -> str:
    return json.dumps(value, ensure_ascii=False)
