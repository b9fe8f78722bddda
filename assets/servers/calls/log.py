"""Outcomes: the result of each call that was asked for here, one JSON line each.

    <place>/outcomes/<UTC date>.jsonl

A line never holds the value of an argument, a result, a query or a token: whoever reads the file
learns which tool was called under which token's name and how it ended. A query is there as the
digest of its words, so that calls of one query can be set side by side; who guesses the words can
test the guess.
"""

import json
import re
import time
import uuid
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from hashlib import sha256
from pathlib import Path
from typing import Any

from warehouse.storage.files import append_line

STATUSES = (
    *("ok", "tool_error", "invalid_arguments", "failed"),  # of a call: see `CallResult`
    *("declined", "cancelled", "refused"),  # asked, not run
    "reported",  # what somebody says of a call or tool
)
REPORTS = ("worked", "wrong_tool", "failed")
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
}
_NUMBERS = ("seconds", "repaired")
_DAY = re.compile(r"\d{4}-\d\d-\d\d\.jsonl")


class BadOutcome(ValueError):
    """A line that has no place here: the message names the field."""


class Outcomes:
    """The outcomes under one place. Several processes may write at once: a line is one write."""

    def __init__(self, place: Path) -> None:
        self.folder = place / "outcomes"

    def record(self, facts: Mapping[str, Any]) -> dict[str, Any]:
        """Appends one line and returns it. Raises BadOutcome for a field that is not known."""
        line = {"at": round(time.time(), 3), "id": uuid.uuid4().hex, **_bound_facts(facts)}
        day = datetime.fromtimestamp(line["at"], UTC).date()
        append_line(self.folder / f"{day}.jsonl", json.dumps(line, ensure_ascii=True))
        return line

    def read(self, since: float = 0.0) -> Iterator[dict[str, Any]]:
        """The lines written at or after `since` (epoch seconds), oldest day first.

        A line that a kill cut short is passed over.
        """
        first = datetime.fromtimestamp(max(0.0, since), UTC).date().isoformat()
        for path in sorted(self.folder.glob("*.jsonl")):
            if not _DAY.fullmatch(path.name) or path.stem < first:
                continue
            for text in path.read_text(encoding="utf-8", errors="replace").splitlines():
                line = _parse_line(text)
                if line is not None and line["at"] >= since:
                    yield line


def query_digest(query: str) -> str:
    """The digest of a query's words, whatever their case and spacing."""
    words = " ".join(query.casefold().split())
    return "q1:" + sha256(words.encode("utf-8", "surrogatepass")).hexdigest()


def _bound_facts(facts: Mapping[str, Any]) -> dict[str, Any]:
    kept: dict[str, Any] = {}
    for field, value in facts.items():
        if field not in _TEXTS and field not in _NUMBERS:
            raise BadOutcome(f"outcome field {field!r}: expected one of {[*_TEXTS, *_NUMBERS]}")
        if value is None:
            continue
        if field in _TEXTS:
            kept[field] = str(value)[: _TEXTS[field]]
        else:
            kept[field] = round(float(value), 3) if field == "seconds" else int(value)
    if kept.get("status") not in STATUSES:
        raise BadOutcome(f"outcome status {kept.get('status')!r}: expected one of {STATUSES}")
    if kept.get("reported") not in (None, *REPORTS):
        raise BadOutcome(f"outcome reported {kept['reported']!r}: expected one of {REPORTS}")
    return kept


def _parse_line(text: str) -> dict[str, Any] | None:
    try:
        line = json.loads(text)
    except ValueError:
        return None
    whole = isinstance(line, dict) and isinstance(line.get("at"), int | float)
    return line if whole else None
