"""Behaviour: findings about a list of tools as a whole, which no text of one tool shows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assets.contracts.canonical import FIELDS
from assets.contracts.history.snapshot import TWICE
from assets.contracts.scan.finding import HIGH, LOW, MEDIUM, Finding, Rule, define_rule
from warehouse.sanitize.escape import escape_text

DEPENDS = define_rule(
    "depends_on_asker", HIGH, "behaviour",
    "is listed otherwise to another client, on another day or at a later call",
    "Invariant Labs 2025, MCP rug pulls: a server that behaves while it is watched",
)  # fmt: skip
UNSTABLE = define_rule(
    "unstable", MEDIUM, "behaviour",
    "is listed otherwise when the same client asks again", "Model Context Protocol, tools/list",
)  # fmt: skip
DATED = define_rule(
    "dated", LOW, "behaviour", "names the day it is listed on, and says else the same",
    "Model Context Protocol, tools/list",
)  # fmt: skip
MALFORMED = define_rule(
    "malformed_tool", LOW, "format", "has no usable contract, so nothing is made of it",
    "Model Context Protocol, tools",
)  # fmt: skip
NO_SCHEMA = define_rule(
    "unusable_schema", LOW, "format", "its input schema is no JSON Schema, so no call can be right",
    "Model Context Protocol, tools",
)  # fmt: skip
AMBIGUOUS = define_rule(
    "ambiguous_tool", MEDIUM, "format",
    "two readers may take it for two things: a name listed twice, members that differ by case",
    "Model Context Protocol, tool names are unique; RFC 8259, names within an object",
)  # fmt: skip

BEHAVIOUR = frozenset((DEPENDS.id, UNSTABLE.id, DATED.id))
_CHANGES = {"added": "only listed", "removed": "not listed", "changed": "listed otherwise",
            "dated": "listed with another date"}  # fmt: skip
_VARIED = {
    "client name": "to a client of another name",
    "date": "on another day",
    "call count": "at a later call",
}
_FIELDS = {name.casefold(): name for name in FIELDS}
_CAP = 200  # findings of one list


def find_behaviour(behaviour: str | None) -> Iterator[tuple[str, Finding]]:
    """(tool, finding) for what a second look at a server showed; `behaviour` as a deployment has
    it: a JSON list of {tool, change, varied}, null when nobody looked again."""
    for one in _read_changes(behaviour)[:_CAP]:
        if isinstance(one, Mapping) and isinstance(one.get("tool"), str):
            change, varied = _CHANGES.get(str(one.get("change"))), str(one.get("varied"))
            to_whom = _VARIED.get(varied)
            by = DATED if one.get("change") == "dated" else DEPENDS if to_whom else UNSTABLE
            what = f"{change or _CHANGES['changed']} {to_whom or 'when probed again'}"
            yield one["tool"], _build_finding(one["tool"], by, "", what)


def find_misshapen(
    tools: Sequence[Any], problems: Mapping[int, str]
) -> Iterator[tuple[str, Finding]]:
    """(tool, finding) for entries of a raw list without a contract of their own, and for members
    that differ from a field of the protocol by case alone. problems: entry -> what is wrong."""
    for place, problem in list(problems.items())[:_CAP]:
        name = _read_name(tools[place])
        by = AMBIGUOUS if problem == TWICE else MALFORMED
        yield name, _build_finding(name, by, f"/{place}", problem)
    for place, tool in enumerate(tools[:20_000]):
        odd = [key for key in tool if _is_variant(key)] if isinstance(tool, Mapping) else []
        for key in odd[:3]:
            what = f"{key[:60]!r} beside the protocol's {_FIELDS[key.casefold()]!r}"
            yield _read_name(tool), _build_finding(_read_name(tool), AMBIGUOUS, f"/{place}", what)


def describe_unusable(tool: str, problem: str) -> Finding:
    """The finding about an input schema that is none."""
    return _build_finding(tool, NO_SCHEMA, "/inputSchema", problem)


def _is_variant(key: Any) -> bool:
    return isinstance(key, str) and key not in FIELDS and key.casefold() in _FIELDS


def _build_finding(tool: str, by: Rule, field: str, what: str) -> Finding:
    text = escape_text(what[:200])
    return Finding(escape_text(tool[:200]), by.id, by.severity, field, (0, 0), text,
                   by.why)  # fmt: skip


def _read_name(tool: Any) -> str:
    name = tool.get("name") if isinstance(tool, Mapping) else None
    return name if isinstance(name, str) else ""


def _read_changes(text: str | None) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []
