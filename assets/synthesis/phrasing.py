"""Saying values and purposes the way a person would.

What belongs here: a value in words (a path, a date, a switch), weaving values into the object
phrase in place of "a specific X", and synonyms for the tool's own words.
What does not: what to say (`values.py`), the frame around it (`offline.py`).
"""

import datetime as dt
import json
import random
import re
from dataclasses import dataclass
from typing import Any

from assets.synthesis.lexicon import words_in
from assets.synthesis.reading import Slot
from assets.synthesis.sorts import sort_of

Json = Any

NUMBER_WORDS = words_in(
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
        return sort_of(self.slot) if isinstance(self.value, str) else "parts"

    @property
    def label(self) -> str:
        """What a person calls the parameter: `repo_path` -> repo, `issue_key` -> issue."""
        words = [word for word in self.slot.words if word not in SUFFIXES] or [*self.slot.words]
        words = [_SPELLED.get(word, word) for word in words]
        return _ALONE.get(words[0], words[0]) if len(words) == 1 else " ".join(words) or "value"


def said(value: Json, rng: random.Random, free: bool) -> str:
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


def listed(values: list[str], rng: random.Random) -> str:
    """`a, b and c`."""
    if len(values) < 2:
        return "".join(values)
    return ", ".join(values[:-1]) + rng.choice([" and ", " and also ", ", "]) + values[-1]


def quoted(text: str, rng: random.Random) -> str:
    """The text in quotes when it has several words or says something odd."""
    if re.fullmatch(r"[\w./:@-]+", text) and rng.random() < 0.75:
        return text
    return f"'{text}'" if "'" not in text or rng.random() < 0.3 else f'"{text}"'


def clause(filled: Filled, rng: random.Random, free: bool) -> str:
    """A value as a clause that can follow the request: `in /home/x`, `no more than 5`."""
    sort, label, value = filled.sort, filled.label, filled.value
    words = set(filled.slot.words)
    if sort == "parts":
        return _parts(filled, rng, free)
    text = said(value, rng, free)
    if sort == "switch":
        return _switch(label, bool(value), rng)
    forms = _forms(sort, words, label, value)
    if forms is None:
        forms = [f"with {label} {{q}}", f"{label} {{q}}", f"{{q}} as the {label}"]
    form = rng.choice(forms)
    return form.replace("{q}", quoted(text, rng)).replace("{v}", text)


def _forms(sort: str, words: set[str], label: str, value: Json) -> list[str] | None:
    if sort == "number":
        if words & {"limit", "max", "top", "count", "results", "size", "num", "per"}:
            return ["no more than {v}", "{v} at most", "just {v} of them", f"{label} {{v}}",
                    "up to {v}", "{v} is enough"]  # fmt: skip
        if words & {"page"}:
            return ["page {v}", "I'm on page {v}"]
        if words & {"id", "number"}:
            return [f"for {label} {{v}}", f"{label} {{v}}", f"{label} number {{v}}"]
        return [f"with a {label} of {{v}}", f"{label} {{v}}", f"{label} should be {{v}}",
                f"{label}: {{v}}"]  # fmt: skip
    if sort == "choice":
        return [f"{label} {{v}}", f"with {label} set to {{v}}", f"as {{v}} for the {label}",
                f"{label}: {{v}}"]  # fmt: skip
    if sort in ("path", "folder_path", "repo_path", "filename", "image_path", "video_path"):
        if words & {"output", "destination", "dest", "save", "target", "to"}:
            return ["to {v}", "and put it in {v}", "saving it as {v}"]
        return ["in {v}", "at {v}", "from {v}", "under {v}"]
    if sort in ("url", "image_url", "domain"):
        return ["at {v}", "from {v}", "for {v}", "the address is {v}"]
    if sort in ("city", "country", "timezone", "airport", "address"):
        if words & {"source", "origin", "from", "departure"}:
            return ["from {v}", "starting in {v}"]
        if words & {"target", "destination", "to", "arrival"}:
            return ["to {v}", "into {v}"]
        return ["in {v}", "for {v}", "I mean {v}"]
    if sort in ("date", "datetime", "time"):
        if words & {"start", "from", "since", "after", "begin", "min"}:
            return ["from {v} on", "since {v}", "starting {v}"]
        if words & {"end", "to", "until", "before", "due", "max", "deadline"}:
            return ["until {v}", "up to {v}", "by {v}"]
        return ["on {v}", "for {v}", "{v}"] if sort != "time" else ["at {v}", "for {v}"]
    if sort in ("topic", "thing"):
        return ["about {v}", "on {v}", "mentioning {v}", "for {q}", "to do with {v}"]
    if sort in ("sentence", "thought", "prompt", "question", "goal", "trouble"):
        return [f"with the {label} '{{v}}'", "saying '{v}'", "it should read '{v}'",
                f"{label}: '{{v}}'"]  # fmt: skip
    if sort in ("title", "project") and words & {"title", "name", "new", "subject", "summary"}:
        return ["called {q}", "named {q}", "titled {q}", f"with the {label} {{q}}"]
    if sort in (
        "id",
        "issue_key",
        "session",
        "connection_id",
        "account",
        "uuid",
        "token",
        "doi",
        "isbn",
        "tx_hash",
        "wallet",
        "public_key",
        "iban",
        "vin",
        "mac",
    ):
        if label == "ID":
            return ["with ID {v}", "number {v}", "the one with ID {v}"]
        return [f"for {label} {{v}}", f"{label} {{v}}", f"{label} ID {{v}}", f"with {label} {{v}}"]
    if sort in ("email", "person", "username", "phone", "first", "last"):
        return [f"for {{v}} as {label}", f"with {{v}} as the {label}", f"{label} {{v}}"]
    if sort in ("symbol", "coin", "pair", "company", "package", "currency"):
        return ["for {v}", f"{label} {{v}}"]
    if sort in CALLED:
        return [f"in the {label} {{q}}", f"{label} {{q}}", f"the {label} is {{q}}"]
    if sort in ("code", "sql", "command", "js_function", "formula"):
        return [f"{label}: {{v}}", f"with this {label}: {{v}}", "namely {v}"]
    return None


def _switch(label: str, on: bool, rng: random.Random) -> str:
    bare = re.sub(r"^(?:is|include|enable|use|should|with|show|allow|return|has)\s+", "", label)
    if on:
        forms = [f"with {bare}", f"with {label} on", f"{bare} included", f"yes to {label}"]
    else:
        forms = [f"without {bare}", f"no {bare}", f"with {label} off", f"leave {bare} out"]
    return rng.choice(forms)


def _parts(filled: Filled, rng: random.Random, free: bool) -> str:
    value, label = filled.value, filled.label
    if isinstance(value, list):
        scalars = [item for item in value if not isinstance(item, (dict, list))]
        if len(scalars) == len(value):
            text = listed([quoted(said(item, rng, False), rng) for item in value], rng)
            options = [f"{label}: {text}", f"namely {text}", f"for {text}", f"with {label} {text}"]
            return rng.choice(options) if value else f"with no {label}"
        return f"{label}: " + "; ".join(spelled(item) for item in value)
    return f"{label}: {spelled(value)}"


def spelled(value: Json) -> str:
    """Nested values in plain words: `name Maya, type person`."""
    if isinstance(value, dict):
        return ", ".join(f"{_spaced(key)} {spelled(member)}" for key, member in value.items())
    if isinstance(value, list):
        return " and ".join(spelled(member) for member in value) or "none"
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) and " " in value:
        return f"'{value}'"
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)


def _spaced(name: str) -> str:
    if name.startswith("$"):
        return name
    return re.sub(r"(?<=[a-z])(?=[A-Z])", " ", name).replace("_", " ").lower()
