"""Flaws of the values, of their level, and of what is there at all."""

import json
import re
from collections.abc import Callable, Mapping
from datetime import date
from random import Random
from typing import Any

from assets.contracts.repair.problems import find_choices, find_types, is_required
from assets.contracts.repair.written_values import find_unit
from assets.contracts.schema_shapes import collect_properties
from extensions.sidecar.flaws.drafts import GoodCall, Make, choose_name, drop_letter

_UNITS = {"seconds": "s", "ms": "ms", "minutes": "min", "hours": "h", "days": "days", "km": "km",
          "meters": "m", "kg": "kg", "milliseconds": "ms"}  # fmt: skip


def _change(test: Callable[[Any], bool], make: Callable[[Any], Any]) -> Make:
    def make_arguments(call: GoodCall, draw: Random) -> Any:
        name = choose_name(call, draw, lambda _, value: test(value))
        return None if name is None else {**call.arguments, name: make(call.arguments[name])}

    return make_arguments


def _is_number(value: Any) -> bool:
    return isinstance(value, int | float) and not isinstance(value, bool)


def _is_word_list(value: Any) -> bool:
    return isinstance(value, list) and len(value) > 1 and all(isinstance(one, str) for one in value)


def _change_choice(call: GoodCall, draw: Random, make: Callable[[str], str]) -> Any:
    def has_choices(name: str, value: Any) -> bool:
        return isinstance(value, str) and bool(find_choices(call.declared.get(name, {}), call.root))

    name = choose_name(call, draw, has_choices)
    if name is None or make(call.arguments[name]) == call.arguments[name]:
        return None
    return {**call.arguments, name: make(call.arguments[name])}


def _write_date(call: GoodCall, draw: Random) -> Any:
    """An ISO date of a parameter whose schema asks for one, in words."""

    def is_date(name: str, value: Any) -> bool:
        asked = any(key in call.declared.get(name, {}) for key in ("format", "pattern"))
        return asked and bool(re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)))

    name = choose_name(call, draw, is_date)
    if name is None:
        return None
    day = date.fromisoformat(call.arguments[name])
    words = draw.choice((f"{day:%B} {day.day}, {day.year}", f"{day.day} {day:%b} {day.year}"))
    return {**call.arguments, name: words}


def _write_unit(call: GoodCall, draw: Random) -> Any:
    def has_unit(name: str, value: Any) -> bool:
        found = find_unit(name, call.declared.get(name, {}), call.root)
        return _is_number(value) and found in _UNITS

    name = choose_name(call, draw, has_unit)
    if name is None:
        return None
    unit = _UNITS[str(find_unit(name, call.declared[name], call.root))]
    return {**call.arguments, name: f"{call.arguments[name]} {unit}"}


def _flatten(call: GoodCall, draw: Random) -> Any:
    def is_flat(name: str, value: Any) -> bool:
        if not isinstance(value, Mapping) or not value or set(value) & set(call.declared):
            return False
        return set(value) <= set(collect_properties(call.declared.get(name, {}), call.root))

    name = choose_name(call, draw, is_flat)
    if name is None:
        return None
    rest = {key: one for key, one in call.arguments.items() if key != name}
    return {**rest, **call.arguments[name]}


def _add_null(call: GoodCall, draw: Random) -> Any:
    free = [
        name
        for name, of in call.declared.items()
        if name not in call.arguments
        and find_types(of, call.root)
        and "null" not in find_types(of, call.root)
        and not is_required(call.root, (name,))
    ]
    return {**call.arguments, draw.choice(free): None} if free else None


def _drop_required(call: GoodCall, draw: Random) -> Any:
    name = choose_name(call, draw, lambda one, _: is_required(call.root, (one,)))
    return None if name is None else {k: v for k, v in call.arguments.items() if k != name}


VALUE_FLAWS: dict[str, Make] = {
    "wrapped": lambda call, _: {"name": call.name, "arguments": dict(call.arguments)},
    "in a list": lambda call, _: [dict(call.arguments)],
    "number as text": _change(_is_number, str),
    "boolean as text": _change(lambda one: isinstance(one, bool), str),
    "list as text": _change(lambda one: isinstance(one, list), json.dumps),
    "list as words": _change(_is_word_list, ", ".join),
    "object as text": _change(lambda one: isinstance(one, Mapping), json.dumps),
    "value in a list": _change(lambda one: isinstance(one, str), lambda one: [one]),
    "value for a list": _change(
        lambda one: isinstance(one, list) and len(one) == 1, lambda one: one[0]
    ),
    "choice in capitals": lambda call, draw: _change_choice(call, draw, str.upper),
    "choice misspelt": lambda call, draw: _change_choice(
        call, draw, lambda one: drop_letter(one, 0.5) if len(one) > 4 else one
    ),
    "date in words": _write_date,
    "number with its unit": _write_unit,
    "inner names outside": _flatten,
    "undeclared argument": lambda call, _: {**call.arguments, "zq_trace": True},
    "null for what is absent": _add_null,
    "required value missing": _drop_required,
}
