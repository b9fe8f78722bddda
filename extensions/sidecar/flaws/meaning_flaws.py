"""Flaws of what is meant: the form may be right, and only the conversation shows what is wrong."""

import re
from random import Random
from typing import Any

from assets.contracts.repair.names import split_identifier
from assets.contracts.repair.problems import find_choices, is_required
from extensions.sidecar.flaws.drafts import FlawedDraft, GoodCall, Make, choose_name

# Verbs that tools of one deed are named by; a model remembers another tool's.
_VERBS = (
    ("get", "fetch", "read", "retrieve"), ("find", "search", "lookup", "query"),
    ("list", "show", "browse", "enumerate"), ("create", "add", "make", "new"),
    ("update", "edit", "modify", "set"), ("delete", "remove", "drop", "erase"),
    ("send", "post", "publish", "submit"), ("run", "execute", "start", "launch"),
)  # fmt: skip


def _change_value(call: GoodCall, name: str | None, value: Any) -> Any:
    if name is None or value == call.arguments[name]:
        return None
    return {**call.arguments, name: value}


def _write_placeholder(call: GoodCall, draw: Random) -> Any:
    name = choose_name(call, draw, lambda one, _: is_required(call.root, (one,)))
    return _change_value(call, name, f"<{name}>")


def _drop_several(call: GoodCall, _: Random) -> Any:
    """Without any of the required values, where there are several."""
    names = {name for name in call.arguments if is_required(call.root, (name,))}
    if len(names) < 2:
        return None
    return {name: value for name, value in call.arguments.items() if name not in names}


def _drop_optional(call: GoodCall, draw: Random) -> Any:
    name = choose_name(call, draw, lambda one, _: not is_required(call.root, (one,)))
    return None if name is None else {k: v for k, v in call.arguments.items() if k != name}


def _choose_another(call: GoodCall, draw: Random) -> Any:
    def list_others(name: str, value: Any) -> list[Any]:
        choices = find_choices(call.declared.get(name, {}), call.root)
        return [choice for choice in choices if choice != value] if value in choices else []

    name = choose_name(call, draw, lambda one, value: bool(list_others(one, value)))
    if name is None:
        return None
    return _change_value(call, name, draw.choice(list_others(name, call.arguments[name])))


def _change_number(call: GoodCall, draw: Random) -> Any:
    def is_whole(_: str, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    name = choose_name(call, draw, is_whole)
    return None if name is None else _change_value(call, name, call.arguments[name] + 1)


def _take_sibling_value(call: GoodCall, draw: Random) -> Any:
    """A value that another call of the same tool was given."""
    other = call.sibling or {}
    name = choose_name(call, draw, lambda one, value: one in other and other[one] != value)
    return None if name is None else _change_value(call, name, other[name])


def _reorder_values(call: GoodCall, draw: Random) -> Any:
    """Two texts, each under the other's name."""
    free = [
        name
        for name, value in call.arguments.items()
        if isinstance(value, str) and not find_choices(call.declared.get(name, {}), call.root)
    ]
    if len(free) < 2:
        return None
    one, other = draw.sample(free, 2)
    values = call.arguments[one], call.arguments[other]
    return None if values[0] == values[1] else {**call.arguments, one: values[1], other: values[0]}


def _call_neighbour(call: GoodCall, draw: Random) -> FlawedDraft | None:
    """The same arguments to another tool of the server."""
    if not call.beside:
        return None
    name, made = draw.choice(call.beside), dict(call.arguments)
    return FlawedDraft("tool beside it", name, made, (call.arguments,))


def _call_by_other_verb(call: GoodCall, draw: Random) -> FlawedDraft | None:
    verb = (split_identifier(call.name) or ("",))[0]
    others = [one for group in _VERBS if verb in group for one in group if one != verb]
    if not others:
        return None
    name = re.sub(verb, draw.choice(others), call.name, count=1, flags=re.IGNORECASE)
    if name in (call.name, *call.beside):
        return None
    return FlawedDraft("tool by another verb", name, dict(call.arguments), (call.arguments,))


MEANING_FLAWS: dict[str, Make] = {
    "placeholder for a value": _write_placeholder,
    "several required values missing": _drop_several,
    "optional value missing": _drop_optional,
    "another choice": _choose_another,
    "number off by one": _change_number,
    "value of another call": _take_sibling_value,
    "two values swapped": _reorder_values,
    "tool beside it": _call_neighbour,
    "tool by another verb": _call_by_other_verb,
}
