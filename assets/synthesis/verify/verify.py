"""Rules before any judge: does the call fit the contract, and does the request carry the call?

`accept`: nothing wrong. `reject`: a flaw that no judge could excuse. `unsure`: a value that the
rules cannot find in the text; a judge, or a person, may ("next to the Eiffel Tower").
"""

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from assets.contracts.validate import validate_call
from assets.synthesis.common.contract_reading import (
    get_input_schema,
    get_properties,
    get_required,
    resolve_schema,
)
from assets.synthesis.verify.checks.description_echo import find_echo, show_scalar
from assets.synthesis.verify.checks.request_form import find_form_flaws
from assets.synthesis.verify.checks.reversed_ends import find_reversed_ends
from assets.synthesis.verify.checks.stated_form import find_other_form
from assets.synthesis.verify.finding import Finding
from assets.synthesis.verify.grounding.grounding import (
    ABSENT,
    LIKELY,
    STATED,
    Text,
    grade_value,
    walk_leaves,
)
from assets.vectors.lexicon import split_identifier
from warehouse.json_types import Contract, Json, JsonObject, Schema

_SCHEMA_KINDS = {
    "missing_required": "missing_required_argument",
    "unknown_argument": "unknown_argument",
    "wrong_type": "wrong_type",
    "not_an_object": "wrong_type",
    "bad_schema": "bad_schema",
}


@dataclass(frozen=True)
class Verification:
    """The rules' verdict on one pair: accept, reject or unsure, and why."""

    verdict: str
    findings: tuple[Finding, ...]

    @property
    def kinds(self) -> list[str]:
        return sorted({finding.kind for finding in self.findings})


def verify(
    contract: Contract, instruction: str, arguments: Json, *, server: str = ""
) -> Verification:
    """Checks one pair by rules. Never raises on odd input: what is odd is a finding.

    `server` is the server's id or name; a request that names it is a flaw.
    """
    findings = [
        *find_call_flaws(contract, arguments),
        *find_form_flaws(contract, instruction, server),
    ]
    if isinstance(arguments, Mapping):
        findings += find_ungrounded(contract, Text(instruction), arguments)
        findings += find_echo(contract, instruction, arguments)
    return decide(findings)


def decide(findings: Iterable[Finding]) -> Verification:
    """The verdict that follows from findings: a certain one rejects, any other leaves it open."""
    found = tuple(findings)
    if any(finding.certain for finding in found):
        return Verification("reject", found)
    return Verification("unsure" if found else "accept", found)


def find_call_flaws(contract: Contract, arguments: Json) -> Iterable[Finding]:
    """What is wrong with the call by its contract alone."""
    for flaw in validate_call(contract, arguments):
        yield Finding(_SCHEMA_KINDS.get(flaw.kind, "bad_value"), flaw.path, flaw.message)
    if isinstance(arguments, Mapping):
        yield from find_other_form(contract, arguments)


def find_ungrounded(contract: Contract, text: Text, arguments: JsonObject) -> Iterable[Finding]:
    """Values of the call that the text does not hold."""
    root, properties = get_input_schema(contract), get_properties(contract)
    required = get_required(contract)
    for name, value in arguments.items():
        of = resolve_schema(properties.get(name) or {}, root)
        if "default" in of and of["default"] == value:
            continue
        grades = _grade_leaves(str(name), value, of, text)
        worst = [
            g for g in grades if g[1] != STATED and not _is_excused(g, str(name), required, of)
        ]
        if not worst or _is_mostly_stated(grades):
            continue
        path, how, leaf = worst[0]
        kind = "missing_required_value" if name in required else "ungrounded_value"
        if how == ABSENT and text.numbers.read and isinstance(leaf, (int, float)):
            kind = "ungrounded_value"
        reason = f"{show_scalar(leaf)[:60]!r} is not in the text ({how})"
        yield Finding(kind, path[:200], reason, certain=False)
    yield from find_reversed_ends(arguments, text)


def find_worst_grade(name: str, value: Json, text: Text, contract: Contract | None = None) -> str:
    """How well a text holds one argument: the worst grade of its leaves."""
    of = resolve_schema(
        get_properties(contract or {}).get(name) or {}, get_input_schema(contract or {})
    )
    grades = _grade_leaves(name, value, of, text)
    if _is_mostly_stated(grades):
        return STATED
    return min((how for _, how, _ in grades), key=(ABSENT, LIKELY, STATED).index, default=STATED)


# Words that structure a nested value; nobody says them.
_STRUCTURAL = {"role", "type", "operator", "op", "kind", "direction", "object"}
# Which of a tool's several operations is meant is said by the whole request, not by its name.
_CHOSEN = {"action", "command", "operation", "subtool", "subcommand", "mode", "method", "op"}


# One of these is asked for, or it is the default.
_COUNTS = {"limit", "count", "size", "max", "top", "n", "num", "number", "results", "amount"}


def _is_excused(
    graded: tuple[str, str, Json], name: str, required: list[str], schema: Schema
) -> bool:
    """Whether a value that is not stated may stand: what an option says is often only implied."""
    path, how, leaf = graded
    if path != name and re.split(r"[.\[]", path)[-1].lower() in _STRUCTURAL:
        return True
    if how != LIKELY:
        return False
    if schema.get("enum") and _CHOSEN & set(split_identifier(name)):
        return True
    if name in required:
        return False
    if leaf in (0, 1) and not isinstance(leaf, bool):
        return not _COUNTS & set(split_identifier(name))
    return isinstance(leaf, bool) or bool(schema.get("enum"))


def _grade_leaves(
    name: str, value: Json, schema: Schema, text: Text
) -> list[tuple[str, str, Json]]:
    found: list[tuple[str, str, Json]] = []
    for path, leaf in walk_leaves(value, name):
        of = schema if path == name else _get_member_schema(schema, path)
        last = re.split(r"[.\[]", path)
        own = next((part for part in reversed(last) if not part.rstrip("]").isdigit()), name)
        found.append((path, grade_value(leaf, of, own, text, listed=path.endswith("]")), leaf))
    return found


def _get_member_schema(schema: Schema, path: str) -> JsonObject:
    """The schema of a leaf, as far as plain `items` and `properties` lead to it."""
    here: Json = schema
    for part in re.findall(r"\[\d+\]|\.[^.\[]+", path):
        members = here.get("properties")
        inner = members.get(part[1:]) if isinstance(members, Mapping) else None
        here = here.get("items") if part[0] == "[" else inner
        if not isinstance(here, Mapping):
            return {}
    return here


def _is_mostly_stated(grades: list[tuple[str, str, Json]]) -> bool:
    """Whether a nested value is stated but for its bookkeeping (a `type`, an index, a flag)."""
    stated = sum(how == STATED for _, how, _ in grades)
    return len(grades) >= 4 and stated / len(grades) >= 0.75
