"""The canonical form of one tool's contract, its digest, and the one text made from it.

Identity is what a model reads or a server accepts: name, title, description, input and output
schema, annotations. Within them this is noise, because no reader can act on it and generators of
schemas change it between releases:

- the order of keys, the white space of the JSON text, 1 against 1.0;
- `$schema` (which draft is meant is recognised again), and the root's `$id` where no `$ref` names
  it (a base for references that are never fetched);
- the order of, and repetition in, `required`, `dependentRequired` and lists of types; an empty
  `required`; a list of one type against the type itself: sets, by the standard;
- a boolean schema against its equal: `true` and `{}`, `false` and `{"not": {}}`;
- in titles and descriptions: CRLF, white space at the ends of lines and text, runs of blanks
  within a line, more than one empty line, the indentation that all lines after the first share (a
  docstring in its source or cleaned); an empty one;
- null annotations, and annotations without a hint (SDKs write all fields).

`_meta`, `icons` and members that the protocol does not know are left out: hosts read them, models
are not shown them (a member that differs from a field by case alone is a finding, `findings.py`).

This is not noise, although a validator cannot tell it apart:

- the order of `enum`, `anyOf`, `examples` (authored; the first is the one a model copies),
  `default`, `$comment`, unknown keywords: a model is shown all of it, and text can hide there;
- `additionalProperties: true` against none: an unknown argument is a flaw unless it is explicit;
- `properties: {}` against none: some model APIs refuse an object without it;
- `$defs` against `definitions`, and definitions nobody uses: both are shown;
- Unicode: NFC and NFD are other tokens in prose and other keys in arguments, and folding them
  would hide lookalikes from the scan; line breaks and deeper indentation: lists and code;
- white space in names, enums, defaults: a server compares them exactly.
"""

import math
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from warehouse.json_types import Contract
from warehouse.storage.digest import digest

# Keywords whose value is a schema, a list of schemas, or a mapping from names to schemas. Only
# there is `$schema` noise and `description` prose: below `properties` both may be argument names.
_SPARE = {"additionalProperties", "additionalItems", "unevaluatedProperties", "unevaluatedItems"}
_ONE = _SPARE | {
    *("items", "contains", "propertyNames", "not", "if", "then", "else", "contentSchema")
}
_MANY = {"allOf", "anyOf", "oneOf", "prefixItems", "items"}
_NAMED = {"properties", "patternProperties", "$defs", "definitions", "dependentSchemas"}
_LARGEST_EXACT = 2**53 - 1
_MAX_DEPTH = 64
_NEVER = {"not": {}}
_BLANKS = re.compile(r"(?<=[^ \t])[ \t]+")


class NonCanonicalValue(Exception):
    """A value without canonical form; `path` grows while it passes up."""

    def __init__(self, reason: str) -> None:
        self.reason = reason
        self.path = ""


def normalise_schema(node: Any, depth: int) -> Any:
    """A copy of one schema without noise; booleans are schemas too."""
    if not isinstance(node, Mapping):
        return (
            ({} if node else dict(_NEVER))
            if isinstance(node, bool)
            else normalise_value(node, depth)
        )
    _check_depth(depth)
    out: dict[str, Any] = {}
    for raw, value in node.items():
        if raw == "$schema":
            continue
        key = normalise_string(raw) if isinstance(raw, str) else str(raw)
        try:
            canonical = _normalise_keyword(key, value, depth)
        except NonCanonicalValue as error:
            error.path = f".{key}{error.path}"
            raise
        if canonical is not None or value is None:
            out[key] = canonical
    return out


def _normalise_keyword(key: str, value: Any, depth: int) -> Any:
    """The canonical value of one keyword; None drops it."""
    if key in _NAMED and isinstance(value, Mapping):
        return {normalise_string(str(k)): normalise_schema(v, depth + 2) for k, v in value.items()}
    if key in _MANY and isinstance(value, list):
        return [normalise_schema(part, depth + 2) for part in value]
    if key in _ONE:
        # `{}` and `{"not": {}}` as booleans where those are the usual form.
        canonical = normalise_schema(value, depth + 1)
        if canonical == {} and key in _SPARE:
            return True
        return False if canonical == _NEVER and (key in _SPARE or key == "items") else canonical
    if key in ("description", "title") and isinstance(value, str):
        return normalise_prose(value) or None
    if key == "required" and _are_all_strings(value):
        return sorted({normalise_string(v) for v in value}) or None
    if key == "type" and value and _are_all_strings(value):
        kinds = sorted({normalise_string(v) for v in value})
        return kinds if len(kinds) > 1 else kinds[0]
    if key in ("dependentRequired", "dependencies") and isinstance(value, Mapping):
        return {
            normalise_string(str(k)): sorted({normalise_string(name) for name in v})
            if _are_all_strings(v)
            else normalise_schema(v, depth + 2)
            for k, v in value.items()
        }
    return normalise_value(value, depth + 1)


def normalise_value(value: Any, depth: int) -> Any:
    if isinstance(value, str):
        return normalise_string(value)
    if isinstance(value, bool) or value is None:
        return value
    if isinstance(value, int):
        return value if abs(value) <= _LARGEST_EXACT else _round_double(value)
    if isinstance(value, float):
        if not math.isfinite(value):
            raise NonCanonicalValue(f"{value} is not a JSON number")
        return int(value) if value.is_integer() and abs(value) <= _LARGEST_EXACT else value
    _check_depth(depth)
    if isinstance(value, Mapping):
        return {normalise_string(str(k)): normalise_value(v, depth + 1) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [normalise_value(v, depth + 1) for v in value]
    raise NonCanonicalValue(f"{type(value).__name__} is not a JSON value")


def _round_double(value: int) -> float:
    try:
        return float(value)
    except OverflowError:
        raise NonCanonicalValue("an integer too large for any JSON reader") from None


def _check_depth(depth: int) -> None:
    if depth > _MAX_DEPTH:
        raise NonCanonicalValue(f"nested deeper than {_MAX_DEPTH} levels")


def normalise_string(text: str) -> str:
    """Lone surrogates cannot be written as UTF-8; they become U+FFFD."""
    if text.isascii():
        return text
    return text.encode("utf-8", "surrogatepass").decode("utf-8", "replace")


def normalise_prose(text: str) -> str:
    text = normalise_string(text).replace("\r\n", "\n").replace("\r", "\n").strip(" \t\n")
    if "\n" not in text:
        return _BLANKS.sub(" ", text)
    first, *lines_after = [_BLANKS.sub(" ", line.rstrip(" \t")) for line in text.split("\n")]
    margin = _find_margin([line for line in lines_after if line])
    lines = [first]
    for line in lines_after:
        if line or lines[-1]:
            lines.append(line[margin:])
    return "\n".join(lines)


def _find_margin(lines: list[str]) -> int:
    """How much white space all lines begin with, blank for blank."""
    least, most = min(lines), max(lines)  # all others lie between, so share what these two share
    for place, (character, other) in enumerate(zip(least, most, strict=False)):
        if character != other or character not in " \t":
            return place
    return 0


def is_named_within(schema: Any) -> bool:
    """Whether some `$ref` is not of the form `#…`, so that it may rest on the root's `$id`."""
    stack = [schema]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            target = node.get("$ref")
            if isinstance(target, str) and not target.startswith("#"):
                return True
            stack.extend(node.values())
        elif isinstance(node, list):
            stack.extend(node)
    return False


def _are_all_strings(value: Any) -> bool:
    return isinstance(value, list) and all(isinstance(v, str) for v in value)


CANON_VERSION = 2
DIGEST_PREFIX = "c1:"  # names the kind of digest, not the version of the form

FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
SCHEMA_FIELDS = ("inputSchema", "outputSchema")


LONGEST_NAME = 128  # characters of a tool's name, as the protocol has it
MOST_TOOLS = 2000  # that are taken of one server
TWICE = "its name was listed before"


class ContractError(ValueError):
    """A tool that has no contract: the message says which part is missing or malformed."""


def canonicalize_contract(tool: Contract) -> dict[str, Any]:
    """The contract of one raw `tools/list` entry: a new dict with canonical content.

    Absent and null fields are dropped; integers that no double can hold become the nearest double
    (as every JavaScript peer reads them). A contract given back in is returned unchanged.
    Raises ContractError when there is no name or a very long one, no object schema, or a value that
    JSON cannot hold.
    """
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ContractError(f"tool without a usable name: found {name!r}, expected a string")
    if len(name) > LONGEST_NAME:
        length = f"its name has {len(name):,} characters, at most {LONGEST_NAME} are taken"
        raise ContractError(f"tool {name[:80]!r}: {length}")
    contract: dict[str, Any] = {}
    for field in FIELDS:
        value = tool.get(field)
        if value is None:
            continue
        try:
            canonical = _canonicalize_field(field, value)
        except NonCanonicalValue as error:
            where = f"{field}{error.path}"[:120]
            raise ContractError(f"tool {name[:80]!r}: {where}: {error.reason}") from None
        if canonical is not None:
            contract[field] = canonical
    if "inputSchema" not in contract:
        raise ContractError(f"tool {name[:80]!r}: no inputSchema, expected an object schema")
    return contract


def index_contracts(tools: Iterable[Any]) -> tuple[dict[str, dict[str, Any]], dict[int, str]]:
    """(contracts of a raw list by name, the first of each; place in the list -> why that entry has
    no contract of its own)."""
    contracts: dict[str, dict[str, Any]] = {}
    problems: dict[int, str] = {}
    for place, tool in enumerate(tools):
        try:
            body = canonicalize_contract(tool)
        except (ContractError, AttributeError) as error:
            problems[place] = str(error)
            continue
        if contracts.setdefault(body["name"], body) is not body:
            problems[place] = TWICE
    return contracts, problems


def find_tool_problem(tool: Any) -> str | None:
    """Why the definition of a tool, in any vendor's shape, is no contract; None where it is one. A
    tool without a schema takes no arguments."""
    if not isinstance(tool, Mapping):
        return f"{type(tool).__name__}, no tool"
    tool = next(
        (tool[k] for k in ("function", "contract") if isinstance(tool.get(k), Mapping)), tool
    )
    if not tool.get("name") or not isinstance(tool["name"], str):
        return "an object without a name, no tool"
    schemas = [
        tool[k] for k in ("inputSchema", "input_schema", "parameters") if tool.get(k) is not None
    ]
    try:
        canonicalize_contract({**tool, "inputSchema": schemas[0] if schemas else {}})
    except ContractError as error:
        return str(error)
    return None


def contract_digest(tool: Contract) -> str:
    """`c1:<sha256>` over the canonical JSON of the tool's contract."""
    return DIGEST_PREFIX + digest(canonicalize_contract(tool))


def tool_text(contract: Contract, view: str = "full") -> str:
    """The one text of a tool for every embedding and index.

    view: "name" (the name, split into words), "brief" (name and description) or "full" (also
    parameter names with their descriptions).
    """
    words = " ".join(_split_words(contract["name"]))
    if view == "name":
        return words
    title = contract.get("title", "")
    head = words if title.lower() in ("", words.lower()) else f"{words}: {title}"
    lines = [head, contract.get("description", "")]
    if view == "full":
        for name, schema in iterate_parameters(contract):
            about = schema.get("description", "") if isinstance(schema, Mapping) else ""
            lines.append(f"{name}: {' '.join(str(about).split())}".rstrip(": "))
    elif view != "brief":
        raise ValueError(f"unknown view {view!r}: expected 'name', 'brief' or 'full'")
    return "\n".join(line for line in lines if line)


def iterate_parameters(contract: Contract) -> Iterator[tuple[str, Any]]:
    """(name, schema) of each top-level parameter, in the order of the canonical form."""
    schema = contract.get("inputSchema")
    properties = schema.get("properties") if isinstance(schema, Mapping) else None
    if isinstance(properties, Mapping):
        yield from sorted(properties.items())


def _canonicalize_field(field: str, value: Any) -> Any:
    """The canonical content of one field; None where there is nothing in it."""
    if field in SCHEMA_FIELDS:
        if not isinstance(value, Mapping):
            raise NonCanonicalValue(f"{type(value).__name__}, expected an object")
        if "$id" in value and not is_named_within(value):
            value = {key: part for key, part in value.items() if key != "$id"}
        return normalise_schema(value, 0)
    if field == "annotations":
        if not isinstance(value, Mapping):
            return None
        hints = normalise_value({key: hint for key, hint in value.items() if hint is not None}, 0)
        if isinstance(hints.get("title"), str):
            hints["title"] = normalise_prose(hints["title"])
        return {key: hint for key, hint in hints.items() if hint != ""} or None
    if not isinstance(value, str):
        return None
    return (normalise_string(value) if field == "name" else normalise_prose(value)) or None


def _split_words(name: str) -> list[str]:
    """`getUserByID`, `get-user_by.id` -> get user by id (letters and digits kept)."""
    words = [""]
    for before, char, after in zip(" " + name, name, name[1:] + " ", strict=False):
        if not char.isalnum():
            words.append("")
            continue
        starts = char.isupper() and (before.islower() or (before.isupper() and after.islower()))
        if starts:
            words.append("")
        words[-1] += char.lower()
    return [word for word in words if word]
