"""Inputs and arguments: what a user must give a server, as a marketplace declares it."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from assets.marketplaces.listing import EnvVar
from warehouse.sanitize.redact import MARK, is_secret_name, redact

Input = TypeVar("Input", bound=EnvVar)

_BRACED = re.compile(r"\{([A-Za-z_][\w.\-]{0,80})\}")
_OPTION = re.compile(r"(?<!\s)\s+(?=--?[A-Za-z])")  # one start of each run of white space
_WHOLE_OPTION = re.compile(r"--?[A-Za-z][\w\-]* +[^\s\-]")  # `-m module` as one text
_FORMATS = ("string", "number", "boolean", "filepath")


def read_string(value: Any) -> str:
    """A JSON scalar as a text, "" for anything else."""
    if isinstance(value, bool):
        return "true" if value else "false"
    return str(value) if isinstance(value, str | int | float) else ""


def as_object(value: Any) -> dict[str, Any]:
    """A JSON object, or an empty one for any other value."""
    return value if isinstance(value, dict) else {}


def list_objects(value: Any) -> list[dict[str, Any]]:
    """The objects of a JSON list, none for any other value."""
    return [item for item in value if isinstance(item, dict)] if isinstance(value, list) else []


def require_objects(value: Any, what: str) -> list[dict[str, Any]]:
    """A list of JSON objects; absent is empty. Raises ValueError that names `what` it is not."""
    if value is None:
        return []
    if not isinstance(value, list) or not all(isinstance(item, dict) for item in value):
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


@dataclass(frozen=True)
class InputValue:
    """A template with its declared variables filled in; `open` ones are left for the user."""

    text: str
    open: tuple[str, ...] = ()
    required: bool = False  # an open one is
    secret: bool = False  # one of its variables is


def fill(template: str, variables: Any) -> InputValue:
    """A template with each declared variable replaced by its value or default. A secret is never
    filled in, and a name that is not declared stays as it is."""
    variables = variables if isinstance(variables, Mapping) else {}
    open_names: list[str] = []
    secrets: list[str] = []

    def replace_variable(match: re.Match[str]) -> str:
        name, variable = match[1], variables.get(match[1])
        if not isinstance(variable, Mapping):
            return match[0]
        value = read_stated(variable)
        if is_secret(name, variable.get("isSecret"), value, read_string(variable.get("format"))):
            secrets.append(name)
        elif value:
            return value
        open_names.append(name)
        return match[0]

    filled = _BRACED.sub(replace_variable, template)
    required = any(variables[name].get("isRequired") is True for name in open_names)
    return InputValue(redact(filled), tuple(open_names), required, bool(secrets))


def read_stated(item: Mapping[str, Any]) -> str:
    """The value that is set, else the default."""
    return read_string(item.get("value")) or read_string(item.get("default"))


def read_declared(item: Mapping[str, Any], kind: type[Input]) -> Input:
    """One environment variable or header of server.json. Raises ValueError where it has no name."""
    name = read_string(item.get("name")).strip()
    if not name:
        raise ValueError("an input has no name")
    value, form = read_stated(item), read_string(item.get("format"))
    filled = fill(value, item.get("variables"))
    secret = filled.secret or is_secret(name, item.get("isSecret"), value, form)
    keep = value and not (secret or filled.open or MARK in filled.text)
    about = read_string(item.get("description"))
    if filled.open and secret:  # `Bearer {token}`: how the secret is sent, without the secret
        about = f"{about} (sent as {filled.text!r})".strip()
    return kind(
        name=redact(name),
        required=_is_needed(item) or filled.required,
        secret=secret,
        default=filled.text if keep else None,
        description=redact(about) or None,
    )


def _is_needed(item: Mapping[str, Any]) -> bool:
    """Whether an input is required; some authors write `required`."""
    required = item.get("isRequired")
    return (item.get("required") if required is None else required) is True


def read_schema_inputs(schema: Any) -> list[tuple[EnvVar, Mapping[str, Any]]]:
    """Each property of a JSON Schema of settings as an input, with the property itself."""
    required = as_object(schema).get("required")
    names = required if isinstance(required, list) else []
    results = []
    for name, member in as_object(as_object(schema).get("properties")).items():
        member = as_object(member)
        value, kind = read_string(member.get("default")), read_string(member.get("type"))
        marked = member.get("format") == "password" or member.get("writeOnly") is True
        secret = is_secret(name, marked or None, value, kind)
        variable = EnvVar(
            name=redact(name),
            required=name in names,
            secret=secret,
            default=value if value and not secret and MARK not in value else None,
            description=redact(read_string(member.get("description"))) or None,
        )
        results.append((variable, member))
    return results


@dataclass(frozen=True)
class PackageArguments:
    """Words of a command line; one the user must supply stands as `{name:format}`."""

    words: tuple[str, ...] = ()
    needs_account: bool = False


def read_arguments(arguments: Any, what: str) -> PackageArguments:
    """Arguments of server.json as words. An optional one without a value is left out. Raises
    ValueError where they are not a list of objects."""
    parsed = [_read_argument(item) for item in require_objects(arguments, what)]
    words: list[str] = []
    for word in (word for argument in parsed for word in argument.words):
        # What follows `--api-key` or stands in `API_KEY=…`: no pattern tells a short key by its
        # looks.
        before = words[-1] if words else ""
        name, equals, value = word.partition("=")
        if before.startswith("--") and "=" not in before and _holds_secret(before, word):
            words.append(make_place(before))
        elif equals and re.fullmatch(r"-{0,2}[\w\-]{1,80}", name) and _holds_secret(name, value):
            words.append(f"{name}={make_place(name)}")
        else:
            words.append(redact(word))
    return PackageArguments(tuple(words), any(argument.needs_account for argument in parsed))


def _holds_secret(name: str, value: str) -> bool:
    plain = value and not value.startswith("-") and not re.search(r"[{<$]|\[redacted\]", value)
    return bool(plain) and is_secret(name, None, value)


def _read_argument(item: Mapping[str, Any]) -> PackageArguments:
    name, value = read_string(item.get("name")), read_stated(item)
    is_named = item.get("type") == "named" or (item.get("type") != "positional" and bool(name))
    label = read_string(item.get("valueHint")) or name
    needed = _is_needed(item)
    kind = read_string(item.get("format"))
    looks = redact(value) != value  # `NAME=secret`: the word is cleaned, not replaced
    secret = is_secret(label, item.get("isSecret"), "" if looks else value, kind)
    filled = fill(value, item.get("variables"))
    account = (secret and (needed or bool(filled.open))) or (filled.secret and filled.required)
    if filled.open and item.get("isRequired") is False and not filled.required:
        return PackageArguments()
    word: str | None = make_place(label, kind) if needed else None
    if secret and value and not filled.open and value != label:  # `-e API_KEY` says a name
        word = make_place(label, kind)
    elif value:
        word = filled.text
        for variable in filled.open:  # `dir={path:filepath}`
            form = read_string(item["variables"][variable].get("format"))
            if form in _FORMATS:
                word = word.replace(f"{{{variable}}}", f"{{{variable}:{form}}}")
    if not is_named:
        if word is not None and word == value and _WHOLE_OPTION.match(word):
            return PackageArguments(_split_options(word), account)
        return PackageArguments((word,) if word is not None else (), account)
    if word is None:
        return PackageArguments((name,) if _is_switch(item) else (), account)
    if value == name and value:  # some records repeat the whole option as its value
        return PackageArguments(_split_options(value), account)
    return PackageArguments((name + word,) if name.endswith("=") else (name, word), account)


def _split_options(text: str) -> tuple[str, ...]:
    """`--dir my folder --level 3` as options and their values; a value goes on to the next
    option."""
    options = _OPTION.split(text.strip())
    return tuple(word.strip() for option in options for word in option.split(" ", 1))


def make_place(label: str, kind: str = "string") -> str:
    """`{name:format}`, the place of a value that the user must supply."""
    name = re.sub(r"\W+", "_", label.lstrip("-")).strip("_")
    name = name if name[:1].isalpha() else f"value_{name}".rstrip("_")
    return f"{{{name}:{kind if kind in _FORMATS else 'string'}}}"


def _is_switch(item: Mapping[str, Any]) -> bool:
    """An option without a value, such as `--verbose`: nothing about it speaks of a value."""
    about = ("isRequired", "valueHint", "placeholder", "choices", "variables", "isSecret", "format")
    return bool(item.get("name")) and all(item.get(key) is None for key in about)
