"""Which of two tools may use what the other returns.

What belongs here: the order of two tools in one task and how well they join, from their words.
What does not: which tools are paired (`units.py`) and what a user says (`several.py`).
"""

from collections.abc import Mapping
from typing import Any

from assets.synthesis.lexicon import words_of
from assets.synthesis.reading import json_type, resolve

Json = Any
Contract = Mapping[str, Json]
# Every tool's parameters hold these; they join nothing.
_EMPTY = frozenset(["the", "and", "for", "with", "from", "get", "set", "of", "to", "in", "a", "an"])
_LOOSE = frozenset(
    ["query", "text", "name", "content", "message", "input", "value", "data", "body"]
)
_FINDS = frozenset(
    [
        "search",
        "find",
        "list",
        "get",
        "lookup",
        "create",
        "add",
        "resolve",
        "fetch",
        "query",
        "read",
    ]
)


def suits_second(contract: Contract) -> bool:
    """Whether one of its parameters can hold a value out of another tool's result."""
    return bool(takers(contract))


def takers(contract: Contract) -> list[str]:
    """Parameters that one plain value fills and that offer no choice, required ones first."""
    schema = contract.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if not isinstance(properties, Mapping) or not isinstance(schema, Mapping):
        return []
    plain = [name for name, of in properties.items() if _is_plain(resolve(of, schema))]
    required = schema.get("required")
    needed = required if isinstance(required, list) else []
    return sorted(plain, key=lambda name: name not in needed)


def _is_plain(schema: Contract) -> bool:
    if schema.get("enum") or "const" in schema:
        return False
    return json_type(schema) in ("string", "integer", "number")


def chained(one: Contract, other: Contract) -> tuple[bool, float]:
    """(whether `one` goes first, how well the two join): the better of both orders."""
    forth, back = _joint(one, other), _joint(other, one)
    if forth == back:
        # Neither order is better: the name decides, so that both tools agree on it.
        return str(one.get("name")) <= str(other.get("name")), forth
    return forth > back, max(forth, back)


def _joint(first: Contract, second: Contract) -> float:
    """How well a parameter of `second` is filled out of the result of `first`; -1: not at all."""
    names = takers(second)[:12]
    if not names:
        return -1.0
    made = _makes(first)
    best = max(_overlap(set(words_of(name)), made) for name in names)
    return best + 0.25 * bool(_FINDS & set(words_of(str(first.get("name") or ""))[:2]))


def _overlap(wanted: set[str], made: set[str]) -> float:
    """Share of a parameter's words that the first tool speaks of; loose words count half."""
    told = wanted - _EMPTY
    return sum((0.5 if word in _LOOSE else 1.0) for word in told & made) / max(1, len(told))


def _makes(contract: Contract) -> set[str]:
    said = f"{contract.get('name') or ''} {str(contract.get('description') or '')[:600]}"
    output = contract.get("outputSchema")
    fields = output.get("properties") if isinstance(output, Mapping) else None
    told = " ".join(str(name) for name in list(fields)[:60]) if isinstance(fields, Mapping) else ""
    words = {word for part in f"{said} {told}".split() for word in words_of(part)}
    return (words | {word.removesuffix("s") for word in words}) - _EMPTY
