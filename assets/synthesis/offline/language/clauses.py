"""A value as a clause that follows a request: `in /home/x`, `no more than 5`, `titled 'Spring'`."""

import json
import random
import re
from typing import Any

from assets.synthesis.offline.language.phrasing import CALLED, Filled, listed, quoted, said

Json = Any


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
