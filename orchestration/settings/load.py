"""Reading the settings in force, and saying of each unusable one what it is and the fix."""

import difflib
import os
import tomllib
from collections.abc import Mapping
from functools import lru_cache
from typing import Any

from pydantic import AliasChoices, ValidationError

from orchestration.settings.marketplaces import list_extra_names
from orchestration.settings.model import CONFIG, PREFIX, WORKDIR, Settings, config_path
from warehouse.errors import UnusableInput

_UNKNOWN = ("Extra inputs", "Unexpected keyword")  # how Pydantic begins such a message
_INTERNAL = {CONFIG, WORKDIR}


class SettingsError(UnusableInput):
    """A setting has an unknown name or an unusable value."""


def load_settings() -> Settings:
    """The settings in force. Raises SettingsError that names each unusable setting and the fix."""
    _refuse_unknown_variables(os.environ)
    try:
        return Settings()  # type: ignore[call-arg]
    except ValidationError as error:
        lines = [
            _explain_error(item["loc"], item["msg"], item.get("input")) for item in error.errors()
        ]
        raise SettingsError("\n".join(lines)) from error
    except tomllib.TOMLDecodeError as error:
        raise SettingsError(f"{config_path()}: not TOML: {error}") from error


@lru_cache
def list_known_names() -> dict[str, str]:
    """Every setting's dotted name -> the environment variable that sets it."""
    extra = {
        f"marketplaces.{name}": PREFIX + f"marketplaces.{name}".replace(".", "__").upper()
        for name in list_extra_names()
    }
    return dict(_list_names(Settings, ())) | extra


def _list_names(model: type, path: tuple[str, ...]) -> list[tuple[str, str]]:
    """Of a model or a dataclass of Pydantic's."""
    found: list[tuple[str, str]] = []
    for name, field in model.__pydantic_fields__.items():
        here = (*path, name)
        kind = field.annotation
        alias = field.validation_alias
        variable = PREFIX + "__".join(here).upper()
        if isinstance(alias, AliasChoices):
            variable = str(alias.choices[0])
        found.append((".".join(here), variable))
        if isinstance(kind, type) and hasattr(kind, "__pydantic_fields__"):
            found += _list_names(kind, here)
    return found


def _refuse_unknown_variables(environment: Mapping[str, str]) -> None:
    known = set(list_known_names().values()) | _INTERNAL
    unknown = sorted(
        name
        for name in environment
        if name.upper().startswith(PREFIX) and name.upper() not in known
    )
    if unknown:
        raise SettingsError("\n".join(_explain_unknown(name, sorted(known)) for name in unknown))


def _explain_unknown(name: str, known: list[str]) -> str:
    near = difflib.get_close_matches(name, known, n=1, cutoff=0.5)
    hint = f"did you mean {near[0]}?" if near else "`toolmill settings` lists every name"
    return f"{name}: no such setting; {hint}"


def _explain_error(location: tuple[int | str, ...], message: str, found: Any) -> str:
    dotted = ".".join(str(part) for part in location)
    variable = list_known_names().get(dotted)
    if location[:1] == ("servers",) and not message.startswith(_UNKNOWN):
        return f"{dotted} in {config_path().name}: {message}"  # what was found may be a secret
    if variable is None:
        return _explain_unknown(f"setting {dotted!r}", sorted(list_known_names()))
    shown = "" if "key" in dotted else f" (found {found!r})"
    return f"{variable} ({dotted} in {config_path().name}): {message}{shown}"
