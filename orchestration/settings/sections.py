"""Sections that extensions declare (`toolmill.settings`), and policies made of sections."""

from collections.abc import Callable
from dataclasses import fields
from typing import Any, TypeVar

from pydantic import BaseModel, create_model

from warehouse.extensions import SETTINGS, load_extensions

Model = TypeVar("Model", bound=BaseModel)


def add_sections(prefix: str = "") -> Callable[[type[Model]], type[Model]]:
    """Class decorator: adds the sections right below `prefix` to a settings model."""

    def extend(model: type[Model]) -> type[Model]:
        sections: dict[str, Any] = {
            name.removeprefix(prefix): (kind, kind())
            for name, kind in load_extensions(SETTINGS).items()
            if name.startswith(prefix) and "." not in name.removeprefix(prefix)
        }
        extended = create_model(
            model.__name__, __base__=model, __doc__=model.__doc__, __module__=model.__module__,
            **sections,
        )  # fmt: skip
        extended.__qualname__ = model.__qualname__
        return extended

    return extend


def get_section(settings: BaseModel, name: str) -> Any:
    section: Any = settings
    for part in name.split("."):
        section = getattr(section, part)
    return section


Policy = TypeVar("Policy")


def derive_policy(kind: type[Policy], section: Any, **worked_out: Any) -> Policy:
    """A policy from the settings' fields of the same names and derived ones, else its defaults."""
    # `given` is a dataclass or a pydantic model; what both declare has one meaning.
    declared = getattr(type(section), "model_fields", None) or {
        item.name for item in fields(section)
    }
    names = {item.name for item in fields(kind)} & set(declared)  # type: ignore[arg-type]
    shared = {name: getattr(section, name) for name in names}
    return kind(**{**shared, **worked_out})
