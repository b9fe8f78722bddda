"""Making one value of a sort: from its pool, put together, or from a simple pattern.

What belongs here: pools, dates, paths, addresses, and strings that a regular expression describes.
What does not: choosing the sort (`sorts.py`), fitting a schema (`values.py`).
"""

import datetime as dt
import random
from typing import Any

from assets.synthesis.lexicon import pool
from assets.synthesis.reading import Slot
from assets.synthesis.sorts import themed

Json = Any

# Where the calendar of invented dates starts; a fixed day keeps every run reproducible.
_EPOCH = dt.date(2025, 3, 3)


_EXTENSIONS = {
    "excel": "xlsx", "workbook": "xlsx", "sheet": "xlsx", "pdf": "pdf", "word doc": "docx",
    "image": "png", "screenshot": "png", "video": "mp4", "audio": "mp3", "csv": "csv",
    "markdown": "md", "python": "py",
}  # fmt: skip


def invent(sort: str, rng: random.Random, slot: Slot | None = None) -> str:
    """One value of a sort: from its pool, or made."""

    def pick(name: str) -> str:
        return rng.choice(pool(name))

    def number(low: int, high: int) -> int:
        return rng.randint(low, high)

    day = _EPOCH + dt.timedelta(days=rng.randint(0, 420))
    extension = rng.choice(["csv", "md", "txt", "json", "pdf", "xlsx", "docx", "yaml"])
    about = f"{slot.about} {slot.hint}".lower() if slot else ""
    extension = next((to for mark, to in _EXTENSIONS.items() if mark in about), extension)
    home = f"/home/{pick('first').lower().replace('á', 'a')}/{pick('folder')}"
    hexes = "".join(rng.choice("0123456789abcdef") for _ in range(24))
    makers = {
        "date": day.isoformat,
        "datetime": lambda: f"{day}T{number(7, 19):02d}:{15 * number(0, 3):02d}:00Z",
        "time": lambda: f"{number(6, 22):02d}:{5 * number(0, 11):02d}",
        "email": lambda: f"{pick('first')}.{pick('last')}@{pick('domain')}".lower()
        .encode("ascii", "ignore").decode(),
        "url": lambda: f"https://{pick('domain')}/{pick('slug')}",
        "image_url": lambda: f"https://{pick('domain')}/img/{pick('stem')}.png",
        "path": lambda: f"{home}/{pick('stem')}.{extension}",
        "image_path": lambda: f"{home}/{pick('stem')}.png",
        "video_path": lambda: f"{home}/{pick('stem')}.mp4",
        "folder_path": lambda: f"{home}/{pick('project')}",
        "repo_path": lambda: f"{home}/{pick('repo')}",
        "filename": lambda: f"{pick('stem')}.{extension}",
        "person": lambda: f"{pick('first')} {pick('last')}",
        "phone": lambda: f"+1 202-555-01{rng.randint(10, 99)}",
        "zip": lambda: str(rng.randint(10001, 98999)),
        "uuid": lambda: f"{hexes[:8]}-{hexes[8:12]}-4{hexes[12:15]}-a{hexes[15:18]}-{hexes[:12]}",
        "sha": lambda: rng.choice([hexes[:7], "HEAD", "HEAD~2", pick("branch")]),
        "id": lambda: rng.choice(
            [str(rng.randint(1000, 99999)), f"{pick('project')[:3]}-{rng.randint(10, 999)}",
             str(rng.randint(10**8, 10**9))]),
        "token": lambda: f"{pick('project')}{rng.randint(10, 99)}",
        "slug_key": lambda: f"{pick('project')}:{pick('stem')}",
        "account": lambda: str(rng.randint(10**7, 10**8)),
        "issue_key": lambda: f"{pick('project')[:4].upper()}-{rng.randint(2, 980)}",
        "project_key": lambda: pick("project")[:4].upper(),
        "arxiv_id": lambda: f"2{number(0, 5)}{number(1, 12):02d}.{number(1000, 19999):05d}",
        "order_id": lambda: f"{pick('project')[:2].upper()}{rng.randint(10**7, 10**8)}",
        "session": lambda: f"{pick('project')}-{rng.randint(2, 60)}",
        "connection_id": lambda: f"{pick('environment')}-{rng.randint(2, 60)}",
        "connection_string": lambda: f"mongodb://{pick('domain')}:27017/{pick('database')}",
        "jql": lambda: f"project = {pick('project')[:4].upper()} AND status = {pick('stem')}",
        "cql": lambda: f"type = page AND title ~ \"{pick('stem')}\"",
        "emoji": lambda: rng.choice(["📌", "🚀", "🌱", "📚"]),
        "user_agent": lambda: "Mozilla/5.0 (X11; Linux x86_64)",
        "secret": lambda: f"key-{hexes[:10]}",
        "stage": lambda: pick("status"),
        "span": lambda: f"{rng.randint(1, 6)}h {rng.choice((15, 20, 30, 45))}m",
        "small_number": lambda: str(rng.randint(3, 900)),
    }  # fmt: skip
    if sort in ("topic", "project") and slot is not None:
        sort = themed(slot, sort)
    return makers[sort]() if sort in makers else pick(sort)


def from_pattern(pattern: str, rng: random.Random) -> str | None:
    """A string that a simple regular expression describes, or None."""
    from re import _parser as parser  # type: ignore[attr-defined]  # how `re` reads a pattern

    try:
        return _say(parser.parse(pattern), rng)
    except Exception:  # features beyond literals, sets and repeats
        return None


_LONGEST = 200  # characters; a longer pattern is no identifier


def _say(parsed: Json, rng: random.Random) -> str:
    said = ""
    for op, arg in parsed:
        if len(said) > _LONGEST:
            raise ValueError("too long")
        name = str(op)
        if name == "LITERAL":
            said += chr(arg)
        elif name == "ANY":
            said += "a"
        elif name == "IN":
            said += _member(arg, rng)
        elif name in ("MAX_REPEAT", "MIN_REPEAT"):
            low, high, sub = arg
            if int(low) > _LONGEST:
                raise ValueError("too long")
            times = rng.randint(int(low), min(int(high), int(low) + 5))
            said += "".join(_say(sub, rng) for _ in range(times))
        elif name == "SUBPATTERN":
            said += _say(arg[3], rng)
        elif name == "BRANCH":
            said += _say(rng.choice(arg[1]), rng)
        elif name != "AT":
            raise ValueError(name)
    return said


def _member(options: Json, rng: random.Random) -> str:
    op, arg = rng.choice(options)
    if str(op) == "LITERAL":
        return chr(arg)
    if str(op) == "RANGE":
        return chr(rng.randint(arg[0], arg[1]))
    kinds = {"CATEGORY_DIGIT": "0123456789", "CATEGORY_WORD": "abcdefgh", "CATEGORY_SPACE": " "}
    return rng.choice(kinds[str(arg)])
