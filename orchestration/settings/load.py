"""Reading the settings in force, and saying of each unusable one what it is and the fix."""

import difflib
import json
import os
import re
import reprlib
import tomllib
from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any, get_args, get_origin

from pydantic import AliasChoices, ValidationError
from pydantic.fields import FieldInfo
from pydantic_settings import SettingsError as SourceError

from assets.marketplaces.installed import list_installed
from orchestration.settings.model import CONFIG, PREFIX, WORKDIR, Settings, config_path
from orchestration.settings.schema import KEYS, list_extra_names
from warehouse.errors import UnusableInput
from warehouse.ledger.database import URL

_UNKNOWN = ("Extra inputs", "Unexpected keyword")  # how Pydantic begins such a message
_INTERNAL = {CONFIG, WORKDIR, URL}


class SettingsError(UnusableInput):
    """A setting has an unknown name or an unusable value."""


def load_settings() -> Settings:
    """The settings in force. Raises SettingsError that names each unusable setting and the fix."""
    variables = set(list_known_names().values()) | _INTERNAL
    unknown = sorted(
        name
        for name in os.environ
        if name.upper().startswith(PREFIX) and name.upper() not in variables
    )
    if unknown:
        names = sorted(variables)
        raise SettingsError("\n".join(_explain_unknown(name, names) for name in unknown))
    _require_named_file(os.environ)
    wrong: list[str] = []
    try:
        if not (wrong := list(_list_untrue_numbers())):
            return Settings()  # type: ignore[call-arg]
    except ValidationError as error:
        wrong = explain_errors(error)
    except SourceError as error:
        wrong = [_explain_source(str(error))]
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        wrong = [f"{config_path()}: not TOML: {error}"]
    except OSError as error:
        wrong = [f"{config_path()}: {error.strerror}"]
    # Not inside the handlers: Pydantic's own error holds all that was given, secrets too, and a
    # traceback would show it as the cause.
    raise SettingsError("\n".join(" ".join(line.split()) for line in wrong))


def explain_errors(error: ValidationError, names: Mapping[str, str] | None = None) -> list[str]:
    """One line a wrong value; `names` calls settings by options instead of variables. A value is
    shown only where it is that setting's alone, and no secret."""
    return [
        _explain_error(item["loc"], item["msg"], item.get("input"), names or {})
        for item in error.errors(include_url=False)
    ]


@lru_cache
def list_known_names() -> dict[str, str]:
    extra = {
        f"marketplaces.{name}": PREFIX + f"marketplaces.{name}".replace(".", "__").upper()
        for name in list_extra_names()
    }
    ours = {name: _find_variable(name, field) for name, field in _walk_fields(Settings, ())}
    return ours | extra


@lru_cache
def list_secret_names() -> frozenset[str]:
    extra = (f"marketplaces.{name}" for name, field in list_extra_names().items() if field in KEYS)
    ours = (name for name, field in _walk_fields(Settings, ()) if "Secret" in str(field.annotation))
    return frozenset((*ours, *extra))


def _walk_fields(model: Any, path: tuple[str, ...]) -> Iterator[tuple[str, FieldInfo]]:
    """(dotted name, field) of a model or a dataclass of Pydantic's, and of those in it."""
    for name, field in model.__pydantic_fields__.items():
        yield ".".join((*path, name)), field
        if isinstance(field.annotation, type) and hasattr(field.annotation, "__pydantic_fields__"):
            yield from _walk_fields(field.annotation, (*path, name))


def _find_variable(name: str, field: FieldInfo) -> str:
    alias = field.validation_alias
    alias_name = str(alias.choices[0]) if isinstance(alias, AliasChoices) else None
    return alias_name or PREFIX + name.replace(".", "__").upper()


def _require_named_file(environment: Mapping[str, str]) -> None:
    """Only the default file may be absent."""
    path = config_path()
    if not environment.get(CONFIG) or path.is_file():
        return
    what = "which is no file" if path.exists() else "but there is no such file"
    raise SettingsError(f"{CONFIG} names {path}, {what}; correct it or unset it")


def _list_untrue_numbers() -> Iterator[str]:
    """One line for each number of the file that is `true` or `false`: Pydantic takes them for 1 and
    0. Raises OSError, TOMLDecodeError, UnicodeDecodeError."""
    path = config_path()
    if not path.is_file():
        return
    content = tomllib.loads(path.read_text(encoding="utf-8"))
    numbers = {name for name, field in _walk_fields(Settings, ()) if _is_number(field)}
    for name, value in _walk_values(content, ()):
        if isinstance(value, bool) and name in numbers:
            written = str(value).lower()
            yield _explain_error(tuple(name.split(".")), "expected a number", written, {})


def _is_number(field: FieldInfo) -> bool:
    kinds = {field.annotation, *get_args(field.annotation)}
    return bool(kinds & {int, float}) and bool not in kinds


def _walk_values(table: Mapping[str, Any], path: tuple[str, ...]) -> Iterator[tuple[str, Any]]:
    for name, value in table.items():
        if isinstance(value, dict):
            yield from _walk_values(value, (*path, name))
        else:
            yield ".".join((*path, name)), value


def _explain_source(message: str) -> str:
    """Of a variable that should hold a list or a table; its text may hold a secret."""
    field = message.partition('"')[2].partition('"')[0]
    whole = f"{PREFIX}{field.upper()}"
    lists = {variable for variable in _list_sequences() if variable.startswith(f"{whole}__")}
    wrong = [name for name in sorted(lists) if not _is_json(os.environ.get(name, "[]"))]
    if wrong:
        return f"""{", ".join(wrong)}: not JSON; expected a list, as '["one", "two"]'"""
    return f"{whole}: what is set there or below it is not JSON"


def _list_sequences() -> list[str]:
    ours = _walk_fields(Settings, ())
    many = ((name, each) for name, each in ours if get_origin(each.annotation) in (tuple, list))
    return [_find_variable(name, field) for name, field in many]


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _explain_unknown(name: str, candidates: list[str]) -> str:
    place = re.search(r"marketplaces(?:__|\.)(.+?)(?:__|[.'])", name.lower())
    if place and place[1] not in list_installed():
        return f"{name}: no such marketplace; known: {', '.join(list_installed())}"
    near = difflib.get_close_matches(name, candidates, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`toolmill settings --all` lists every name"
    return f"{name}: no such setting; {hint}"


def _explain_error(
    location: tuple[int | str, ...], message: str, value: Any, names: Mapping[str, str]
) -> str:
    message = message.replace("a valid tuple", "a list").removeprefix("Value error, ")
    known_names = list_known_names()
    dotted = ".".join(str(part) for part in location)
    aliases = {variable: name for name, variable in known_names.items()}
    dotted = aliases.get(dotted, dotted)  # Pydantic names some by their variable
    if location[:1] == ("servers",) and not message.startswith(_UNKNOWN):
        return f"{dotted} in {config_path().name}: {message}"  # what was found may be a secret
    if message.startswith(_UNKNOWN):
        return _explain_unknown(f"setting {dotted!r}", sorted(known_names))
    # Below a list or a mapping there is no variable of its own: its setting is named.
    setting = next((n for n in (dotted, *_list_parts(location)) if n in known_names), dotted)
    block = any(name.startswith(f"{dotted}.") for name in known_names)
    hidden = block or setting != dotted or setting in list_secret_names()
    excerpt = "" if hidden or ": found " in message else _show_value(value)
    if setting in names:
        return f"{names[setting]}: {message}{excerpt}"
    where = f"{known_names.get(setting, setting)} ({dotted} in {config_path().name})"
    return f"{where}: {message}{excerpt}"


def _list_parts(location: tuple[int | str, ...]) -> Iterator[str]:
    """A dotted name, then what it is part of."""
    for n in range(len(location), 0, -1):
        yield ".".join(str(part) for part in location[:n])


def _show_value(value: Any) -> str:
    """A single value, cut; of a list or a mapping, whose parts may be secrets, only what it is."""
    if isinstance(value, str | int | float):
        return f" (found {reprlib.repr(value)})"
    return f" (found a {type(value).__name__})"


def allow_models(settings: Settings) -> None:
    """Counts the embedder's model as the user's own: a saved encoder or an adapter from elsewhere
    that names another one opens nothing."""
    from assets.vectors.encoders.hub import allow_embedder

    allow_embedder(settings.embedder.model)
