"""Changes: how the facts of a state must differ at a task's end.

Facts are a flat mapping, key -> JSON value, the same for all kinds of worlds: a file's path and
text, an entity and its observations, a table's row. Each change is one object:

    {set = KEY, to = VALUE}               the fact is there, with this value
    {add = KEY, to = VALUE}               the same, and it was not there before
    {remove = KEY}                        it is gone; with a `/` at its end, all below it too
    {move = KEY, to = KEY}                it has another key; what lies below it moves along
    {copy = KEY, to = KEY}                it and what lies below it are there twice
    {update = KEY, with = {...}}          members of an object get these values
    {increase = KEY, of = NAME, by = N}   a number in it grows, or the fact itself without `of`
    {append = KEY, of = NAME, items = [...]}   a list in it grows; text, given text
    {drop = KEY, of = NAME, items = [...]}     these are taken out of the list
    {replace = KEY, old = TEXT, new = TEXT}    in a text, once
"""

from collections.abc import Callable, Iterable, Mapping
from typing import Any

Facts = dict[str, Any]


class ChangeImpossible(ValueError):
    """A change that these facts do not admit: which and why."""


def apply_changes(facts: Mapping[str, Any], changes: Iterable[Mapping[str, Any]]) -> Facts:
    """The facts after all changes, in order. Raises ChangeImpossible."""
    after = dict(facts)
    for change in changes:
        operation = next((name for name in _OPERATIONS if name in change), None)
        if operation is None:
            known = ", ".join(_OPERATIONS)
            raise ChangeImpossible(f"{dict(change)}: expected one of {known}")
        key = change[operation]
        options = {name: value for name, value in change.items() if name != operation}
        try:
            _OPERATIONS[operation](after, key, **{_PARTS.get(n, n): v for n, v in options.items()})
        except (KeyError, TypeError, ValueError) as error:
            raise ChangeImpossible(f"{operation} {key!r}: {error}") from error
    return dict(sorted(after.items()))


def _set(facts: Facts, key: str, value: Any) -> None:
    facts[key] = value


def _add(facts: Facts, key: str, value: Any) -> None:
    if key in facts:
        raise ValueError("it is there already")
    facts[key] = value


def _remove(facts: Facts, key: str) -> None:
    if not key.endswith("/"):
        del facts[key]
        return
    for item in _list_below(facts, key[:-1]):
        del facts[item]


def _move(facts: Facts, key: str, value: str) -> None:
    if value in facts or key == value:
        raise ValueError(f"{value!r} is there already")
    for item in _list_below(facts, key):
        facts[value + item[len(key) :]] = facts.pop(item)


def _copy(facts: Facts, key: str, value: str) -> None:
    if value in facts:
        raise ValueError(f"{value!r} is there already")
    for item in _list_below(facts, key):
        facts[value + item[len(key) :]] = facts[item]


def _list_below(facts: Facts, key: str) -> list[str]:
    """The key and what lies below it, as `a/b`, `branch/a:b` or `A!B1`. Raises KeyError."""
    if key not in facts:
        raise KeyError(key)
    return [
        fact for fact in facts if fact == key or fact.startswith((f"{key}/", f"{key}:", f"{key}!"))
    ]


def _update(facts: Facts, key: str, members: Mapping[str, Any]) -> None:
    before = facts[key]
    if all(before.get(name) == value for name, value in members.items()):
        raise ValueError("it is so already")
    facts[key] = {**before, **members}


def _add_number(facts: Facts, key: str, by: float, of: str | None = None) -> None:
    def add(number: float) -> float:
        total = number + by  # without the last bits of the binary fractions of prices
        return total if isinstance(total, int) else round(total, 6)

    _replace_part(facts, key, of, add)


def _append(facts: Facts, key: str, items: Any, of: str | None = None) -> None:
    _replace_part(facts, key, of, lambda value: value + items)


def _drop(facts: Facts, key: str, items: list[Any], of: str | None = None) -> None:
    def drop_items(values: list[Any]) -> list[Any]:
        if missing := [item for item in items if item not in values]:
            raise ValueError(f"{missing[0]!r} is not in it")
        return [item for item in values if item not in items]

    _replace_part(facts, key, of, drop_items)


def _replace(facts: Facts, key: str, old: str, new: str, of: str | None = None) -> None:
    def replace_text(text: str) -> str:
        if text.count(old) != 1 or old == new:
            raise ValueError(f"{old!r} stands in it {text.count(old)} times, expected once")
        return text.replace(old, new)

    _replace_part(facts, key, of, replace_text)


def _replace_part(facts: Facts, key: str, of: str | None, make: Callable[[Any], Any]) -> None:
    value = facts[key]
    facts[key] = make(value) if of is None else {**value, of: make(value[of])}


_OPERATIONS: dict[str, Callable[..., None]] = {
    "set": _set, "add": _add, "remove": _remove, "move": _move, "copy": _copy, "update": _update,
    "increase": _add_number, "append": _append, "drop": _drop, "replace": _replace,
}  # fmt: skip
_PARTS = {"to": "value", "with": "members"}  # how a change calls them, where Python cannot
