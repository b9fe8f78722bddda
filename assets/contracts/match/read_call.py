"""One call, read through its tool's schema: the normal forms by which calls are compared."""

from collections.abc import Callable, Mapping
from functools import cached_property
from typing import Any

from assets.contracts.match.resolve import collect_parts, is_plain, is_simple
from assets.contracts.match.values import (
    count_values,
    format_key,
    normalise_exactly,
    normalise_property,
)
from assets.contracts.schema.step_budget import TooMuchWork, limit_steps
from warehouse.json_types import JsonObject, Schema

# Steps for one call: some 0.2 s, and what its own size may need (a value takes 3 to 8). The largest
# call of a real contract takes a few thousand.
_MAX_STEPS, _STEPS_A_VALUE = 20_000, 32


class ReadCall:
    """One call, read through its tool's schema; `given` is None where it holds no arguments."""

    def __init__(self, schema: Any, call: Any) -> None:
        self.is_call = isinstance(call, dict | Mapping)
        name, given = (call.get("name"), call.get("arguments")) if self.is_call else ("", "")
        self.name = name if isinstance(name, str) else f"{type(name).__name__} {name!r:.80}"
        self.root: Schema = schema if isinstance(schema, dict | Mapping) else {}
        self.given: dict[str, Any] | None = None
        if given is None or isinstance(given, dict | Mapping):
            self.given = {format_key(key): value for key, value in (given or {}).items()}
            self.parts = (
                (self.root,)
                if is_plain(self.root)
                else self._within(lambda: collect_parts(self.root, self.root, given or {}), ())
            )
        self._forms: dict[str, tuple[str, bool]] = {}

    def form(self, name: str) -> tuple[str, bool]:
        """(Normal form of an argument, whether it is the default); for two sides that match, and
        only for them, it is the same."""
        if name not in self._forms:
            value = (self.given or {})[name]
            if is_simple(self.root, name, value):
                self._forms[name] = normalise_property(value, name, self.parts, self.root)
            else:
                self._forms[name] = self._within(
                    lambda: normalise_property(value, name, self.parts, self.root),
                    None,
                    count_values(value),
                ) or (normalise_exactly(value), False)
        return self._forms[name]

    def _within(self, work: Callable[[], Any], otherwise: Any, size: int = 1) -> Any:
        """What the work gives, or `otherwise` where a schema makes it too much."""
        steps = _MAX_STEPS // (len(self.given or ()) or 1) + _STEPS_A_VALUE * size
        try:
            with limit_steps(steps):
                return work()
        except (TooMuchWork, RecursionError):
            return otherwise

    @cached_property
    def key(self) -> tuple[Any, ...]:
        """The same for two calls that match, and only for them."""
        forms = [(name, *self.form(name)) for name in self.given or ()]
        given = sorted((name, held) for name, held, usual in forms if not usual)
        return (self.name, self.given is None, *given)

    def all(self, verdict: str) -> dict[str, str]:
        return dict.fromkeys(self.given or (), verdict)


def read_call(schemas: Mapping[str, JsonObject], call: Any) -> ReadCall:
    """A call, read through the schema of the tool that it names."""
    name = call.get("name") if isinstance(call, Mapping) else None
    return ReadCall(schemas.get(name, {}) if isinstance(name, str) else {}, call)
