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

from assets.synthesis.lexicon import lexicon, words_in
from assets.synthesis.reading import Slot
from assets.synthesis.values import sort_of

Json = Any

NUMBER_WORDS = words_in(
    "zero one two three four five six seven eight nine ten eleven twelve thirteen "
    "fourteen fifteen sixteen seventeen eighteen nineteen twenty"
)
_SUFFIXES = {"id", "ids", "name", "names", "key", "path", "uid", "uuid", "slug", "code", "number"}
_PROPER = {
    "city", "country", "timezone", "symbol", "coin", "pair", "url", "path", "folder_path",
    "repo_path", "email", "person", "topic", "company", "filename", "issue_key", "domain",
    "language", "movie", "song", "artist", "book", "food", "airport", "package", "username",
}  # fmt: skip
_CALLED = {"title", "project", "tag", "table", "database", "sheet", "team", "branch", "repo"}

_WOVEN = (
    _PROPER
    | {"choice", "number", "date", "time", "datetime", "language_code", "currency", "id", "sha"}
    | {"issue_key", "session", "connection_id", "account", "uuid", "token", "project_key", "color"}
    | {"title", "project", "tag", "table", "database", "sheet", "team", "branch", "repo", "status"}
    | {"sentence", "word", "cell", "range", "arxiv_id", "selector", "element", "column", "thing"}
    | {"role", "owner", "version", "country_code", "phone", "entity_type", "unit", "slug_key"}
)


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
        words = [word for word in self.slot.words if word not in _SUFFIXES] or [*self.slot.words]
        return " ".join(words) or "value"


def said(value: Json, rng: random.Random, free: bool) -> str:
    """A scalar in words; `free` allows forms that must be read to be matched (dates, numbers)."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, int) and free and 0 <= value <= 20 and rng.random() < 0.5:
        return NUMBER_WORDS[value]
    if isinstance(value, (int, float)):
        return f"{value:g}" if abs(value) < 1e6 and isinstance(value, float) else str(value)
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
    if sort in ("sentence", "thought", "prompt", "question"):
        return [f"with the {label} '{{v}}'", "saying '{v}'", "it should read '{v}'",
                f"{label}: '{{v}}'"]  # fmt: skip
    if sort in ("title", "project") and words & {"title", "name", "new", "subject", "summary"}:
        return ["called {q}", "named {q}", "titled {q}", f"with the {label} {{q}}"]
    if sort in ("id", "issue_key", "session", "connection_id", "account", "uuid", "token"):
        return [f"for {label} {{v}}", f"{label} {{v}}", f"{label} ID {{v}}", f"with {label} {{v}}"]
    if sort in ("email", "person", "username", "phone", "first", "last"):
        return [f"for {{v}} as {label}", f"with {{v}} as the {label}", f"{label} {{v}}"]
    if sort in ("symbol", "coin", "pair", "company", "package", "currency"):
        return ["for {v}", f"{label} {{v}}"]
    if sort in _CALLED:
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


def weave(rest: str, filled: list[Filled], rng: random.Random, free: bool) -> tuple[str, list]:
    """Puts values where the object phrase speaks of them ("a specific city" -> Lisbon).

    Returns the phrase and what could not be placed. Woven values stand behind NUL marks so that
    later rewording leaves them alone; `restore` puts them back.
    """
    left: list[Filled] = []
    for item in filled:
        if item.sort not in _WOVEN or len(str(item.value)) > 60:
            left.append(item)
            continue
        pattern = _mention(item)
        spans = [m.span() for m in re.finditer("\0[^\0]*\0", rest)]
        found = pattern.finditer(rest) if pattern else ()
        match = next((m for m in found if not any(a <= m.start() < b for a, b in spans)), None)
        if match is None:
            left.append(item)
            continue
        before = rest[: match.start()].split()
        compound = bool(before) and before[-1].lower() not in _OPENING and "\0" not in before[-1]
        noun = match.group("noun") or match.group("other")
        text = _inline(item, noun, rng, free, compound)
        rest = rest[: match.start()] + _mark(text) + rest[match.end() :]
    rest = re.sub(r"\b(?:an?|the) ((?:[\w-]+ ){0,2}\0)", r"\1", rest) if "\0" in rest else rest
    if len(left) < len(filled):
        rest = _BY_ID.sub("", rest)
    return re.sub(r"\s+", " ", rest).strip(), left


_BY_ID = re.compile(
    r"\s+(?:by|using) (?:its |their |the )?(?:unique )?(?:ids?|keys?|names?|\w+ ids?)\b",
    re.IGNORECASE,
)
_OPENING = set(
    words_in("a an the of for to in on at by from with into and or about between as under your")
)


_DETERMINED = (
    r"(?:\b(?:a|an|the|this|that|your|any|some|one|its|their)\s+)?"
    r"(?:\b(?:specific|given|specified|provided|particular|certain|existing|single|new|target)\s+)?"
)


def _mention(item: Filled) -> re.Pattern[str] | None:
    heads = [w for w in item.slot.words if w not in _SUFFIXES and len(w) > 2][-1:]
    if item.sort in ("repo_path", "repo"):
        heads += ["repository"]
    if item.sort == "folder_path" or item.slot.name == "path":
        heads += ["directory", "folder", "path", "file"]
    if item.sort == "city":
        heads += ["location", "place"]
    if not heads:
        return None
    nouns = "|".join(re.escape(head) + ("s?" if item.sort == "topic" else "") for head in heads)
    suffix = r"(?:id|name|key|path|number|identifier)"
    # "from one currency to another": the second of a pair has no noun of its own.
    other = (
        r"|(?<=\bto )(?P<other>another)\b" if set(item.slot.words) & _SECOND else "(?P<other>$^)?"
    )
    return re.compile(
        rf"{_DETERMINED}\b(?P<noun>{nouns})\b(?:\s+{suffix}\b)?(?:\s+or\s+{suffix}\b)*{other}",
        re.IGNORECASE,
    )


_SECOND = {"target", "to", "dest", "destination", "output"}
_ID_LIKE = {
    "id",
    "issue_key",
    "session",
    "connection_id",
    "account",
    "uuid",
    "token",
    "project_key",
}


def _inline(item: Filled, noun: str, rng: random.Random, free: bool, compound: bool) -> str:
    text = said(item.value, rng, free)
    sort = item.sort
    if compound:
        # "a Jira issue": the noun belongs to the words before it and stays.
        return f"{noun} {text if sort in _PROPER or sort == 'number' else quoted(text, rng)}"
    if sort in _PROPER:
        longer = f"the {noun} {text}" if sort in ("repo_path", "path", "folder_path") else text
        return rng.choice([text, text, longer])
    if sort == "choice":
        return rng.choice([f"{text} {noun}", f"{noun} {text}"])
    if sort in _CALLED or sort in ("sentence", "word", "status"):
        return rng.choice(
            [f"the {noun} {quoted(text, rng)}", f"the {noun} called {quoted(text, rng)}"]
        )
    if sort in _ID_LIKE:
        return rng.choice([f"{noun} {text}", f"{noun} {text}", f"the {noun} with ID {text}"])
    return text if noun == "another" else f"{noun} {text}"


def _mark(text: str) -> str:
    return "\0" + text.replace(" ", "\1") + "\0"


def restore(text: str) -> str:
    """Undoes the marks that `weave` put around values."""
    return text.replace("\0", "").replace("\1", " ")


def reword(phrase: str, rng: random.Random, rate: float) -> str:
    """Swaps the tool's own nouns and adjectives for others, each with probability `rate`."""
    nouns = lexicon()["nouns"]
    for size in (2, 1):
        words = phrase.split(" ")
        result: list[str] = []
        position = 0
        while position < len(words):
            key = " ".join(words[position : position + size]).lower().strip(",.")
            options = nouns.get(key)
            own = words[position : position + size]
            # Names stay: "Hacker News" is no headline.
            fixed = any("\0" in word or (position and word[:1].isupper()) for word in own)
            if options and not fixed and (options == [""] or rng.random() < rate):
                result += [rng.choice(options)]
                position += size
                continue
            result.append(words[position])
            position += 1
        phrase = " ".join(word for word in result if word)
    return re.sub(r"\b([Aa])n? (?=([aeiou])?)", _article, phrase)


def shorten(phrase: str, rng: random.Random, rate: float) -> str:
    """Drops trailing modifiers ("from the file system") and idle adjectives, each with probability
    `rate`: people leave out the obvious. What holds a value stays."""
    while rng.random() < rate:
        joints = [m.start() for m in _JOINT.finditer(phrase)]
        head, tail = (phrase[: joints[-1]], phrase[joints[-1] :]) if joints else ("", "")
        if not joints or "\0" in tail or not re.search(r"\w{3,}", head):
            break
        phrase = head
    words = [w for w in phrase.split(" ") if w.lower() not in _IDLE or rng.random() > rate]
    return " ".join(words) if len(words) > 1 else phrase


_JOINT = re.compile(r",?\s(?:from|as|in|with|for|using|on|based|of|by|to|that|and|including)\s")
_IDLE = set(
    words_in(
        "complete entire full detailed current specific available various comprehensive existing "
        "specified given all multiple recent relevant associated related real-time structured"
    )
)


def _article(match: re.Match[str]) -> str:
    return f"{match.group(1)}n " if match.group(2) else f"{match.group(1)} "
