"""Outcomes: the result of each call that was asked for here, one JSON line each; and searches.

    <place>/outcomes/<UTC date>.jsonl
    <place>/traces/<UTC date>.jsonl    calls with arguments and answers, of tokens with `traces`

A line of outcomes never holds the value of an argument, a result or a token: a reader of the file
learns which tool was called under which token's name and how it ended. A query is there as the
digest of its words, so that calls of one query can be set side by side; who guesses the words can
test the guess. A search leaves a line of its own, with the query's words or vector and the tools it
showed, under the names of tokens that opted in (`Token.remember`), and none under others.
"""

import base64
import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime, timedelta
from functools import cached_property, partial
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING, Any

from warehouse.errors import UnusableInput
from warehouse.sanitize.redact import redact_prose
from warehouse.storage.files import append_line, remove_unfinished, rewrite_lines

if TYPE_CHECKING:
    import numpy as np

STATUSES = (
    *("ok", "tool_error", "invalid_arguments", "failed"),  # of a call: see `CallResult`
    *("declined", "cancelled", "refused"),  # asked, not run
    "reported",  # what somebody says of a call or tool
    "searched",  # what was asked for, and which tools were shown
)
REPORTS = ("worked", "wrong_tool", "failed")
MOST_WORDS = 4000  # characters that are kept of a query
TRACE_FORMAT = "toolmill-trace-1"  # of the lines of `traces`
LONGEST_TRACE = 64_000  # characters of one
_TEXTS = {  # the longest text of each field that holds one
    "token": 100,
    "index": 100,
    "tool_id": 300,
    "contract_digest": 100,
    "status": 40,
    "error_kind": 60,
    "blame": 20,
    "query": 100,
    "call_id": 64,
    "reported": 20,
    "note": 500,
    "search_id": 64,
    "client": 100,  # as it names itself
    "words": MOST_WORDS,  # of the query
    "vector": 40_000,  # of the query: float16, base64
    "embedder": 200,  # that made the vector
}
_NUMBERS = {  # and how many decimals are kept
    "seconds": 3,
    "repaired": 0,
    "rank": 0,  # of the tool in the search that found it, from 1
}
_LISTS = {  # tool ids by rank, and how many at most
    "shown": 100
}
_DAY = re.compile(r"\d{4}-\d\d-\d\d\.jsonl")


class BadOutcome(ValueError):
    """A line that has no place here: the message names the field."""


class CallLog:
    """The outcomes under one place. Several processes may write at once: a line is one write.

    days: how many days back lines are kept, today's among them; 0 keeps them until they are
    deleted. What is older goes with the first line of each day that this process writes.
    """

    def __init__(self, place: Path, days: int = 0, name: str = "outcomes") -> None:
        self.folder, self.days = place / name, days
        self._pruned: date | None = None

    @cached_property
    def traces(self) -> "CallLog":
        """The log of whole calls beside this one."""
        return CallLog(self.folder.parent, self.days, "traces")

    def record(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Appends one line and returns it. Raises BadOutcome for a field that is not known."""
        line: dict[str, Any] = {}
        for field, value in facts.items():
            if field not in _TEXTS and field not in _NUMBERS and field not in _LISTS:
                fields = [*_TEXTS, *_NUMBERS, *_LISTS]
                raise BadOutcome(f"outcome field {field!r}: expected one of {fields}")
            if value is None:
                continue
            if field in _TEXTS:
                line[field] = str(value)[: _TEXTS[field]]
            elif field in _LISTS:
                line[field] = [str(item)[: _TEXTS["tool_id"]] for item in value][: _LISTS[field]]
            else:
                decimals = _NUMBERS[field]
                line[field] = round(float(value), decimals) if decimals else int(value)
        if line.get("status") not in STATUSES:
            raise BadOutcome(f"outcome status {line.get('status')!r}: expected one of {STATUSES}")
        if line.get("reported") not in (None, *REPORTS):
            raise BadOutcome(f"outcome reported {line['reported']!r}: expected one of {REPORTS}")
        return self.append({"id": uuid.uuid4().hex, **line})

    def keep_trace(self, token: str, words: str, facts: Mapping[str, Any], text: str) -> None:
        """Appends a whole call, redacted, to the traces, unless it is too long. words: what it was
        made for. facts: tool_id, contract_digest, arguments, status."""
        if len(json.dumps([*facts.values(), text])) > LONGEST_TRACE:
            return
        # Half of a secret has no known form: the words are cut behind the redaction.
        line = redact_prose({**facts, "text": text, "words": words[: 4 * MOST_WORDS]})
        line |= {"token": token, "format": TRACE_FORMAT, "words": line["words"][:MOST_WORDS]}
        self.traces.append(line)

    def append(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Appends a line that the caller bounded and redacted, and returns it."""
        line = {"at": round(time.time(), 3), **facts}
        day = datetime.fromtimestamp(line["at"], UTC).date()
        append_line(self.folder / f"{day}.jsonl", json.dumps(line, ensure_ascii=True))
        if self.days and self._pruned != day:
            self._pruned = day
            self.delete_before(day - timedelta(days=self.days - 1))
        return line

    def delete_before(self, first: date) -> int:
        """Deletes the days before one; returns how many."""
        old = [path for path in self.list_files() if path.stem < first.isoformat()]
        for path in old:
            remove_unfinished(path)
            path.unlink(missing_ok=True)
        return len(old)

    def list_files(self) -> list[Path]:
        """The files of the days, oldest first."""
        return [path for path in sorted(self.folder.glob("*.jsonl")) if _DAY.fullmatch(path.name)]

    def read(self, since: float = 0.0) -> Iterator[dict[str, Any]]:
        """The lines written at or after `since` (epoch seconds), oldest day first.

        A line that a kill cut short is passed over.
        """
        first = datetime.fromtimestamp(max(0.0, since), UTC).date().isoformat()
        for path in self.list_files():
            if path.stem < first:
                continue
            for text in path.read_text(encoding="utf-8", errors="replace").split("\n"):
                line = parse_line(text)
                if line is not None and line["at"] >= since:
                    yield line


def query_digest(query: str) -> str:
    """The digest of a query's words, whatever their case and spacing."""
    words = " ".join(query.casefold().split())
    return "q1:" + sha256(words.encode("utf-8", "surrogatepass")).hexdigest()


def clean_words(query: str) -> str:
    """A query as it may be kept: without secrets, and of a length that a line takes."""
    return redact_prose(query[: 4 * MOST_WORDS])[:MOST_WORDS]


def pack_vector(vector: "np.ndarray") -> str:
    """A vector as it is kept: float16 in base64."""
    return base64.b64encode(vector.astype("<f2").tobytes()).decode()


def parse_line(text: str) -> dict[str, Any] | None:
    """A line as it was recorded; None for what is none, as one that a kill cut short."""
    try:
        line = json.loads(text)
    except (ValueError, RecursionError):
        return None
    whole = isinstance(line, dict) and isinstance(line.get("at"), int | float)
    return line if whole else None


class NoSubject(UnusableInput):
    """A deletion that names nothing to delete."""


@dataclass(frozen=True)
class DeletionSubject:
    """Whose or which lines: all that is given must hold of a line. query: in its own words; lines
    that hold its digest alone are found too."""

    token: str | None = None
    client: str | None = None
    query: str | None = None
    before: date | None = None

    def __post_init__(self) -> None:
        criteria = {"token": self.token, "client": self.client, "query": self.query}
        stated = {name: value for name, value in criteria.items() if value is not None}
        if empty := [name for name, value in stated.items() if not value.strip()]:
            raise NoSubject(f"{empty[0]} is empty: expected a token, client, query or day")
        if not stated and self.before is None:
            raise NoSubject("nothing to delete is named: expected a token, client, query or day")

    def covers(self, line: Mapping[str, Any], day: str) -> bool:
        """Whether a line of a day's file is of it. day: as 2026-11-23."""
        criteria = {"token": self.token, "client": self.client}
        if any(value is not None and line.get(name) != value for name, value in criteria.items()):
            return False
        if self.query is not None and line.get("query") != query_digest(self.query):
            return False
        return self.before is None or day < self.before.isoformat()


def remove_lines(outcomes: CallLog, subject: DeletionSubject) -> dict[str, int]:
    """Deletes a subject's lines, and what a kill left of lines, which may be of it: {deleted,
    unreadable, files}. Each file is replaced as a whole; a kill leaves files as they were or as
    they are to be. A report about a call, and a call of what a search showed, have lines of their
    own, and go where they are of the subject."""
    counts = {"deleted": 0, "unreadable": 0, "files": 0}
    for path in outcomes.list_files():
        gone: list[str] = []
        if rewrite_lines(path, partial(_keep_line, subject, path.stem, gone)):
            counts["files"] += 1
            for name in gone:
                counts[name] += 1
    return counts


def _keep_line(subject: DeletionSubject, day: str, gone: list[str], text: str) -> bool:
    """Whether a line stays; why it does not is added to `gone`."""
    line = parse_line(text)
    if line is not None and not subject.covers(line, day):
        return True
    gone.append("unreadable" if line is None else "deleted")
    return False


def count_lines(outcomes: CallLog) -> list[dict[str, Any]]:
    """What is remembered, by token: lines, searches, those with a query's words or vector, and the
    first and last day."""
    by_token: dict[str, dict[str, Any]] = {}
    for path in outcomes.list_files():
        for text in path.read_text(encoding="utf-8", errors="replace").split("\n"):
            if line := parse_line(text):
                blank = {"lines": 0, "searches": 0, "queries": 0, "first": path.stem}
                about = by_token.setdefault(str(line.get("token") or ""), blank)
                about["lines"] += 1
                about["searches"] += line.get("status") == "searched"
                about["queries"] += "words" in line or "vector" in line
                about["last"] = path.stem
    return [{"token": name, **about} for name, about in sorted(by_token.items())]
