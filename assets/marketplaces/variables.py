"""Variables: variables and headers of a server, without the values of secrets.

What belongs here: every form of an `env` or `headers` object, and which of its values are kept.
What does not: the entry they stand in (`config.py`).
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from assets.marketplaces.listing import EnvVar, Header
from assets.marketplaces.places import unfilled
from assets.marketplaces.redact import MARK, is_secret_name, redact


def variables(found: Any, kind: type[EnvVar] | type[Header]) -> list[Any]:
    """The variables of an `env` or `headers` object. A secret or an unfilled value becomes a
    required variable without a value; any other value is the default."""
    made = {}
    for name, text in _pairs(found):
        open_ = unfilled(text) or MARK in text
        secret = _is_secret(name, text)
        keep = not secret and not open_ and text
        made[name] = kind(
            name=name, required=secret or open_, secret=secret, default=text if keep else None
        )
    return [made[name] for name in sorted(made)]


def account_flags(inputs: tuple[EnvVar, ...] | tuple[Header, ...]) -> set[str]:
    """{"needs_account"} where a secret is required."""
    return {"needs_account"} if any(one.secret and one.required for one in inputs) else set()


def as_text(value: Any) -> str:
    """A JSON value as a command line or a variable holds it: `true`, `8080`, "" for null."""
    if isinstance(value, str):
        return value
    try:
        return "" if value is None else json.dumps(value, ensure_ascii=False)
    except (TypeError, ValueError, RecursionError):
        return str(type(value).__name__)


def _pairs(found: Any) -> Iterator[tuple[str, str]]:
    """(name, value) of an object, of a list of {name, value}, or of a list of "NAME=value"."""
    if isinstance(found, Mapping):
        for name, value in found.items():
            yield redact(str(name)), as_text(value)
    for one in found if isinstance(found, list) else ():
        if isinstance(one, str):
            name, _, value = one.partition("=")
            yield redact(name), value
        elif isinstance(one, Mapping) and isinstance(one.get("name") or one.get("key"), str):
            yield redact(str(one.get("name") or one.get("key"))), as_text(one.get("value"))


def _is_secret(name: str, text: str) -> bool:
    if text.lower() in ("true", "false"):
        return False  # AUTH_ENABLED
    return is_secret_name(name) or redact(text) != text or MARK in text


def value_flags(found: Any) -> set[str]:
    return {"placeholder"} if any(unfilled(text) for _, text in _pairs(found)) else set()
