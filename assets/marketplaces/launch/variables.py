"""Variables: variables and headers of a server, without the values of secrets."""

import json
import re
from collections.abc import Iterator, Mapping
from typing import Any

from assets.marketplaces.listing import EnvVar
from warehouse.sanitize.redact import MARK, is_secret_name, redact
from warehouse.sanitize.scrubber import has_password, is_unfilled

_SENT = re.compile(r"(?i)\s*(?:bearer|basic)\s+\S")  # how a header carries a secret


def read_variables(found: Any, kind: type[EnvVar]) -> list[Any]:
    """The variables of an `env` or `headers` object. A secret or an unfilled value becomes a
    required variable without a value; any other value is the default."""
    made = {}
    for name, text in _list_pairs(found):
        open_ = _is_open(name, text) or MARK in text
        secret = _is_secret(name, text)
        keep = not secret and not open_ and text
        made[name] = kind(
            name=name, required=secret or open_, secret=secret, default=text if keep else None
        )
    return [made[name] for name in sorted(made)]


def find_account_flags(inputs: tuple[EnvVar, ...]) -> set[str]:
    """{"needs_account"} where a secret is required."""
    return {"needs_account"} if any(item.secret and item.required for item in inputs) else set()


def make_text(value: Any) -> str:
    """A JSON value as a command line or a variable holds it: `true`, `8080`, "" for null."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(type(value).__name__)


def _list_pairs(found: Any) -> Iterator[tuple[str, str]]:
    """(name, value) of an object, of a list of {name, value}, or of a list of "NAME=value"."""
    if isinstance(found, Mapping):
        for name, value in found.items():
            yield redact(str(name)), make_text(value)
    for item in found if isinstance(found, list) else ():
        if isinstance(item, str):
            name, _, value = item.partition("=")
            yield redact(name), value
        elif isinstance(item, Mapping) and isinstance(item.get("name") or item.get("key"), str):
            yield redact(str(item.get("name") or item.get("key"))), make_text(item.get("value"))


def _is_secret(name: str, text: str) -> bool:
    if text.lower() in ("true", "false"):
        return False  # AUTH_ENABLED
    if is_secret_name(name) or redact(text) != text or MARK in text:
        return True
    return bool(_SENT.match(text) or has_password(text)) or _is_of_secrets(text)


def _is_open(name: str, text: str) -> bool:
    """A value left to the user; many write the variable's own name for it."""
    return is_unfilled(text) or (text == name and name.upper() == name)


def _is_of_secrets(text: str) -> bool:
    """Whether a value is JSON with a secret in it, such as a set of headers."""
    if not text.lstrip().startswith(("{", "[")):
        return False
    try:
        left = [json.loads(text)]
    except (ValueError, RecursionError):
        return False
    while left:
        one = left.pop()
        if isinstance(one, dict):
            named = [key for key, value in one.items() if isinstance(value, str) and value]
            if any(is_secret_name(key) for key in named):
                return True
        left += one.values() if isinstance(one, dict) else one if isinstance(one, list) else ()
    return False


def find_value_flags(found: Any) -> set[str]:
    """{"placeholder"} where a value is left to the user."""
    return {"placeholder"} if any(_is_open(*pair) for pair in _list_pairs(found)) else set()
