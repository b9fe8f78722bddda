"""From what a user set to the policy that a package takes."""

from dataclasses import fields
from typing import Any, TypeVar

Policy = TypeVar("Policy")


def derive_policy(kind: type[Policy], given: Any, **worked_out: Any) -> Policy:
    """A policy of the fields that it shares with the settings given, and of what is worked out
    from others; the rest keeps its defaults."""
    # `given` is a dataclass or a pydantic model; what both declare has one meaning.
    declared = getattr(type(given), "model_fields", None) or {one.name for one in fields(given)}
    names = {one.name for one in fields(kind)} & set(declared)  # type: ignore[arg-type]
    shared = {name: getattr(given, name) for name in names}
    return kind(**{**shared, **worked_out})
