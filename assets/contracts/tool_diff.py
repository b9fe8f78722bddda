"""What changed between two lists of tools, and how much it matters to a caller."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.contracts.canonical import MOST_TOOLS, TWICE, index_contracts
from assets.contracts.scan.engine import read_name
from assets.contracts.scan.rug_pull import find_alarms
from assets.contracts.scan.rule_table import LOW
from assets.contracts.schema_diff import SchemaChange, compare, compare_annotations, format_step
from assets.contracts.schema_shapes import (
    StepLimit,
    TooMuchWork,
    equals_json,
    limit_steps,
    spend_steps,
)
from assets.contracts.tool_renames import find_renames
from assets.contracts.validate import find_schema_problem
from assets.contracts.vendor_rules import find_refusals
from warehouse.errors import UnusableInput
from warehouse.json_types import JsonObject
from warehouse.user_files import parse_json, read_text

Tool = Mapping[str, Any]
CLASSES = ("wording", "compatible", "breaking", "suspicious")  # mildest first
_MOST_FIELDS = 200
_LONGEST = 200  # characters of why a tool has no contract
_TOOL_STEPS = 60_000  # of one tool, some 1.2 s
_LIST_STEPS = 400_000  # of one pair of lists, some 8 s
_TEXT_STEP = 50  # characters that are scanned in the time of a step
NOT_WHOLE = "too large or too entangled: it was not compared whole"


@dataclass(frozen=True)
class ToolChange:
    """One tool that differs.

    cls: suspicious (text or hints turned alarming), breaking (a call that was right may fail, or a
    result may no longer be read), compatible (every right call stays right) or wording. fields:
    `name`, `added`, `removed`, `unusable` (still listed, without a usable contract), `description`,
    `inputSchema.properties.limit.maximum`, … sorted.
    why: one line about the fields that decide the class.
    """

    tool: str
    cls: str
    fields: tuple[str, ...]
    renamed_from: str | None = None
    why: str = ""


def compare_tools(old: Iterable[JsonObject], new: Iterable[JsonObject]) -> list[ToolChange]:
    """Every change from one `tools/list` to the next, sorted by tool name.

    Takes raw tools or contracts. A tool without a usable contract counts as absent, unless it had
    one; of two tools with one name the first counts.
    """
    old_tools, new_tools = list(old), list(new)
    before, (after, problems) = index_contracts(old_tools)[0], index_contracts(new_tools)
    refused = _find_new_refusals(old_tools, new_tools)
    unusable = {
        (name := read_name(new_tools[at])): why.removeprefix(f"tool {name[:80]!r}: ")[:_LONGEST]
        for at, why in problems.items()
        if why != TWICE
    }
    origins = find_renames(
        {n: body for n, body in before.items() if n not in after and n not in unusable},
        {name: body for name, body in after.items() if name not in before},
    )
    renamed = set(origins.values())
    changes, limit, names = [], StepLimit(_LIST_STEPS), frozenset(after)
    for name in sorted(before.keys() | after.keys()):
        if name not in after:
            if name in unusable:
                why = f"it has become unusable: {unusable[name]}"
                changes.append(ToolChange(name, "breaking", ("unusable",), why=why))
            elif name not in renamed:
                changes.append(ToolChange(name, "breaking", ("removed",), why="the tool is gone"))
            continue
        origin = origins.get(name, name)
        past, refusals = before.get(origin), refused(origin, name)
        if past is None or refusals or not equals_json(past, after[name]):
            changes.append(_compare_within(limit, past, after[name], names, refusals))
    return changes


def _find_new_refusals(
    old: Sequence[JsonObject], new: Sequence[JsonObject]
) -> Callable[[str, str], list[SchemaChange]]:
    """(name before, name now) -> what clients or vendors refuse of a tool since the change."""
    before, after = ({read_name(tool): tool for tool in reversed(tools)} for tools in (old, new))

    def find(origin: str, name: str) -> list[SchemaChange]:
        past, now = before.get(origin), after[name]
        if past == now:
            return []
        known = {(item.rule, item.path) for item in find_refusals(past)} if past else set()
        new_refusals = [item for item in find_refusals(now) if (item.rule, item.path) not in known]
        return [
            SchemaChange("".join([item.path[0], *map(format_step, item.path[1:])]), "breaking",
                         item.describe())
            for item in new_refusals
        ]  # fmt: skip

    return find


def _compare_within(
    limit: StepLimit,
    old: Tool | None,
    new: Tool,
    names: frozenset[str],
    refused: list[SchemaChange],
) -> ToolChange:
    """The change of one tool, out of the steps that its list may take."""
    try:
        with limit_steps(limit), limit_steps(_TOOL_STEPS):
            if old is not None:
                return _describe_changed(old, new, names, refused)
            added = [SchemaChange("added", "compatible", "a new tool"), *refused]
            return _build_change(new["name"], [*added, *_find_alarms(None, new, names)], None)
    except TooMuchWork:
        name = str(new["name"])
        if old is None:
            return ToolChange(name, "breaking", ("added",), None, f"added: {NOT_WHOLE}")
        fields = sorted(key for key in old.keys() | new.keys() if old.get(key) != new.get(key))
        origin = old["name"] if old["name"] != name else None
        return ToolChange(name, "breaking", tuple(fields), origin, f"{fields[0]}: {NOT_WHOLE}")


def _describe_changed(
    old: Tool, new: Tool, names: frozenset[str], refused: list[SchemaChange]
) -> ToolChange:
    changes = list(refused)
    renamed = old["name"] if old["name"] != new["name"] else None
    if renamed is not None:
        changes.append(SchemaChange("name", "breaking", "calls of the old name find no tool"))
    for field in ("title", "description"):
        if old.get(field) != new.get(field):
            changes.append(SchemaChange(field, "wording", f"the {field} was rewritten"))
    changes += compare_annotations(old.get("annotations") or {}, new.get("annotations") or {})
    inputs = compare(old["inputSchema"], new["inputSchema"], "inputSchema")
    problem = find_schema_problem(new["inputSchema"]) if inputs else None
    if problem and not find_schema_problem(old["inputSchema"]):
        inputs.append(SchemaChange("inputSchema", "breaking", f"no usable schema: {problem}"))
    changes += inputs
    changes += _compare_outputs(old.get("outputSchema"), new.get("outputSchema"))
    return _build_change(new["name"], [*changes, *_find_alarms(old, new, names)], renamed)


def _find_alarms(old: Tool | None, new: Tool, names: frozenset[str]) -> list[SchemaChange]:
    """What became suspicious, by the rules of the scan; a new address alone is not."""
    spend_steps(sum(len(str(tool)) for tool in (old, new)) // _TEXT_STEP)
    return [
        SchemaChange(_convert_pointer(alarm.field, new), "suspicious", alarm.why)
        for alarm in find_alarms(old, new, names)
        if alarm.severity != LOW and alarm.rule not in ("new_host", "broken_promise")
    ]


def _convert_pointer(pointer: str, tool: Any) -> str:
    """The JSON pointer of a finding in the notation of `Change.fields`."""
    path, node = "", tool
    for part in pointer.removesuffix("#").split("/")[1:]:
        name = part.replace("~1", "/").replace("~0", "~")
        if isinstance(node, list) and name.isdigit() and int(name) < len(node):
            path, node = f"{path}[{name}]", node[int(name)]
        else:
            path = f"{path}{format_step(name)}" if path else name
            node = node.get(name) if isinstance(node, Mapping) else None
    return path


def _compare_outputs(old: JsonObject | None, new: JsonObject | None) -> list[SchemaChange]:
    if old is not None and new is not None:
        return compare(old, new, "outputSchema", results=True)
    if new is not None:
        return [SchemaChange("outputSchema", "compatible", "results are described now")]
    if old is not None:
        return [SchemaChange("outputSchema", "breaking", "results are no longer described")]
    return []


def _build_change(tool: str, changes: list[SchemaChange], renamed: str | None) -> ToolChange:
    cls = max((change.cls for change in changes), key=CLASSES.index)
    deciding = [change for change in changes if change.cls == cls]
    why = f"{deciding[0].path}: {deciding[0].why}"
    if len(deciding) > 1:
        why += f" (and {len(deciding) - 1} more {cls})"
    paths = dict.fromkeys(change.path for change in (*deciding, *changes))
    return ToolChange(tool, cls, tuple(sorted(list(paths)[:_MOST_FIELDS])), renamed, why)


_LIMITS = "more output, pages or tools than the limits allow"  # as a server that runs is told
_CAP = 64 * 1024 * 1024
_FIX = 'give a saved tools/list result: {"tools": [...]}, the bare list or one tool'


@dataclass(frozen=True)
class ListDifference:
    """The answer, whether it is alarming, and a line for each tool that could not be compared."""

    answer: dict[str, Any]
    alarming: bool
    left_out: list[str]


def diff_files(old: Path, new: Path) -> ListDifference:
    """{"changes": [{tool, class, fields, renamed_from, why}], "same": n} of two files.

    A tool without a usable contract counts as absent and is named in `left_out`. Raises
    UnusableInput.
    """
    before, after = read_tools(old), read_tools(new)
    require_usable(before, old)
    changes = [
        {"tool": change.tool, "class": change.cls, "fields": list(change.fields),
         "renamed_from": change.renamed_from, "why": change.why}
        for change in compare_tools(before, after)
    ]  # fmt: skip
    (was, flaws), (now, later) = index_contracts(before), index_contracts(after)
    same = sum(equals_json(body, now[name]) for name, body in was.items() if name in now)
    left_out = [
        f"{path}, entry {place}: left out: {problem}"[:300]
        for path, problems in ((old, flaws), (new, later))
        for place, problem in problems.items()
    ]
    alarming = any(change["class"] in ("breaking", "suspicious") for change in changes)
    return ListDifference({"changes": changes, "same": same}, alarming, left_out)


def require_usable(tools: Sequence[JsonObject], source: Path) -> None:
    """Raises UnusableInput where a list has tools and none of them has a usable contract: any
    change of such a list would pass."""
    contracts, problems = index_contracts(tools)
    if problems and not contracts:
        raise UnusableInput(f"{source}: no tool in it has a usable contract: {problems[0]}"[:400])


def read_tools(path: Path) -> list[dict[str, Any]]:
    """The tools of a saved `tools/list` result, of a whole JSON-RPC answer, of a list of tools or
    of results, or the one tool that a file holds; at most as many as are taken of a server that
    runs. Raises UnusableInput."""
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
        raise UnusableInput(f"{path}: no list of tools in it; {_FIX}")
    pages = [page.get("tools") for page in tools if isinstance(page, dict)]
    if pages and all(isinstance(page, list) for page in pages):
        tools = [tool for page in pages for tool in page or ()]
    if len(tools) > MOST_TOOLS:
        raise UnusableInput(f"{path}: more than {MOST_TOOLS} tools: {_LIMITS}")
    odd = next((i for i, tool in enumerate(tools) if not isinstance(tool, dict)), None)
    if odd is not None:
        kind = type(tools[odd]).__name__
        raise UnusableInput(f"{path}: entry {odd} is {kind}, not an object; {_FIX}")
    return tools
