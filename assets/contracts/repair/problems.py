"""What is wrong with a call, field by field, for the model or person that has to fix it."""

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from itertools import islice
from typing import Any

from assets.contracts.repair.names import find_nearest, find_same_name
from assets.contracts.schema_shapes import (
    collect_properties,
    iterate_branches,
    name_json_type,
    read_list,
    read_mapping,
    resolve,
)
from assets.contracts.validate import Flaw, validate_call
from warehouse.json_types import Contract, JsonObject, Schema
from warehouse.sanitize.untrusted_text import shorten_text

Place = Sequence[str | int]
ABSENT = object()
_MOST_BRANCHES = 6  # of a root that says several forms of a call
_CHOICES = 1000  # of one schema that are looked at

_PLAIN = re.compile(r"[A-Za-z_][A-Za-z0-9_\-]*")
_BOUNDS = {
    "minimum": "at least {}",
    "exclusiveMinimum": "more than {}",
    "maximum": "at most {}",
    "exclusiveMaximum": "less than {}",
    "multipleOf": "a multiple of {}",
    "minLength": "at least {} characters",
    "maxLength": "at most {} characters",
    "minItems": "at least {} items",
    "maxItems": "at most {} items",
    "pattern": "matching {}",
}


def format_place(at: Place) -> str:
    """`$.filters[0].name`; a name that is no plain word stands in brackets."""
    text = "$"
    for part in at:
        if isinstance(part, int):
            text += f"[{part}]"
        elif _PLAIN.fullmatch(part):
            text += f".{part}"
        else:
            text += f"[{json.dumps(part[:80])}]"
    return text


def find_value(arguments: Any, at: Place) -> Any:
    """The value at a place, or ABSENT."""
    for part in at:
        if isinstance(arguments, Mapping):
            arguments = arguments.get(part, ABSENT)  # type: ignore[call-overload]
        elif isinstance(arguments, list) and isinstance(part, int) and part < len(arguments):
            arguments = arguments[part]
        else:
            return ABSENT
    return arguments


def find_schema(root: Schema, at: Place) -> Any:
    """The schema of a place; {} where nothing is said about it."""
    schema: Any = root
    for part in at:
        if isinstance(part, int):
            schema = _find_item(schema, root, part)
        else:
            schema = collect_properties(schema, root).get(part, {})
    return schema


def _find_item(schema: Any, root: Schema, place: int) -> Any:
    for branch in iterate_branches(schema, root):
        first, items_schema = branch.get("prefixItems"), branch.get("items")
        if isinstance(first, list) and place < len(first):
            return first[place]
        if isinstance(items_schema, list) and place < len(items_schema):
            return items_schema[place]
        if isinstance(items_schema, Mapping):
            return items_schema
    return {}


def find_types(schema: Any, root: Schema) -> set[str]:
    """The types that some branch of a schema names; none: it does not say."""
    types: set[str] = set()
    for branch in iterate_branches(schema, root):
        type_keyword = branch.get("type")
        types |= {type_keyword} if isinstance(type_keyword, str) else set(type_keyword or ())
        if "type" not in branch and isinstance(branch.get("properties"), Mapping):
            types.add("object")
    return types or {name_json_type(value) for value in find_choices(schema, root)}


def find_choices(schema: Any, root: Schema) -> list[Any]:
    """The values that `enum` and `const` of any branch allow, in their order."""
    choices: dict[str, Any] = {}
    for branch in iterate_branches(schema, root):
        constant = [branch["const"]] if "const" in branch else []
        for value in [*read_list(branch.get("enum"))[:_CHOICES], *constant]:
            choices.setdefault(json.dumps(value, sort_keys=True), value)
    return list(choices.values())


def is_required(root: Schema, at: Place) -> bool:
    """Whether some branch of the object around a place requires it; an item always is."""
    if not at or isinstance(at[-1], int):
        return True
    branches = iterate_branches(find_schema(root, at[:-1]), root)
    return any(at[-1] in (branch.get("required") or ()) for branch in branches)


def find_declared(root: Schema, at: Place) -> list[str]:
    """The names that the object at a place declares."""
    return list(collect_properties(find_schema(root, at), root))


def is_closed(root: Schema, at: Place) -> bool:
    """Whether the object at a place says `additionalProperties: false`."""
    branches = iterate_branches(find_schema(root, at), root)
    return any(branch.get("additionalProperties") is False for branch in branches)


def describe_expected(schema: Any, root: Schema) -> str:
    """What a schema asks for, in one line."""
    choices = find_choices(schema, root)
    if choices:
        examples = ", ".join(format_value(value, 40) for value in choices[:12])
        more = f" and {len(choices) - 12} more" if len(choices) > 12 else ""
        return f"one of {examples}{more}"
    types = sorted(find_types(schema, root))
    phrases = [" or ".join(types) or "any value"]
    if "array" in types:
        inner = sorted(find_types(_find_item(schema, root, 0), root))
        phrases = [phrases[0] + (f" of {' or '.join(inner)}" if inner else "")]
    for branch in iterate_branches(schema, root):
        if isinstance(branch.get("format"), str):
            phrases.append(f"in the format {branch['format'][:40]}")
        for key, words in _BOUNDS.items():
            if key in branch and isinstance(branch[key], int | float | str):
                phrases.append(words.format(str(branch[key])[:80]))
    return ", ".join(dict.fromkeys(phrases))[:300]


def format_value(value: Any, limit: int = 80) -> str:
    """A value as JSON, cut."""
    if isinstance(value, str | list) and len(value) > 4 * limit:
        value = value[: 4 * limit]
    elif isinstance(value, dict) and len(value) > 4 * limit:
        value = {str(name): value[name] for name in islice(value, 40)}
    return shorten_text(json.dumps(value, ensure_ascii=False, default=str), limit)


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
    fix = "the server has to fix it; do not rely on this part"
    problems = [
        _build_problem(flaw, schema, structured)
        for flaw in validate_call({"inputSchema": schema}, structured)
        if flaw.kind != "unknown_argument"
    ]
    return [{**problem, "path": OUTPUT + problem["path"][1:], "fix": fix} for problem in problems]


def _build_problem(flaw: Flaw, root: Schema, arguments: Any) -> Problem:
    found_text, expected, fix = _describe_flaw(flaw, root, arguments)
    about = {"found": found_text, "expected": expected, "fix": fix}
    return {"path": format_place(flaw.at), "kind": flaw.kind, **about}


def _describe_flaw(flaw: Flaw, root: Schema, arguments: Any) -> tuple[str, str, str]:
    """(found, expected, fix)."""
    value, name = find_value(arguments, flaw.at), str(flaw.at[-1]) if flaw.at else ""
    if flaw.kind == "bad_schema":
        expected = "a schema that calls can be checked against"
        return flaw.message, expected, "the server has to fix it"
    if flaw.kind == "not_an_object":
        fix = 'give the arguments by name, as {"name": value}'
        return _name_kind(arguments), "an object of arguments", fix
    if not flaw.at and (branches := list_alternatives(root)):
        expected = "either " + ", or ".join(
            _describe_branch(branch, arguments) for branch in branches
        )
        return format_value(arguments), expected, "give what one of these asks for"
    declared, around = find_declared(root, flaw.at[:-1]), find_value(arguments, flaw.at[:-1])
    present = around if isinstance(around, Mapping) else {}
    if flaw.kind == "unknown_argument":
        near = _find_similar(name, [other for other in declared if other not in present])
        names = ", ".join(declared[:12]) + (" …" if len(declared) > 12 else "")
        fix = f"call it {near!r}" if near else f"leave {name[:80]!r} out"
        expected = f"only {names}" if declared else "no arguments"
        return f"{name[:80]!r}: {format_value(value)}", expected, fix
    expected = describe_expected(find_schema(root, flaw.at), root)
    if flaw.kind == "missing_required":
        declared_names = set(declared)
        near = _find_similar(name, [other for other in present if other not in declared_names])
        hint = f"; {near!r} may have been meant for it" if near else ""
        return "nothing", f"{name!r}: {expected}", f"give {name!r}{hint}"
    if value is None and not is_required(root, flaw.at):
        return "null", expected, f"leave {name!r} out, or give {expected}"
    shown_value = "nothing" if value is ABSENT else _name_kind(value)
    types = find_types(find_schema(root, flaw.at), root)
    text = isinstance(value, str) and flaw.kind == "wrong_type" and bool(types)
    fix = f"give {expected}" + (", not as text" if text and "string" not in types else "")
    return shown_value, expected if expected != "any value" else flaw.message, fix


def list_alternatives(root: Schema) -> list[JsonObject]:
    """The schemas of arguments that `anyOf` or `oneOf` at the root allow, each with what the root
    says besides."""
    common = {key: value for key, value in root.items() if key not in ("anyOf", "oneOf")}
    alternatives = []
    for key in ("anyOf", "oneOf"):
        for branch in read_list(root.get(key))[:_MOST_BRANCHES]:
            inner = resolve(branch, root)
            parts = [common, inner]
            properties = {}
            for part in parts:
                properties |= read_mapping(part.get("properties"))
            required = [name for part in parts for name in read_list(part.get("required"))]
            merged = {**common, **inner, "properties": properties, "required": required}
            alternatives.append(merged)
    return alternatives


def _describe_branch(branch: JsonObject, arguments: Any) -> str:
    """What a call lacks for one of several forms."""
    flaws = validate_call({"inputSchema": branch}, arguments)[:_MOST_BRANCHES]
    needs = [f"{format_place(flaw.at)}: {describe_expected(find_schema(branch, flaw.at), branch)}"
             for flaw in flaws if flaw.kind != "unknown_argument"]  # fmt: skip
    without = [f"no {format_place(flaw.at)}" for flaw in flaws if flaw.kind == "unknown_argument"]
    return " and ".join([*needs, *without])[:200] or "what was given"


def _name_kind(value: Any) -> str:
    return "null" if value is None else f"{name_json_type(value)} {format_value(value)}"


def _find_similar(name: str, among: list[str]) -> str | None:
    return find_same_name(name, among) or find_nearest(name, among)
