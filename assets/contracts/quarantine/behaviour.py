"""Behaviour: findings about a list of tools as a whole, which no text of one tool shows."""

import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from assets.contracts.canonical import FIELDS, TWICE
from assets.contracts.scan.engine import read_name
from assets.contracts.scan.finding import RULES, Finding
from warehouse.sanitize.escape import escape_text

BEHAVIOUR = frozenset(name for name, rule in RULES.items() if rule.family == "behaviour")
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
            rule = "depends_on_asker" if to_whom else "unstable"
            rule = "dated" if one.get("change") == "dated" else rule
            what = f"{change or _CHANGES['changed']} {to_whom or 'when probed again'}"
            yield one["tool"], _build_finding(one["tool"], rule, "", what)


def find_misshapen(
    tools: Sequence[Any], problems: Mapping[int, str]
) -> Iterator[tuple[str, Finding]]:
    """(tool, finding) for entries of a raw list without a contract of their own, and for members
    that differ from a field of the protocol by case alone. problems: entry -> what is wrong."""
    for place, problem in list(problems.items())[:_CAP]:
        name = read_name(tools[place])
        rule = "ambiguous_tool" if problem == TWICE else "malformed_tool"
        yield name, _build_finding(name, rule, f"/{place}", problem)
    for place, tool in enumerate(tools[:20_000]):
        odd = [key for key in tool if _is_variant(key)] if isinstance(tool, Mapping) else []
        for key in odd[:3]:
            what = f"{key[:60]!r} beside the protocol's {_FIELDS[key.casefold()]!r}"
            name = read_name(tool)
            yield name, _build_finding(name, "ambiguous_tool", f"/{place}", what)


def describe_unusable(tool: str, problem: str) -> Finding:
    """The finding about an input schema that is none."""
    return _build_finding(tool, "unusable_schema", "/inputSchema", problem)


def _is_variant(key: Any) -> bool:
    return isinstance(key, str) and key not in FIELDS and key.casefold() in _FIELDS


def _build_finding(tool: str, rule: str, field: str, what: str) -> Finding:
    severity, why = RULES[rule].severity, RULES[rule].why
    text = escape_text(what[:200])
    return Finding(escape_text(tool[:200]), rule, severity, field, (0, 0), text, why)


def _read_changes(text: str | None) -> list[Any]:
    try:
        found = json.loads(text) if text else []
    except (ValueError, RecursionError):
        return []
    return found if isinstance(found, list) else []
