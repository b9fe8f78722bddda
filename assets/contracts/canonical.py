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
are not shown them (a member that differs from a field by case alone is a finding, `behaviour.py`).

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

from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from assets.contracts.schema.normalise import (
    Misfit,
    is_named_within,
    normalise_prose,
    normalise_schema,
    normalise_string,
    normalise_value,
)
from warehouse.json_types import Contract, JsonObject
from warehouse.storage.digest import digest

CANON_VERSION = 2
DIGEST_PREFIX = "c1:"  # names the kind of digest, not the version of the form

FIELDS = ("name", "title", "description", "inputSchema", "outputSchema", "annotations")
SCHEMA_FIELDS = ("inputSchema", "outputSchema")


MOST_TOOLS = 2000  # that are taken of one server
TWICE = "its name was listed before"


class ContractError(ValueError):
    """A tool that has no contract: the message says which part is missing or malformed."""


def canonicalize_contract(tool: Contract) -> dict[str, Any]:
    """The contract of one raw `tools/list` entry: a new dict with canonical content.

    Absent and null fields are dropped; integers that no double can hold become the nearest double
    (as every JavaScript peer reads them). A contract given back in is returned unchanged.
    Raises ContractError when there is no name, no object schema, or a value JSON cannot hold.
    """
    name = tool.get("name")
    if not isinstance(name, str) or not name.strip():
        raise ContractError(f"tool without a usable name: found {name!r}, expected a string")
    kept: dict[str, Any] = {}
    for field in FIELDS:
        value = tool.get(field)
        if value is None:
            continue
        try:
            made = _canonicalize_field(field, value)
        except Misfit as error:
            where = f"{field}{error.path}"[:120]
            raise ContractError(f"tool {name[:80]!r}: {where}: {error.reason}") from None
        if made is not None:
            kept[field] = made
    if "inputSchema" not in kept:
        raise ContractError(f"tool {name[:80]!r}: no inputSchema, expected an object schema")
    return kept


def index_contracts(tools: Iterable[Any]) -> tuple[dict[str, dict[str, Any]], dict[int, str]]:
    """(contracts of a raw list by name, the first of each; place in the list -> why that entry has
    no contract of its own)."""
    found: dict[str, dict[str, Any]] = {}
    problems: dict[int, str] = {}
    for place, tool in enumerate(tools):
        try:
            body = canonicalize_contract(tool)
        except (ContractError, AttributeError) as error:
            problems[place] = str(error)
            continue
        if found.setdefault(body["name"], body) is not body:
            problems[place] = TWICE
    return found, problems


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
    properties = contract.get("inputSchema", {}).get("properties")
    if isinstance(properties, Mapping):
        yield from sorted(properties.items())


def _canonicalize_field(field: str, value: Any) -> Any:
    """The canonical content of one field; None where there is nothing in it."""
    if field in SCHEMA_FIELDS:
        if not isinstance(value, Mapping):
            raise Misfit(f"{type(value).__name__}, expected an object")
        if "$id" in value and not is_named_within(value):
            value = {key: part for key, part in value.items() if key != "$id"}
        return normalise_schema(value, 0)
    if field == "annotations":
        return _canonicalize_annotations(value) if isinstance(value, Mapping) else None
    if not isinstance(value, str):
        return None
    return (normalise_string(value) if field == "name" else normalise_prose(value)) or None


def _canonicalize_annotations(value: JsonObject) -> dict[str, Any] | None:
    hints = normalise_value({key: hint for key, hint in value.items() if hint is not None}, 0)
    if isinstance(hints.get("title"), str):
        hints["title"] = normalise_prose(hints["title"])
    return {key: hint for key, hint in hints.items() if hint != ""} or None


def _split_words(name: str) -> list[str]:
    """`getUserByID`, `get-user_by.id` -> get user by id (letters and digits kept)."""
    out, current = [], ""
    for before, char, after in zip(" " + name, name, name[1:] + " ", strict=False):
        if not char.isalnum():
            out, current = [*out, current], ""
            continue
        starts = char.isupper() and (before.islower() or (before.isupper() and after.islower()))
        if starts:
            out, current = [*out, current], ""
        current += char.lower()
    return [word for word in [*out, current] if word]
