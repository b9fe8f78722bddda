"""The conversation of a row, carried over with its calls."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from assets.contracts.schema.diff import compare
from assets.contracts.validate import validate_call
from assets.synthesis.common.tables import Golden, goldens, text_of
from assets.synthesis.writing.migration.calls import Unmovable, carried
from assets.synthesis.writing.migration.contract_map import Book

Json = Any
Row = Mapping[str, Any]


def carried_messages(row: Row, book: Book, calls: Sequence[Golden]) -> str | None:
    """The messages with every call as it is made now. `calls` are the new ones of `row`, in order.

    A call that was wrong on purpose stays as wrong, and the error a validator gave it becomes the
    one it gives now.
    """
    if not row["messages"]:
        return row["messages"]
    pairs = list(zip(goldens(row), calls, strict=True))
    answered: dict[str, list[tuple[str, str]]] = {}
    out: list[Json] = []
    for message in json.loads(row["messages"]):
        made = dict(message)
        if message.get("tool_calls"):
            made["tool_calls"] = [
                _call(call, pairs, row, book, answered) for call in message["tool_calls"]
            ]
        swaps = answered.get(str(message.get("tool_call_id")), [])
        if message.get("role") == "tool" and isinstance(message.get("content"), str):
            for was, is_now in swaps:
                made["content"] = made["content"].replace(was, is_now)
        out.append(made)
    return text_of(out)


def results_change(old: Mapping[str, Json], new: Mapping[str, Json]) -> bool:
    """Whether a reader of a tool's results has to read them otherwise."""
    before, after = old.get("outputSchema"), new.get("outputSchema")
    if before == after or before is None:
        return False
    if after is None:
        return True
    return any(one.cls == "breaking" for one in compare(before, after, "o", results=True))


def _call(
    call: Mapping[str, Json],
    pairs: Sequence[tuple[Golden, Golden]],
    row: Row,
    book: Book,
    answered: dict[str, list[tuple[str, str]]],
) -> Json:
    function = call["function"]
    name, written = function["name"], function["arguments"]
    arguments = json.loads(written) if isinstance(written, str) else written
    right = [new for old, new in pairs if old.tool == name and old.arguments == arguments]
    if len({(new.tool, text_of(new.arguments)) for new in right}) > 1:
        raise Unmovable(f"two servers have a tool {name}: whose call is meant is not plain")
    if right and (right[0].tool, right[0].arguments) == (name, arguments):
        return call
    if right:
        return _as(call, right[0].tool, right[0].arguments)
    then, here = _whose(name, pairs, row, book)
    if then["contract_digest"] == here["contract_digest"]:
        return call
    old, new = book.contract(then), book.contract(here)
    made = carried(old, new, arguments)
    answered[str(call.get("id"))] = _errors(old, arguments, new, made)
    return _as(call, here["tool"], made)


def _whose(
    name: str, pairs: Sequence[tuple[Golden, Golden]], row: Row, book: Book
) -> tuple[Row, Row]:
    """The contracts, then and now, of a call that is none of the right ones."""
    owners = {
        (old.server_id, old.tool, old.contract_digest) for old, _ in pairs if old.tool == name
    }
    owners = owners or {(row["server_id"], row["tool"], row["contract_digest"])}
    if len(owners) > 1 or next(iter(owners))[1] != name:
        raise Unmovable(f"whose tool {name} is, which it calls, is not plain")
    server, tool, digest = owners.pop()
    then, here = book.before(digest), book.follow(server, tool)
    if then is None or here is None:
        raise Unmovable(f"{tool}, which it calls, is gone or held")
    return then, here


def _errors(
    old: Mapping[str, Json], was: Json, new: Mapping[str, Json], made: Json
) -> list[tuple[str, str]]:
    """(text of then, text of now) of each flaw, where both calls are wrong in the same ways."""
    before, after = validate_call(old, was), validate_call(new, made)
    if [flaw.kind for flaw in before] != [flaw.kind for flaw in after]:
        raise Unmovable("a call that was wrong on purpose is wrong in another way now")
    swaps = [(a.message, b.message) for a, b in zip(before, after, strict=True)]
    swaps += [(a.path, b.path) for a, b in zip(before, after, strict=True) if len(a.path) > 2]
    return [(was, now) for was, now in swaps if was and was != now]


def _as(call: Mapping[str, Json], tool: str, arguments: Json) -> Json:
    function = {**call["function"], "name": tool}
    textual = isinstance(call["function"]["arguments"], str)
    function["arguments"] = json.dumps(arguments, ensure_ascii=False) if textual else arguments
    return {**call, "function": function}
