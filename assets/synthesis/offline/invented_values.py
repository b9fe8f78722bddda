"""Decides what sort of value a parameter takes (a city, a path, a title), and makes one."""

import datetime as dt
import json
import random
import re
from collections.abc import Callable
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from assets.synthesis.contract_reading import ParameterSlot
from assets.vectors.lexicon import collect_words, list_pool, split_list
from warehouse.json_types import Json
from warehouse.storage.files import read_data

# marks: sort of value -> words of a parameter's name; themes: sort -> what its tool speaks of.
_TABLE = json.loads(Path(__file__).with_name("value_kinds.json").read_text(encoding="utf-8"))
# Two-word marks are tried before one-word marks.
_MARKS = {mark: sort for sort, marks in _TABLE["marks"].items() for mark in marks}


_ID_WORDS = ("id", "ids", "uid", "uuid", "guid")
_WORDS = read_data(__file__, "words.toml")
_BY_TOPIC = [(name, re.compile(topic), sort) for name, topic, sort in _WORDS["by_topic"]]


def find_sort(slot: ParameterSlot) -> str:
    """The pool or maker for a string parameter, by the words of its name, then its description."""
    words = slot.words
    if len(slot.hint) <= _BRIEF:
        stated = next((sort for sort, form in _STATED.items() if form.match(slot.hint)), None)
        if stated:
            return stated
    for name, topic, sort in _BY_TOPIC if len(words) == 1 else ():
        if words[0] == name and topic.search(slot.theme if sort in _OF_THEME else slot.about):
            return sort
    is_id = bool(words) and words[-1] in _ID_WORDS
    for size in (2,) if is_id else (2, 1):
        for start in range(len(words) - size, -1, -1):
            if sort := _MARKS.get(" ".join(words[start : start + size])):
                return sort
    if words and words[-1] in ("id", "ids", "uid", "key", "slug", "ref"):
        return "id"
    hint = re.findall(r"[a-z]+", slot.hint.lower())
    return next((_MARKS[w] for w in hint[:12] if w in _MARKS and w not in _VAGUE), "project")


_OF_THEME = ("math", "wallet")  # looked for in the description too
_BRIEF = 120  # characters; a longer description speaks of more than the form of the value
_STATED = {sort: re.compile(form, re.I) for sort, form in _WORDS["stated"].items()}
_VAGUE = collect_words(_WORDS["vague"])
# What people search for, or name, depends on what the tool is about.
_THEMES = {
    name: re.compile(rf"\b(?:{'|'.join(marks)})\b") for name, marks in _TABLE["themes"].items()
}


@lru_cache(maxsize=4096)
def find_theme(text: str) -> str | None:
    """The sort whose mark comes first in what a tool says of itself."""
    hits = {name: marks.search(text) for name, marks in _THEMES.items()}
    return min(((hit.start(), name) for name, hit in hits.items() if hit), default=(0, None))[1]


# Where the calendar of invented dates starts; a fixed day keeps every run reproducible.
_EPOCH = dt.date(2025, 3, 3)


# Names and addresses of several languages, all in Latin letters, as texts in English hold them.
_LOCALES = split_list("en_US en_GB de_DE es_ES fr_FR it_IT nl_NL pl_PL sv_SE pt_BR")


@cache
def get_faker(locale: str) -> Any:
    """One generator a locale: making one costs 30 ms, seeding it nothing."""
    from faker import Faker

    return Faker(locale)


class _ValueDraw:
    """What one value is drawn from: the same draws for every sort, so that `rng` moves alike."""

    def __init__(self, sort: str, rng: random.Random, slot: ParameterSlot | None) -> None:
        self.sort, self.rng, self.draw = sort, rng, rng.randint
        self.day = _EPOCH + dt.timedelta(days=rng.randint(0, 420))
        extension = rng.choice(["csv", "md", "txt", "json", "pdf", "xlsx", "docx", "yaml"])
        about = f"{slot.about} {slot.hint}".lower() if slot else ""
        self.extension = next(
            (to for mark, to in _WORDS["extensions"].items() if mark in about), extension
        )
        owner = self.pick("first").lower().replace("á", "a")
        self.home = f"/home/{owner}/{self.pick('folder')}"
        self.hexes = "".join(rng.choice("0123456789abcdef") for _ in range(24))

    def pick(self, name: str) -> str:
        """One entry of a pool."""
        return self.rng.choice(list_pool(name))

    def fake(self, sort: str, locale: str | None = None) -> str:
        """One value of Faker's, the same for the same state of `rng`."""
        faker = get_faker(locale or self.rng.choice(_LOCALES))
        faker.seed_instance(self.rng.getrandbits(64))
        if sort == "town":  # Faker's `city` makes names up in English; these places exist
            return faker.location_on_land()[2]
        if sort == "address":
            # Not `city`: the Italian one draws from a set, whose order changes from run to run.
            return f"{' '.join(faker.street_address().split())}, {self.pick('city')}"
        return str(getattr(faker, sort)())

    def pick_either(self, faked: str, locale: str | None = None) -> str:
        """Half well-known ones, half of Faker's many."""
        return self.pick(self.sort) if self.rng.random() < 0.5 else self.fake(faked, locale)

    def fill_field(self, field: re.Match[str]) -> str:
        """What stands for a field of a form: a number, what was drawn, or an entry of a pool."""
        if field[1]:
            return str(self.draw(int(field[1]), int(field[2])))
        of_draw = {"home": self.home, "extension": self.extension}
        return of_draw.get(field[3]) or self.pick(field[3])


def invent_value(sort: str, rng: random.Random, slot: ParameterSlot | None = None) -> str:
    """One value of a sort: from its pool, or made."""
    if sort in ("topic", "project") and slot is not None:
        sort = find_theme(slot.theme) or sort
    draw = _ValueDraw(sort, rng, slot)
    if sort in _WORDS["faked"]:
        return draw.fake(*_WORDS["faked"][sort].split())
    if sort in _WORDS["faked_or_known"]:
        return draw.pick_either(*_WORDS["faked_or_known"][sort].split())
    if sort in _WORDS["forms"]:
        return _FIELD.sub(draw.fill_field, _WORDS["forms"][sort])
    return _MAKERS[sort](draw) if sort in _MAKERS else draw.pick(sort)


_FIELD = re.compile(r"\{(?:(\d+)-(\d+)|(\w+))\}")


_BASE58 = "123456789ABCDEFGHJKLMNPQRSTUVWXYZabcdefghijkmnopqrstuvwxyz"
_MAKERS: dict[str, Callable[[_ValueDraw], str]] = {
    "date": lambda v: v.day.isoformat(),
    "datetime": lambda v: f"{v.day}T{v.draw(7, 19):02d}:{15 * v.draw(0, 3):02d}:00Z",
    "time": lambda v: f"{v.draw(6, 22):02d}:{5 * v.draw(0, 11):02d}",
    "email": lambda v: f"{v.pick('first')}.{v.pick('last')}@{v.pick('domain')}".lower()
    .encode("ascii", "ignore").decode(),  # of domains kept for examples: nobody's address
    "person": lambda v: f"{v.fake('first_name')} {v.fake('last_name')}",
    "city": lambda v: v.pick("city") if v.rng.random() < 0.5 else v.fake("town", "en_US"),
    "job": lambda v: v.fake("job", "en_GB").lower(),
    "tx_hash": lambda v: f"0x{v.fake('sha256', 'en_US')}",
    "wallet": lambda v: f"0x{v.fake('sha1', 'en_US')}",
    "public_key": lambda v: "".join(v.rng.choice(_BASE58) for _ in range(44)),
    "sha": lambda v: v.rng.choice([v.hexes[:7], "HEAD", "HEAD~2", v.pick("branch")]),
    "id": lambda v: v.rng.choice(
        [str(v.draw(1000, 99999)), f"{v.pick('project')[:3]}-{v.draw(10, 999)}",
         str(v.draw(10**8, 10**9))]),
    "issue_key": lambda v: f"{v.pick('project')[:4].upper()}-{v.draw(2, 980)}",
    "project_key": lambda v: v.pick("project")[:4].upper(),
    "arxiv_id": lambda v: f"2{v.draw(0, 5)}{v.draw(1, 12):02d}.{v.draw(1000, 19999):05d}",
    "order_id": lambda v: f"{v.pick('project')[:2].upper()}{v.draw(10**7, 10**8)}",
    "jql": lambda v: f"project = {v.pick('project')[:4].upper()} AND status = {v.pick('stem')}",
    "emoji": lambda v: v.rng.choice(["📌", "🚀", "🌱", "📚"]),
    "secret": lambda v: f"key-{v.hexes[:10]}",
    "span": lambda v: f"{v.draw(1, 6)}h {v.rng.choice((15, 20, 30, 45))}m",
    "amount": lambda v: f"{v.rng.choice((5, 12.5, 20, 49.9, 75, 120, 250, 480))}",
}  # fmt: skip


_LONGEST = 200  # characters; a longer pattern is no identifier
_CATEGORIES = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcdefgh", "CATEGORY_SPACE": " "}


def make_from_pattern(pattern: str, rng: random.Random) -> str | None:
    """A string that a simple regular expression describes, or None."""
    from re import _parser as parser  # type: ignore[attr-defined]  # how `re` reads a pattern

    try:
        return _write_parsed(parser.parse(pattern), rng)
    except Exception:  # features beyond literals, sets and repeats
        return None


def _write_parsed(parsed: Json, rng: random.Random) -> str:
    text = ""
    for op, arg in parsed:
        if len(text) > _LONGEST:
            raise ValueError("too long")
        match str(op):
            case "LITERAL":
                text += chr(arg)
            case "RANGE":
                text += chr(rng.randint(arg[0], arg[1]))
            case "CATEGORY":
                text += rng.choice(_CATEGORIES[str(arg)])
            case "ANY":
                text += "a"
            case "IN":
                text += _write_parsed([rng.choice(arg)], rng)
            case "MAX_REPEAT" | "MIN_REPEAT":
                low, high = int(arg[0]), min(int(arg[1]), int(arg[0]) + 5)
                if low > _LONGEST:
                    raise ValueError("too long")
                text += "".join(_write_parsed(arg[2], rng) for _ in range(rng.randint(low, high)))
            case "SUBPATTERN":
                text += _write_parsed(arg[3], rng)
            case "BRANCH":
                text += _write_parsed(rng.choice(arg[1]), rng)
            case "AT":
                continue
            case name:
                raise ValueError(name)
    return text
