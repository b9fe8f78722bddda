"""What is wrong with a call, field by field, for whoever has to fix it."""

from collections.abc import Iterable, Mapping
from typing import Any

from assets.contracts.repair.json_paths import (
    ABSENT,
    asked_for,
    declared_at,
    required_at,
    schema_at,
    shown,
    shown_place,
    types_at,
    value_at,
)
from assets.contracts.repair.names import nearest, same
from assets.contracts.schema.reading import json_type
from assets.contracts.validate import Flaw, validate_call

Problem = dict[str, Any]
OUTPUT = "structuredContent"


def problems_of(contract: Mapping[str, Any], arguments: Any) -> list[Problem]:
    """Problems of the arguments, [] for a call that fits: {path, kind, found, expected, fix}.

    path: `$.filters[0].name`. kind: of `validate.Flaw`. Never raises; bounded as validation is.
    """
    return told(contract, arguments, validate_call(contract, arguments))


def told(contract: Mapping[str, Any], arguments: Any, flaws: Iterable[Flaw]) -> list[Problem]:
    """The flaws that were found, as problems."""
    schema = contract.get("inputSchema")
    root = schema if isinstance(schema, Mapping) else {}
    return [_problem(flaw, root, arguments) for flaw in flaws]


def output_problems(contract: Mapping[str, Any], structured: Any) -> list[Problem]:
    """Problems of an answer's structured content against the contract's output schema. What the
    schema does not name may be there."""
    schema = contract.get("outputSchema")
    if not isinstance(schema, Mapping):
        return []
    if structured is None:
        fix = "the server has to fix it; read the content"
        return [{"path": OUTPUT, "kind": "missing_required", "found": "nothing",
                 "expected": "structured content, as the contract says", "fix": fix}]  # fmt: skip
    flaws = validate_call({"inputSchema": schema}, structured)
    found = [_problem(one, schema, structured) for one in flaws if one.kind != "unknown_argument"]
    fix = "the server has to fix it; do not rely on this part"
    return [{**one, "path": OUTPUT + one["path"][1:], "fix": fix} for one in found]


def _problem(flaw: Flaw, root: Mapping[str, Any], arguments: Any) -> Problem:
    found, expected, fix = _told(flaw, root, arguments)
    about = {"found": found, "expected": expected, "fix": fix}
    return {"path": shown_place(flaw.at), "kind": flaw.kind, **about}


def _told(flaw: Flaw, root: Mapping[str, Any], arguments: Any) -> tuple[str, str, str]:
    """(found, expected, fix)."""
    value, name = value_at(arguments, flaw.at), str(flaw.at[-1]) if flaw.at else ""
    if flaw.kind == "bad_schema":
        return (
            flaw.message,
            "a schema that calls can be checked against",
            "the server has to fix it",
        )
    if flaw.kind == "not_an_object":
        return (
            _kind(arguments),
            "an object of arguments",
            ('give the arguments by name, as {"name": value}'),
        )
    if flaw.kind == "unknown_argument":
        return _unknown(flaw, root, arguments, name, value)
    expected = asked_for(schema_at(root, flaw.at), root)
    if flaw.kind == "missing_required":
        near = _alike(name, _strangers(flaw, root, arguments))
        hint = f"; {near!r} may have been meant for it" if near else ""
        return "nothing", f"{name!r}: {expected}", f"give {name!r}{hint}"
    if value is None and not required_at(root, flaw.at):
        return "null", expected, f"leave {name!r} out, or give {expected}"
    shown_value = "nothing" if value is ABSENT else _kind(value)
    types = types_at(schema_at(root, flaw.at), root)
    text = isinstance(value, str) and flaw.kind == "wrong_type" and bool(types)
    fix = f"give {expected}" + (", not as text" if text and "string" not in types else "")
    return shown_value, expected if expected != "any value" else flaw.message, fix


def _kind(value: Any) -> str:
    return "null" if value is None else f"{json_type(value)} {shown(value)}"


def _unknown(
    flaw: Flaw, root: Mapping[str, Any], arguments: Any, name: str, value: Any
) -> tuple[str, str, str]:
    declared = declared_at(root, flaw.at[:-1])
    around = value_at(arguments, flaw.at[:-1])
    free = [one for one in declared if not isinstance(around, Mapping) or one not in around]
    near = _alike(name, free)
    listed = ", ".join(declared[:12]) + (" …" if len(declared) > 12 else "")
    expected = f"only {listed}" if declared else "no arguments"
    fix = f"call it {near!r}" if near else f"leave {name[:80]!r} out"
    return f"{name[:80]!r}: {shown(value)}", expected, fix


def _strangers(flaw: Flaw, root: Mapping[str, Any], arguments: Any) -> list[str]:
    """What stands beside a missing name and is not declared."""
    around = value_at(arguments, flaw.at[:-1])
    declared = set(declared_at(root, flaw.at[:-1]))
    return [one for one in around if one not in declared] if isinstance(around, Mapping) else []


def _alike(name: str, among: list[str]) -> str | None:
    return same(name, among) or nearest(name, among)
