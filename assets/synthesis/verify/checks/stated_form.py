"""Values that are not in the form which their description states: JSON, base64."""

import json
import re
from collections.abc import Iterable

from assets.synthesis.common.contract_reading import (
    get_input_schema,
    get_properties,
    resolve_schema,
)
from assets.synthesis.verify.finding import Finding
from warehouse.json_types import Contract, JsonObject

# What a description begins with is the value's form; further on it may be of what the tool makes.
_BEGINS = r"\W*(?:optional\W+)?(?:(?:a|an|the)\s+)?(?:valid\s+)?"
_JSON = re.compile(rf"{_BEGINS}JSON[ -](?:string|array|object|text|encoded)\b", re.IGNORECASE)
_OTHER = re.compile(r"\bor\b", re.IGNORECASE)  # the form is one of several
_BASE64 = re.compile(rf"{_BEGINS}base64\b", re.IGNORECASE)
_NAMED = re.compile(r"base64", re.IGNORECASE)
_ENCODED = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_\-\r\n]+={0,2}")
_SENTENCE = re.compile(r".{0,300}?(?=[.!?](?:\s|$)|\n|$)|.{0,300}", re.DOTALL)


def find_other_form(contract: Contract, arguments: JsonObject) -> Iterable[Finding]:
    """Texts of a call that cannot be read as what the description of their parameter says."""
    root, properties = get_input_schema(contract), get_properties(contract)
    for name, value in arguments.items():
        of = resolve_schema(properties.get(name) or {}, root)
        said = [of.get("default"), of.get("const"), *_list_choices(of)]
        if not isinstance(value, str) or not value or value in said:
            continue
        form = find_stated_form(str(name), str(of.get("description") or ""))
        if form is not None and not _FORMS[form](value):
            reason = f"{value[:60]!r} is not {form}, as the parameter's description says"
            yield Finding("bad_value", str(name)[:200], reason)


def find_stated_form(name: str, about: str) -> str | None:
    """JSON or base64, where a text parameter's name or the beginning of its description says so."""
    first = _SENTENCE.match(about)
    if first and _OTHER.search(first[0]):
        return None
    if _NAMED.search(name) or _BASE64.match(about):
        return "base64"
    return "JSON" if _JSON.match(about) else None


def _list_choices(of: JsonObject) -> list[object]:
    """The values that a schema allows, where it lists them."""
    listed = of.get("enum")
    return listed if isinstance(listed, list) else []


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


_FORMS = {"JSON": _is_json, "base64": lambda value: _ENCODED.fullmatch(value) is not None}
