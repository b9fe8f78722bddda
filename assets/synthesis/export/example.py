"""One accepted pair as a neutral example: a conversation, the tools on offer, and where it is from.

Of a conversation a model must not learn every assistant turn: a call that was wrong on purpose (to
be repaired after its error) has `weight` 0.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assets.synthesis.common.tables import Golden, read_goldens
from warehouse.json_types import Contract, Json, Row

# What of a row goes with every example, beside its split and its judgement.
ABOUT = (
    *("pair_id", "task", "kind", "marketplace", "server_id", "tool", "contract_digest", "license"),
    *("provider", "model", "simulated", "migrated_from"),
)


class Unshowable(ValueError):
    """Why a row cannot be an example, in words that are counted."""


@dataclass(frozen=True)
class Example:
    """messages: as OpenAI's, with `arguments` as objects and `weight` 0 where nothing is to be
    learnt. tools: OpenAI functions, own included, in an order of the row's own. refused: answers to
    the same words that were refused, for a format of preferences."""

    messages: list[dict[str, Json]]
    tools: list[dict[str, Json]]
    about: dict[str, Json] = field(default_factory=dict)
    refused: list[dict[str, Json]] = field(default_factory=list)


def make_example(row: Row, contracts: Mapping[str, Contract], extra: Row) -> Example:
    """The example of one row; `contracts` (by digest) holds those it calls and those on offer.

    Raises Unshowable.
    """
    calls = read_goldens(row)
    about = {name: row.get(name) for name in ABOUT} | dict(extra)
    return Example(make_messages(row, calls), _list_tools(row, calls, contracts), about)


def make_function(contract: Contract) -> dict[str, Json]:
    """A contract as the tool definition that chat templates and APIs read."""
    body = {
        "name": contract["name"],
        "description": contract.get("description", ""),
        "parameters": contract["inputSchema"],
    }
    return {"type": "function", "function": body}


def _list_tools(
    row: Row, calls: Sequence[Golden], contracts: Mapping[str, Contract]
) -> list[dict[str, Json]]:
    """The tools called come first; one on offer that shares a name with them is left out, as no
    host could tell them apart."""
    needed = [call.contract_digest for call in calls] or [row["contract_digest"]]
    wanted = list(dict.fromkeys([*needed, *json.loads(row.get("offered") or "[]")]))
    taken: dict[str, str] = {}
    for digest in wanted:
        if digest not in contracts:
            raise Unshowable("a contract on offer is not at hand")
        name = contracts[digest]["name"]
        if taken.setdefault(name, digest) != digest and digest in needed:
            raise Unshowable("it calls two tools of one name")
    shown = [make_function(contracts[digest]) for digest in taken.values()]
    seed = hashlib.sha256(row["pair_id"].encode()).digest()
    random.Random(int.from_bytes(seed[:8])).shuffle(shown)
    return shown


def make_messages(row: Row, calls: Sequence[Golden]) -> list[dict[str, Json]]:
    """The conversation of a row with these right calls, as in Example. Raises Unshowable."""
    messages = json.loads(row.get("messages") or "[]")
    if not messages:
        messages = [{"role": "user", "content": row["instruction"]}]
        if calls:
            made = [_make_call(f"call_{n}", one.tool, one.arguments) for n, one in enumerate(calls)]
            messages.append({"role": "assistant", "content": None, "tool_calls": made})
    right = [(call.tool, call.arguments) for call in calls]
    out = [_make_message(message, right) for message in messages]
    if out[-1]["role"] != "assistant":
        raise Unshowable("the conversation does not end with the assistant")
    return out


def _make_message(message: Row, right: list[tuple[str, Json]]) -> dict[str, Json]:
    made: dict[str, Json] = {"role": message["role"], "content": message.get("content")}
    if message.get("tool_call_id"):
        made["tool_call_id"] = message["tool_call_id"]
    if not message.get("tool_calls"):
        return made
    made["tool_calls"] = [
        _make_call(
            one.get("id", f"call_{n}"), one["function"]["name"], _read_arguments(one["function"])
        )
        for n, one in enumerate(message["tool_calls"])
    ]
    parts = [one["function"] for one in made["tool_calls"]]
    if any((part["name"], part["arguments"]) not in right for part in parts):
        made["weight"] = 0
    return made


def _read_arguments(part: Row) -> Json:
    held = part["arguments"]
    return json.loads(held) if isinstance(held, str) else held


def _make_call(name: str, tool: str, arguments: Json) -> dict[str, Json]:
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}
