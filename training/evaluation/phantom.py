"""Does a caller call tools that are no longer there (*phantom calls*)? Asked with tools listed now,
of which a request's own is `gone`, or was `renamed` by its server."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.tool_id import ToolId
from assets.vectors.index import digest_text
from training.evaluation.caller_table import GONE, RENAMED
from training.prompts.render import read_calls, read_messages
from training.sets.split import SetPolicy, choose_tool_place
from warehouse.json_types import Row


@dataclass(frozen=True)
class DeadRequest:
    """A once accepted request, as a training-set row of today: without calls where its tool is
    gone, with the new name where it was renamed. `dead`: the name it had."""

    row: Row
    phantom: str
    dead: str


def find_dead_requests(
    once: Iterable[Row],
    changes: Iterable[Row],
    listed_tools: Iterable[tuple[str, str]],
    pool: Mapping[str, Mapping[str, Any]],
) -> list[DeadRequest]:
    """Rows of earlier training sets (`once`) whose tool is not `listed` now. `changes`: rows of
    CHANGES; `listed`: (server_id, tool) of all current contracts; `pool`: tools to offer. A renamed
    tool that cannot be offered or take the old arguments is left out."""
    now = set(listed_tools)
    renames: dict[tuple[str, str], str] = {}
    for change in sorted(changes, key=lambda change: str(change["run_date"])):
        if change.get("renamed_from") and change["to_digest"]:
            renames[(change["server_id"], change["renamed_from"])] = change["tool"]
    offered: dict[str, list[str]] = {}
    digests: dict[tuple[str, str], str] = {}
    for name, entry in sorted(pool.items()):
        offered.setdefault(str(entry["server_id"]), []).append(name)
        digests[(str(entry["server_id"]), str(entry["tool"]))] = name
    dead: dict[str, DeadRequest] = {}
    for row in once:
        key = (str(row["server_id"]), str(row["tool"]))
        if key in now or row["pair_id"] in dead or len(read_calls(row)) != 1:
            continue
        if read_messages(row):  # its request is not yet what is to be called
            continue
        place = choose_tool_place(*key, SetPolicy())
        successor = _find_successor(key, renames, now)
        if successor is None:
            # No call is right; what its server lists now is offered first
            dead_row = {
                **_copy_request_columns(row, place),
                "calls": "[]",
                "arguments": None,
                "offered": list(offered.get(key[0], [])),
            }
            dead[row["pair_id"]] = DeadRequest(dead_row, GONE, key[1])
        elif (key[0], successor) in digests:
            name = digests[(key[0], successor)]
            dead_row = _make_renamed_row(row, successor, name, pool[name]["contract"], place)
            if dead_row is not None:
                dead[row["pair_id"]] = DeadRequest(dead_row, RENAMED, key[1])
    return list(dead.values())


def _find_successor(
    key: tuple[str, str], renames: Mapping[tuple[str, str], str], now: set[tuple[str, str]]
) -> str | None:
    """The name a tool has now, through any number of renames; None where it is gone."""
    server, name = key
    visited: set[str] = set()
    while (server, name) in renames and name not in visited:
        visited.add(name)
        name = renames[(server, name)]
        if (server, name) in now:
            return name
    return None


def _make_renamed_row(
    row: Row, tool: str, name: str, contract: Mapping[str, Any], split: str
) -> dict[str, Any] | None:
    from assets.contracts.validate import validate_call

    arguments = read_calls(row)[0]["arguments"]
    if validate_call(contract, arguments):
        return None
    call = {"name": tool, "contract_digest": name, "arguments": arguments}
    return {
        **_copy_request_columns(row, split),
        "tool": tool,
        "contract_digest": name,
        "calls": json.dumps([call], ensure_ascii=False),
        "arguments": json.dumps(arguments, ensure_ascii=False),
    }


def _copy_request_columns(row: Row, split: str) -> dict[str, Any]:
    columns = ("pair_id", "server_id", "tool", "instruction", "kind", "contract_digest")
    text = row.get("text_digest") or digest_text(str(ToolId.of_row(row)))
    return {
        **{name: row.get(name) for name in columns},
        "split": split,
        "task": "single",
        "text_digest": text,
        "negatives": "[]",
        "offered": "[]",
    }
