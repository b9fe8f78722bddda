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

_JSON = re.compile(r"\bJSON[ -](?:string|array|object|text|encoded)\b", re.IGNORECASE)
_OTHER = re.compile(r"\bor\b", re.IGNORECASE)  # the form is one of several
_BASE64 = re.compile(r"base64", re.IGNORECASE)
_ENCODED = re.compile(r"(?:data:[^,]{0,200},)?[A-Za-z0-9+/_\-\r\n]+={0,2}")
_FIRST = 60  # characters in which a description says what the value is


def find_other_form(contract: Contract, arguments: JsonObject) -> Iterable[Finding]:
    """Texts of a call that cannot be read as what the description of their parameter says."""
    root, properties = get_input_schema(contract), get_properties(contract)
    for name, value in arguments.items():
        of = resolve_schema(properties.get(name) or {}, root)
        if not isinstance(value, str) or not value or value == of.get("default"):
            continue
        form = find_stated_form(str(name), str(of.get("description") or ""))
        if form is not None and not _FORMS[form](value):
            reason = f"{value[:60]!r} is not {form}, as the parameter's description says"
            yield Finding("bad_value", str(name)[:200], reason)


def find_stated_form(name: str, about: str) -> str | None:
    """JSON or base64, where a text parameter's name or the beginning of its description says so."""
    begins = about[:_FIRST]
    if _OTHER.search(begins):
        return None
    if _BASE64.search(name) or _BASE64.search(begins):
        return "base64"
    return "JSON" if _JSON.search(begins) else None


def _is_json(value: str) -> bool:
    try:
        json.loads(value)
    except (ValueError, RecursionError):
        return False
    return True


_FORMS = {"JSON": _is_json, "base64": lambda value: _ENCODED.fullmatch(value) is not None}
