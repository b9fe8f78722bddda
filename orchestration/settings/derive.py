"""From what a user set to the policy that a package takes."""

from dataclasses import fields
from typing import Any, TypeVar

Policy = TypeVar("Policy")


def derive(kind: type[Policy], given: Any, **worked_out: Any) -> Policy:
    """A policy of the fields that it shares with the settings given, and of what is worked out
    from others; the rest keeps its defaults."""
    names = {one.name for one in fields(kind)} & {one.name for one in fields(given)}  # type: ignore[arg-type]
    shared = {name: getattr(given, name) for name in names}
    return kind(**{**shared, **worked_out})
