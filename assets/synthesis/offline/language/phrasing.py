"""Saying values the way a person would."""

import datetime as dt
import random
import re
from dataclasses import dataclass

from assets.synthesis.common.contract_reading import Slot
from assets.synthesis.offline.values.kinds import find_sort
from assets.vectors.lexicon import split_list
from warehouse.json_types import Json

NUMBER_WORDS = split_list(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen twenty"
)
SUFFIXES = {"id", "ids", "name", "names", "key", "path", "uid", "uuid", "slug", "code", "number"}
PROPER = {
    "city", "country", "timezone", "symbol", "coin", "pair", "url", "path", "folder_path",
    "repo_path", "email", "person", "topic", "company", "filename", "issue_key", "domain",
    "language", "movie", "song", "artist", "book", "food", "airport", "package", "username",
}  # fmt: skip
CALLED = {"title", "project", "tag", "table", "database", "sheet", "team", "branch", "repo"}


# A parameter's name as a person would say it.
_SPELLED = {
    "lang": "language", "src": "source", "dest": "destination", "dst": "destination",
    "desc": "description", "msg": "message", "num": "number", "repo": "repo", "org": "organisation",
    "addr": "address", "pubkey": "public key", "tx": "transaction", "tz": "time zone",
    "img": "image", "cmd": "command", "param": "parameter", "params": "parameters",
    "info": "details", "ctx": "context", "pwd": "password", "cfg": "settings", "config": "settings",
}  # fmt: skip
_ALONE = {
    "to": "recipient", "from": "sender", "q": "query", "cc": "copy", "id": "ID", "uid": "ID",
    "ids": "IDs", "uuid": "ID", "cwd": "folder", "dir": "folder", "db": "database",
}  # fmt: skip


@dataclass(frozen=True)
class Filled:
    """A slot with the value that was drawn for it."""

    slot: Slot
    value: Json

    @property
    def sort(self) -> str:
        """What the value is, for the choice of words: a pool's name, or its JSON type."""
        if isinstance(self.value, bool):
            return "switch"
        if isinstance(self.value, (int, float)):
            return "number"
        if self.slot.schema.get("enum"):
            return "choice"
        return find_sort(self.slot) if isinstance(self.value, str) else "parts"

    @property
    def label(self) -> str:
        """What a person calls the parameter: `repo_path` -> repo, `issue_key` -> issue."""
        words = [word for word in self.slot.words if word not in SUFFIXES] or [*self.slot.words]
        words = [_SPELLED.get(word, word) for word in words]
        return _ALONE.get(words[0], words[0]) if len(words) == 1 else " ".join(words) or "value"


def say_value(value: Json, rng: random.Random, free: bool) -> str:
    """A scalar in words; `free` allows forms that must be read to be matched (dates, numbers)."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and free and 0 <= value <= 20 and rng.random() < 0.5:
        return NUMBER_WORDS[value]
    if isinstance(value, (int, float)):
        return f"{value:.12g}" if abs(value) < 1e6 and isinstance(value, float) else str(value)
    if value is None:
        return "nothing"
    if free and isinstance(value, str) and re.fullmatch(r"\d{4}-\d\d-\d\d", value):
        try:
            day = dt.date.fromisoformat(value)
        except ValueError:
            return value
        forms = (f"{day.day} {day:%B} {day.year}", f"{day:%B} {day.day}, {day.year}", value)
        return rng.choice(forms)
    return str(value)


def join_list(values: list[str], rng: random.Random) -> str:
    """`a, b and c`."""
    if len(values) < 2:
        return "".join(values)
    return ", ".join(values[:-1]) + rng.choice([" and ", " and also ", ", "]) + values[-1]


def quote_text(text: str, rng: random.Random) -> str:
    """The text in quotes when it has several words or says something odd."""
    if re.fullmatch(r"[\w./:@-]+", text) and rng.random() < 0.75:
        return text
    return f"'{text}'" if "'" not in text or rng.random() < 0.3 else f'"{text}"'
