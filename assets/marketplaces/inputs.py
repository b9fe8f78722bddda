"""Inputs: what a user must give a server, as a marketplace declares it.

What belongs here: server.json's variables, headers and arguments with their `{templates}`, and the
properties of a JSON Schema of settings. Nothing here keeps the value of a secret.
What does not: an `env` object of plain values (`config.py`) and which launch they serve.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from assets.marketplaces.listing import EnvVar, Header
from assets.marketplaces.oldwords import option_words
from assets.marketplaces.redact import MARK, is_secret_name, redact

Input = TypeVar("Input", EnvVar, Header)

_BRACED = re.compile(r"\{([A-Za-z_][\w.\-]{0,80})\}")
_WHOLE_OPTION = re.compile(r"--?[A-Za-z][\w\-]* +[^\s\-]")  # `-m module` as one text
_FORMATS = ("string", "number", "boolean", "filepath")


@dataclass(frozen=True)
class Filled:
    """A template with its declared variables filled in; `open` ones are left for the user."""

    text: str
    open: tuple[str, ...] = ()
    required: bool = False  # an open one is
    secret: bool = False  # one of its variables is


@dataclass(frozen=True)
class Arguments:
    """Words of a command line; one the user must supply stands as `{name:format}`."""

    words: tuple[str, ...] = ()
    needs_account: bool = False


def text(value: Any) -> str:
    """A JSON scalar as a text, "" for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def objects(value: Any, what: str) -> list[dict[str, Any]]:
    """A list of JSON objects; absent is empty. Raises ValueError that names `what` it is not."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(one, dict) for one in value):
        raise ValueError(f"{what} is not a list of objects")
    return value


def is_secret(name: str, declared: Any, value: str = "", kind: str = "") -> bool:
    """Whether an input is secret: as declared, else by its name, always by a value that is one."""
    if declared is True or (value and redact(value) != value):
        return True
    harmless = value.lower() in ("true", "false") or value.isdigit()
    if declared is False or harmless or kind in ("boolean", "number", "integer", "filepath"):
        return False
    return is_secret_name(name)


def declared(one: Mapping[str, Any], kind: type[Input]) -> Input:
    """One environment variable or header of server.json. Raises ValueError where it has no name."""
    name = text(one.get("name")).strip()
    if not name:
        raise ValueError("an input has no name")
    value = _stated(one)
    filled = fill(value, one.get("variables"))
    secret = is_secret(name, one.get("isSecret"), value, text(one.get("format"))) or filled.secret
    keep = value and not (secret or filled.open or MARK in filled.text)
    about = text(one.get("description"))
    if filled.open and secret:  # `Bearer {token}`: how the secret is sent, without the secret
        about = f"{about} (sent as {filled.text!r})".strip()
    return kind(
        name=redact(name),
        required=one.get("isRequired") is True or filled.required,
        secret=secret,
        default=filled.text if keep else None,
        description=redact(about) or None,
    )


def fill(template: str, variables: Any) -> Filled:
    """A template with each declared variable replaced by its value or default. A secret is never
    filled in, and a name that is not declared stays as it is."""
    known = variables if isinstance(variables, Mapping) else {}
    left: list[str] = []
    secrets: list[str] = []

    def put(found: re.Match[str]) -> str:
        name, one = found[1], known.get(found[1])
        if not isinstance(one, Mapping):
            return found[0]
        value = _stated(one)
        if is_secret(name, one.get("isSecret"), value, text(one.get("format"))):
            secrets.append(name)
        elif value:
            return value
        left.append(name)
        return found[0]

    filled = _BRACED.sub(put, template)
    required = any(known[name].get("isRequired") is True for name in left)
    return Filled(redact(filled), tuple(left), required, bool(secrets))


def arguments(found: Any, what: str) -> Arguments:
    """Arguments of server.json as words. An optional one without a value is left out. Raises
    ValueError where they are not a list of objects."""
    words: list[str] = []
    account = False
    for one in objects(found, what):
        made = _argument(one)
        words += made.words
        account = account or made.needs_account
    return Arguments(_without_secrets(words), account)


def _argument(one: Mapping[str, Any]) -> Arguments:
    name, value = text(one.get("name")), _stated(one)
    named = one.get("type") == "named" or (one.get("type") != "positional" and bool(name))
    label = text(one.get("valueHint")) or name
    needed = one.get("isRequired") is True
    kind = text(one.get("format"))
    looks = redact(value) != value  # `NAME=secret`: the word is cleaned, not replaced
    secret = is_secret(label, one.get("isSecret"), "" if looks else value, kind)
    filled = fill(value, one.get("variables"))
    account = (secret and (needed or bool(filled.open))) or (filled.secret and filled.required)
    if filled.open and one.get("isRequired") is False and not filled.required:
        return Arguments()
    if secret and value and not filled.open and value != label:  # `-e API_KEY` says a name
        word: str | None = place(label, kind)
    elif value:
        word = _typed(filled, one.get("variables"))
    else:
        word = place(label, kind) if needed else None
    if not named:
        whole = word is not None and word == value and _WHOLE_OPTION.match(word)
        return Arguments(
            tuple(option_words(word or "")) if whole else (word,) if word is not None else (),
            account,
        )
    if word is None:
        return Arguments((name,) if _is_switch(one) else (), account)
    if value == name and value:  # the oldest records repeat the whole option as its value
        return Arguments(tuple(option_words(value)), account)
    return Arguments((name + word,) if name.endswith("=") else (name, word), account)


def place(label: str, kind: str = "string") -> str:
    """`{name:format}`, the place of a value that the user must supply."""
    name = re.sub(r"\W+", "_", label.lstrip("-")).strip("_")
    name = name if name[:1].isalpha() else f"value_{name}".rstrip("_")
    return f"{{{name}:{kind if kind in _FORMATS else 'string'}}}"


def schema_inputs(schema: Any) -> list[tuple[EnvVar, Mapping[str, Any]]]:
    """Each property of a JSON Schema of settings as an input, with the property itself."""
    if not isinstance(schema, Mapping):
        return []
    properties, required = schema.get("properties"), schema.get("required")
    needed = [one for one in required if isinstance(one, str)] if isinstance(required, list) else []
    made = []
    for name, one in (properties if isinstance(properties, Mapping) else {}).items():
        one = one if isinstance(one, Mapping) else {}
        value, kind = text(one.get("default")), text(one.get("type"))
        marked = one.get("format") == "password" or one.get("writeOnly") is True
        secret = is_secret(name, marked or None, value, kind)
        made.append(
            (
                EnvVar(
                    name=redact(name),
                    required=name in needed,
                    secret=secret,
                    default=value if value and not secret and MARK not in value else None,
                    description=redact(text(one.get("description"))) or None,
                ),
                one,
            )
        )
    return made


def _stated(one: Mapping[str, Any]) -> str:
    """The value that is set, else the default."""
    return text(one.get("value")) or text(one.get("default"))


def _typed(filled: Filled, variables: Any) -> str:
    """The filled template with the format of each open variable: `dir={path:filepath}`."""
    word = filled.text
    for name in filled.open:
        kind = text(variables[name].get("format"))
        if kind in _FORMATS:
            word = word.replace(f"{{{name}}}", f"{{{name}:{kind}}}")
    return word


def _is_switch(one: Mapping[str, Any]) -> bool:
    """An option without a value, such as `--verbose`: nothing about it speaks of a value."""
    about = ("isRequired", "valueHint", "placeholder", "choices", "variables", "isSecret", "format")
    return bool(one.get("name")) and all(one.get(key) is None for key in about)


def _without_secrets(words: list[str]) -> tuple[str, ...]:
    """The words redacted, and a value that follows `--api-key` or stands in `API_KEY=…` replaced
    by a place: no pattern can tell a short key by its looks."""
    made: list[str] = []
    for word in words:
        before = made[-1] if made else ""
        name, equals, value = word.partition("=")
        if before.startswith("--") and "=" not in before and _holds_secret(before, word):
            made.append(place(before))
        elif equals and re.fullmatch(r"-{0,2}[\w\-]{1,80}", name) and _holds_secret(name, value):
            made.append(f"{name}={place(name)}")
        else:
            made.append(redact(word))
    return tuple(made)


def _holds_secret(name: str, value: str) -> bool:
    plain = value and not value.startswith("-") and not re.search(r"[{<$]|\[redacted\]", value)
    return bool(plain) and is_secret(name, None, value)
