"""Templates: what the placeholders of a task stand for, drawn by a seed, and filled in.

`{name}` is a draw. Of a fact it is the key, `{name.value}` its value, `{name.value.member}` a part
of that, `{name.lines.0}` the first line of a text `{name.size}` its bytes and `{name.blob}`
its id in git; of a key that is a
path, `{name.name}`, `{name.stem}`, `{name.suffix}`, `{name.parent}`, and `{name.1}` its first part.
A template that is one placeholder keeps the value's type.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date, timedelta
from fnmatch import fnmatchcase
from functools import cache
from hashlib import sha1
from pathlib import Path, PurePosixPath
from random import Random
from typing import Any

from assets.outcomes.worlds.spec import ValueDraw
from assets.outcomes.worlds.tree import WorldFileError
from warehouse.patterns import compile_pattern

_PLACEHOLDER = compile_pattern(r"\{(\w+(?:\.[^{}.\s]+)*)\}")


@dataclass(frozen=True)
class DrawnFact:
    """A fact of the first state that a task is about."""

    key: str
    value: Any


class NothingToDraw(ValueError):
    """No fact, word or part is there that a draw could take."""


def draw_values(
    draws: Mapping[str, ValueDraw], facts: Mapping[str, Any], rng: Random, root: str
) -> dict[str, Any]:
    """A value for each placeholder. Raises NothingToDraw, WorldFileError for unknown words."""
    values: dict[str, Any] = {"root": root}
    used_keys: set[str] = set()
    for name, draw in draws.items():
        try:
            values[name] = _draw_value(draw, facts, rng, used_keys, values)
        except NothingToDraw as error:
            raise NothingToDraw(f"draw {name!r}: {error}") from None
    return values


def fill_template(template: Any, values: Mapping[str, Any]) -> Any:
    """The template with its placeholders replaced, keys too. Raises NothingToDraw."""
    if isinstance(template, Mapping):
        return {
            fill_template(key, values): fill_template(one, values) for key, one in template.items()
        }
    if isinstance(template, list | tuple):
        return [fill_template(item, values) for item in template]
    if not isinstance(template, str):
        return template
    if whole := _PLACEHOLDER.fullmatch(template):
        value = _find_value(whole[1], values)
        return value.key if isinstance(value, DrawnFact) else value
    return _PLACEHOLDER.sub(lambda match: _show_value(_find_value(match[1], values)), template)


@cache
def load_words() -> Mapping[str, tuple[str, ...]]:
    """The word lists that draws and generators share."""
    text = Path(__file__).with_name("words.json").read_text(encoding="utf-8")
    return {name: tuple(words) for name, words in json.loads(text).items()}


def draw_words(name: str, rng: Random) -> str:
    """One of a word list; `sentence`: composed of several. Raises WorldFileError."""
    words = load_words()
    if name == "sentence":
        lists = ("people", "verbs", "topics", "things", "times")
        who, did, about, what, when = (rng.choice(words[part]) for part in lists)
        return f"{who} {did} the {about} {what} {when}"
    if name not in words:
        raise WorldFileError(f"words {name!r}: known: sentence, {', '.join(sorted(words))}")
    return rng.choice(words[name])


def _draw_value(
    draw: ValueDraw,
    facts: Mapping[str, Any],
    rng: Random,
    used_keys: set[str],
    values: Mapping[str, Any],
) -> Any:
    if draw.key is not None:
        members, pattern = fill_template(draw.where, values), fill_template(draw.key, values)
        fits = [
            key
            for key, value in facts.items()
            if key not in used_keys and fnmatchcase(key, pattern) and _has_members(value, members)
        ]
        if not fits:
            raise NothingToDraw(f"no fact matches {pattern!r}")
        key = rng.choice(fits)
        used_keys.add(key)
        return DrawnFact(key, facts[key])
    if draw.one_of is not None:
        return rng.choice(draw.one_of)
    if draw.between is not None:
        return rng.randint(*draw.between)
    if draw.words is not None:
        return draw_words(draw.words, rng)
    return fill_template(draw.text, values)


def _has_members(value: Any, members: Mapping[str, Any]) -> bool:
    if not members:
        return True
    if not isinstance(value, Mapping):
        return False
    return all(k in value and expected in ("*", value[k]) for k, expected in members.items())


def _find_value(name: str, values: Mapping[str, Any]) -> Any:
    first, *segments = name.split(".")
    if first not in values:
        raise NothingToDraw(f"{{{first}}} is not drawn yet: draw it first")
    result = values[first]
    for place, part in enumerate(segments):
        if isinstance(result, DrawnFact) and part == "value":
            result = result.value
        elif isinstance(result, DrawnFact) and part == "lines" and isinstance(result.value, str):
            result = result.value.splitlines()
        elif isinstance(result, DrawnFact) and part == "size" and isinstance(result.value, str):
            result = len(result.value.encode())
        elif isinstance(result, DrawnFact) and part == "blob" and isinstance(result.value, str):
            data = result.value.encode()
            result = sha1(b"blob %d\0" % len(data) + data, usedforsecurity=False).hexdigest()
        elif place == 0 and not isinstance(result, Mapping | list):
            result = _find_path_part(
                result.key if isinstance(result, DrawnFact) else str(result), part
            )
        else:
            result = _find_member(result, part, name)
    return result


def _find_path_part(key: str, part: str) -> str:
    path, segments = PurePosixPath(key), re.split("[/!]", key)
    if part.isdecimal() and 0 < int(part) <= len(segments):
        return segments[int(part) - 1]
    if part in ("name", "stem", "suffix", "parent"):
        return str(getattr(path, part))
    raise NothingToDraw(f"{key!r} has no part {part!r}")


def _find_member(container: Any, part: str, name: str) -> Any:
    try:
        return container[int(part)] if isinstance(container, list) else container[part]
    except (KeyError, IndexError, TypeError, ValueError):
        raise NothingToDraw(f"{{{name}}}: there is no {part!r}") from None


def _show_value(value: Any) -> str:
    if isinstance(value, DrawnFact):
        return value.key
    if isinstance(value, str):
        return value
    return json.dumps(value, ensure_ascii=False)


Row = tuple[int | float | str | None, ...]


@dataclass(frozen=True)
class ShopTable:
    """One table: its columns with their SQL types, and its rows. The first column is the key."""

    name: str
    columns: tuple[tuple[str, str], ...]
    rows: list[Row]


def draw_shop(rng: Random, size: int) -> list[ShopTable]:
    """Customers, products and orders; each order is of one customer and one product."""
    words, start = load_words(), date(2026, 1, 5)
    customers: list[Row] = [
        (
            number,
            f"{rng.choice(words['people'])} {rng.choice(words['surnames'])}",
            rng.choice(words["cities"]),
        )
        for number in range(1, size + 1)
    ]
    names = rng.sample(words["products"], min(size, len(words["products"])))
    products: list[Row] = [
        (number, name, rng.randint(4, 400) / 4, rng.randint(0, 60))
        for number, name in enumerate(names, 1)
    ]
    orders: list[Row] = [
        (
            number,
            rng.randint(1, size),
            rng.randint(1, len(names)),
            rng.randint(1, 9),
            rng.choice(words["statuses"]),
            str(start + timedelta(days=rng.randint(0, 300))),
        )
        for number in range(1, size * 2 + 1)
    ]
    return [
        ShopTable("customers", (("id", "INTEGER"), ("name", "TEXT"), ("city", "TEXT")), customers),
        ShopTable(
            "products",
            (("id", "INTEGER"), ("name", "TEXT"), ("price", "REAL"), ("stock", "INTEGER")),
            products,
        ),
        ShopTable(
            "orders",
            (
                ("id", "INTEGER"),
                ("customer_id", "INTEGER"),
                ("product_id", "INTEGER"),
                ("quantity", "INTEGER"),
                ("status", "TEXT"),
                ("ordered_on", "TEXT"),
            ),
            orders,
        ),
    ]
