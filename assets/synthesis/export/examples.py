"""Accepted pairs as neutral examples.

An example is a conversation with the tools on offer. A model must not learn every assistant turn: a
call that was wrong on purpose (to be repaired after its error) has `weight` 0.
"""

import hashlib
import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from assets.synthesis.tables import GoldenCall, read_goldens
from warehouse.json_types import Contract, Json, Row

# What of a row goes with every example, beside its split and its judgement.
ABOUT = (
    *("pair_id", "task", "kind", "marketplace", "server_id", "tool", "contract_digest", "license"),
    *("provider", "model", "simulated"),
)


class UnusableExample(ValueError):
    """Why a row cannot be an example, in words that are counted."""


@dataclass(frozen=True)
class TrainingExample:
    """messages: as OpenAI's, with `arguments` as objects and `weight` 0 where nothing is to be
    learnt. tools: OpenAI functions, own included, in an order of the row's own."""

    messages: list[dict[str, Json]]
    tools: list[dict[str, Json]]
    about: dict[str, Json] = field(default_factory=dict)


def make_example(row: Row, contracts: Mapping[str, Contract], extra: Row) -> TrainingExample:
    """The example of one row; `contracts` (by digest) holds those it calls and those on offer.

    Raises Unshowable.
    """
    calls = read_goldens(row)
    about = {name: row.get(name) for name in ABOUT} | dict(extra)
    return TrainingExample(make_messages(row, calls), _list_tools(row, calls, contracts), about)


def make_function(contract: Contract) -> dict[str, Json]:
    """A contract as the tool definition that chat templates and APIs read."""
    body = {
        "name": contract["name"],
        "description": contract.get("description", ""),
        "parameters": contract["inputSchema"],
    }
    return {"type": "function", "function": body}


def _list_tools(
    row: Row, calls: Sequence[GoldenCall], contracts: Mapping[str, Contract]
) -> list[dict[str, Json]]:
    """The tools called come first; one on offer that shares a name with them is left out, as no
    host could tell them apart."""
    needed = [call.contract_digest for call in calls] or [row["contract_digest"]]
    digests = list(dict.fromkeys([*needed, *json.loads(row.get("offered") or "[]")]))
    by_name: dict[str, str] = {}
    for digest in digests:
        if digest not in contracts:
            raise UnusableExample("a contract on offer is not at hand")
        name = contracts[digest]["name"]
        if by_name.setdefault(name, digest) != digest and digest in needed:
            raise UnusableExample("it calls two tools of one name")
    functions = [make_function(contracts[digest]) for digest in by_name.values()]
    seed = hashlib.sha256(row["pair_id"].encode()).digest()
    random.Random(int.from_bytes(seed[:8])).shuffle(functions)
    return functions


def make_messages(row: Row, calls: Sequence[GoldenCall]) -> list[dict[str, Json]]:
    """The conversation of a row with these right calls, as in Example. Raises Unshowable."""
    messages = json.loads(row.get("messages") or "[]")
    if not messages:
        messages = [{"role": "user", "content": row["instruction"]}]
        if calls:
            tool_calls = [
                _make_call(f"call_{n}", one.tool, one.arguments) for n, one in enumerate(calls)
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": tool_calls})
    right = [(call.tool, call.arguments) for call in calls]
    out = [_make_message(message, right) for message in messages]
    if out[-1]["role"] != "assistant":
        raise UnusableExample("the conversation does not end with the assistant")
    return out


def _make_message(message: Row, right: list[tuple[str, Json]]) -> dict[str, Json]:
    copy: dict[str, Json] = {"role": message["role"], "content": message.get("content")}
    if message.get("tool_call_id"):
        copy["tool_call_id"] = message["tool_call_id"]
    if not message.get("tool_calls"):
        return copy
    copy["tool_calls"] = [
        _make_call(
            tool_call.get("id", f"call_{n}"),
            tool_call["function"]["name"],
            _read_arguments(tool_call["function"]),
        )
        for n, tool_call in enumerate(message["tool_calls"])
    ]
    functions = [tool_call["function"] for tool_call in copy["tool_calls"]]
    if any((part["name"], part["arguments"]) not in right for part in functions):
        copy["weight"] = 0
    return copy


def _read_arguments(part: Row) -> Json:
    arguments = part["arguments"]
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _make_call(name: str, tool: str, arguments: Json) -> dict[str, Json]:
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}
