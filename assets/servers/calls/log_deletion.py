"""Deletion from the log of calls by whom or what its lines are of."""

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from typing import Any

from assets.servers.calls.log import Outcomes, parse_line, query_digest
from warehouse.errors import UnusableInput
from warehouse.storage.files import rewrite_lines


class NoSubject(UnusableInput):
    """A deletion that names nothing to delete."""


@dataclass(frozen=True)
class Subject:
    """Whose or which lines: all that is given must hold of a line. query: in its own words; lines
    that hold its digest alone are found too."""

    token: str | None = None
    client: str | None = None
    query: str | None = None
    before: date | None = None

    def __post_init__(self) -> None:
        named = {"token": self.token, "client": self.client, "query": self.query}
        given = {name: value for name, value in named.items() if value is not None}
        if empty := [name for name, value in given.items() if not value.strip()]:
            raise NoSubject(f"{empty[0]} is empty: expected a token, client, query or day")
        if not given and self.before is None:
            raise NoSubject("nothing to delete is named: expected a token, client, query or day")

    def covers(self, line: Mapping[str, Any], day: str) -> bool:
        """Whether a line of a day's file is of it. day: as 2026-11-23."""
        wanted = {"token": self.token, "client": self.client}
        if any(value is not None and line.get(name) != value for name, value in wanted.items()):
            return False
        if self.query is not None and line.get("query") != query_digest(self.query):
            return False
        return self.before is None or day < self.before.isoformat()


def remove_lines(outcomes: Outcomes, subject: Subject) -> dict[str, int]:
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


def _keep_line(subject: Subject, day: str, gone: list[str], text: str) -> bool:
    """Whether a line stays; why it does not is added to `gone`."""
    line = parse_line(text)
    if line is not None and not subject.covers(line, day):
        return True
    gone.append("unreadable" if line is None else "deleted")
    return False


def count_lines(outcomes: Outcomes) -> list[dict[str, Any]]:
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
