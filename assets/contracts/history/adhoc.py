"""`toolmill contract diff`: two saved `tools/list` results in, what changed out."""

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.contracts.canonical import MOST_TOOLS, index_contracts
from assets.contracts.history.tool_diff import compare_tools
from assets.contracts.schema.shapes import equals_json
from warehouse.errors import UnusableInput
from warehouse.user_files import parse_json, read_text

_LIMITS = "more output, pages or tools than the limits allow"  # as a server that runs is told
_CAP = 64 * 1024 * 1024
_FIX = 'give a saved tools/list result: {"tools": [...]}, the bare list or one tool'


@dataclass(frozen=True)
class Difference:
    """The answer, whether it is alarming, and a line for each tool that could not be compared."""

    answer: dict[str, Any]
    alarming: bool
    left_out: list[str]


def diff_files(old: Path, new: Path) -> Difference:
    """{"changes": [{tool, class, fields, renamed_from, why}], "same": n} of two files.

    A tool without a usable contract counts as absent and is named in `left_out`. Raises
    UnusableInput.
    """
    before, after = read_tools(old), read_tools(new)
    changes = [
        {
            "tool": change.tool,
            "class": change.cls,
            "fields": list(change.fields),
            "renamed_from": change.renamed_from,
            "why": change.why,
        }
        for change in compare_tools(before, after)
    ]
    (was, flaws), (now, later) = index_contracts(before), index_contracts(after)
    same = sum(equals_json(body, now[name]) for name, body in was.items() if name in now)
    left_out = [
        f"{path}, entry {place}: left out: {problem}"[:300]
        for path, problems in ((old, flaws), (new, later))
        for place, problem in problems.items()
    ]
    alarming = any(change["class"] in ("breaking", "suspicious") for change in changes)
    return Difference({"changes": changes, "same": same}, alarming, left_out)


def read_tools(path: Path) -> list[dict[str, Any]]:
    """The tools of a saved `tools/list` result, of a whole JSON-RPC answer, of a bare list, or the
    one tool that a file holds; at most as many as are taken of a server that runs. Raises
    UnusableInput."""
    try:
        value = parse_json(read_text(path, _CAP), path)
    except UnusableInput as error:
        raise UnusableInput(f"{error}; {_FIX}") from error
    if isinstance(value, dict) and isinstance(value.get("result"), dict):
        value = value["result"]
    if isinstance(value, dict) and "inputSchema" in value:
        return [value]
    tools = value.get("tools") if isinstance(value, dict) else value
    if not isinstance(tools, list):
        raise _build_unreadable(path, "no list of tools in it")
    if len(tools) > MOST_TOOLS:
        raise UnusableInput(f"{path}: more than {MOST_TOOLS} tools: {_LIMITS}")
    odd = next((i for i, tool in enumerate(tools) if not isinstance(tool, dict)), None)
    if odd is not None:
        raise _build_unreadable(path, f"entry {odd} is {type(tools[odd]).__name__}, not an object")
    return tools


def _build_unreadable(path: Path, found: str) -> UnusableInput:
    return UnusableInput(" ".join(f"{path}: {found}; {_FIX}".split()))
