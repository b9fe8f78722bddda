"""Fields: reading what a client sent, one field at a time."""

import json
from collections.abc import Mapping
from typing import Any

MAX_ARGUMENTS = 400_000  # characters of one call's arguments as JSON
MAX_DEPTH = 40
MAX_ID = 1_000  # characters of a tool id as it is shown; the longest of 12,600 real ones has 168


class BadField(ValueError):
    """A field that cannot be used, with what was found and expected."""

    def __init__(self, field: str, found: str, expected: str) -> None:
        super().__init__(f"{field} is {found}; expected {expected}")
        self.field = field


class Fields:
    """The arguments of one request to one of our tools."""

    def __init__(self, given: Mapping[str, Any], known: Mapping[str, Any], at: str = "") -> None:
        for name in given:
            if name not in known:
                raise BadField(f"{at}{name[:60]}", "unknown", f"one of {', '.join(known)}")
        self._given, self._at = given, at

    def text(self, name: str, most: int) -> str | None:
        """A text that is not blank, None where it is left out."""
        value = self._given.get(name)
        if value is None:
            return None
        if not isinstance(value, str):
            raise BadField(f"{self._at}{name}", _name_kind(value), "a text")
        if len(value) > most:
            found = f"{len(value):,} characters long"
            raise BadField(f"{self._at}{name}", found, f"at most {most:,}")
        return value.strip() or None

    def needed(self, name: str, most: int = MAX_ID) -> str:
        """A text that must be there."""
        value = self.text(name, most)
        if value is None:
            raise BadField(name, "missing or blank", "a text")
        return value

    def number(self, name: str, default: int, least: int, most: int) -> int:
        """A whole number within its bounds."""
        value = self._given.get(name)
        if value is None:
            return default
        if isinstance(value, float) and value.is_integer():
            value = int(value)
        if isinstance(value, bool) or not isinstance(value, int):
            raise BadField(name, _name_kind(value), f"a whole number from {least} to {most}")
        if not least <= value <= most:
            shown = str(value) if abs(value) < 10**12 else "huge"
            raise BadField(name, shown, f"{least} to {most}")
        return value

    def flag(self, name: str) -> bool:
        """Yes or no; no where it is left out."""
        value = self._given.get(name)
        if value is not None and not isinstance(value, bool):
            raise BadField(name, _name_kind(value), "true or false")
        return bool(value)

    def texts(self, name: str, most: int, longest: int = MAX_ID) -> tuple[str, ...]:
        """A list of texts."""
        value = self._given.get(name)
        if value is None:
            return ()
        if not isinstance(value, list) or not all(isinstance(one, str) for one in value):
            raise BadField(name, _name_kind(value), "a list of texts")
        if len(value) > most:
            raise BadField(name, f"{len(value):,} entries long", f"at most {most:,}")
        if any(len(one) > longest for one in value):
            raise BadField(name, "too long in one entry", f"at most {longest:,} characters each")
        return tuple(value)

    def objects(self, name: str, most: int, known: Mapping[str, Any]) -> list["Fields"]:
        """A list of objects, each to be read by field; [] where it is left out."""
        value = self._given.get(name)
        if value is None:
            return []
        if not isinstance(value, list) or not all(isinstance(one, Mapping) for one in value):
            raise BadField(name, _name_kind(value), "a list of objects")
        if not 1 <= len(value) <= most:
            raise BadField(name, f"{len(value):,} entries long", f"1 to {most:,}")
        return [Fields(one, known, f"{name}[{at}].") for at, one in enumerate(value)]

    def choice(self, name: str, known: tuple[str, ...], default: str | None = None) -> str:
        """One of some words; the default, where there is one, for what is left out."""
        value = self._given.get(name, default)
        if not isinstance(value, str) or value not in known:
            found = repr(value[:60]) if isinstance(value, str) else _name_kind(value)
            raise BadField(name, found, f"one of {', '.join(known)}")
        return value

    def arguments(self, name: str, anything: bool = False) -> Any:
        """The arguments of a call: an object that is neither deep nor huge; what is left out counts
        as {}. anything: other values too, for somebody to fix."""
        value = self._given.get(name)
        if value is None:
            return {}
        if not anything and not isinstance(value, dict):
            raise BadField(name, _name_kind(value), "an object")
        if is_deeper_than(value, MAX_DEPTH):
            raise BadField(name, "nested too deep", f"at most {MAX_DEPTH} levels")
        size = len(json.dumps(value, ensure_ascii=False))
        if size > MAX_ARGUMENTS:
            raise BadField(name, f"{size:,} characters of JSON", f"at most {MAX_ARGUMENTS:,}")
        return value


def is_deeper_than(value: Any, most: int) -> bool:
    """Whether a JSON value has more levels, without recursion."""
    level = [value]
    for _ in range(most):
        level = [
            child
            for one in level
            if isinstance(one, dict | list)
            for child in (one.values() if isinstance(one, dict) else one)
        ]
        if not level:
            return False
    return True


def _name_kind(value: Any) -> str:
    names = {type(None): "null", bool: "true or false", int: "a number", float: "a number"}
    return {**names, str: "a text", list: "a list", dict: "an object"}.get(type(value), "unknown")
