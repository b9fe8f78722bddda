"""What is wrong with a call, field by field, for whoever has to fix it."""

from collections.abc import Iterable, Mapping
from typing import Any

from assets.contracts.repair.json_paths import (
    ABSENT,
    describe_expected,
    find_declared,
    find_schema,
    find_types,
    find_value,
    format_place,
    format_value,
    is_required,
)
from assets.contracts.repair.names import find_nearest, find_same_name
from assets.contracts.schema.reading import name_json_type
from assets.contracts.validate import Flaw, validate_call
from warehouse.json_types import Contract, Schema

Problem = dict[str, Any]
OUTPUT = "structuredContent"


def find_problems(contract: Contract, arguments: Any) -> list[Problem]:
    """Problems of the arguments, [] for a call that fits: {path, kind, found, expected, fix}.

    path: `$.filters[0].name`. kind: of `validate.Flaw`. Never raises; bounded as validation is.
    """
    return describe_problems(contract, arguments, validate_call(contract, arguments))


def describe_problems(contract: Contract, arguments: Any, flaws: Iterable[Flaw]) -> list[Problem]:
    """The flaws that were found, as problems."""
    schema = contract.get("inputSchema")
    root = schema if isinstance(schema, Mapping) else {}
    return [_build_problem(flaw, root, arguments) for flaw in flaws]


def find_output_problems(contract: Contract, structured: Any) -> list[Problem]:
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
    found = [
        _build_problem(flaw, schema, structured)
        for flaw in flaws
        if flaw.kind != "unknown_argument"
    ]
    fix = "the server has to fix it; do not rely on this part"
    return [{**one, "path": OUTPUT + one["path"][1:], "fix": fix} for one in found]


def _build_problem(flaw: Flaw, root: Schema, arguments: Any) -> Problem:
    found, expected, fix = _describe_flaw(flaw, root, arguments)
    about = {"found": found, "expected": expected, "fix": fix}
    return {"path": format_place(flaw.at), "kind": flaw.kind, **about}


def _describe_flaw(flaw: Flaw, root: Schema, arguments: Any) -> tuple[str, str, str]:
    """(found, expected, fix)."""
    value, name = find_value(arguments, flaw.at), str(flaw.at[-1]) if flaw.at else ""
    if flaw.kind == "bad_schema":
        return (
            flaw.message,
            "a schema that calls can be checked against",
            "the server has to fix it",
        )
    if flaw.kind == "not_an_object":
        return (
            _name_kind(arguments),
            "an object of arguments",
            ('give the arguments by name, as {"name": value}'),
        )
    if flaw.kind == "unknown_argument":
        return _describe_unknown(flaw, root, arguments, name, value)
    expected = describe_expected(find_schema(root, flaw.at), root)
    if flaw.kind == "missing_required":
        near = _find_similar(name, _list_unknown(flaw, root, arguments))
        hint = f"; {near!r} may have been meant for it" if near else ""
        return "nothing", f"{name!r}: {expected}", f"give {name!r}{hint}"
    if value is None and not is_required(root, flaw.at):
        return "null", expected, f"leave {name!r} out, or give {expected}"
    shown_value = "nothing" if value is ABSENT else _name_kind(value)
    types = find_types(find_schema(root, flaw.at), root)
    text = isinstance(value, str) and flaw.kind == "wrong_type" and bool(types)
    fix = f"give {expected}" + (", not as text" if text and "string" not in types else "")
    return shown_value, expected if expected != "any value" else flaw.message, fix


def _name_kind(value: Any) -> str:
    return "null" if value is None else f"{name_json_type(value)} {format_value(value)}"


def _describe_unknown(
    flaw: Flaw, root: Schema, arguments: Any, name: str, value: Any
) -> tuple[str, str, str]:
    declared = find_declared(root, flaw.at[:-1])
    around = find_value(arguments, flaw.at[:-1])
    free = [one for one in declared if not isinstance(around, Mapping) or one not in around]
    near = _find_similar(name, free)
    listed = ", ".join(declared[:12]) + (" …" if len(declared) > 12 else "")
    expected = f"only {listed}" if declared else "no arguments"
    fix = f"call it {near!r}" if near else f"leave {name[:80]!r} out"
    return f"{name[:80]!r}: {format_value(value)}", expected, fix


def _list_unknown(flaw: Flaw, root: Schema, arguments: Any) -> list[str]:
    """What stands beside a missing name and is not declared."""
    around = find_value(arguments, flaw.at[:-1])
    declared = set(find_declared(root, flaw.at[:-1]))
    return [one for one in around if one not in declared] if isinstance(around, Mapping) else []


def _find_similar(name: str, among: list[str]) -> str | None:
    return find_same_name(name, among) or find_nearest(name, among)
