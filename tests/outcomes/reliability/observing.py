"""Observations and logs that the tests of reliability share."""

import json
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from assets.outcomes.reliability.observation import Observation

NOW = datetime(2026, 3, 1, 12, tzinfo=UTC).timestamp()
DAY = 86_400.0
TOOL, DIGEST = "npm:files::read_file", "c1:" + "a" * 64


def observe(success: bool = True, **facts: Any) -> Observation:
    """An observation of one tool an hour ago."""
    known: dict[str, Any] = {"at": NOW - 3600, "tool_id": TOOL, "contract_digest": DIGEST}
    return Observation(**{**known, "success": success, **facts})


def write_log(place: Path, lines: list[dict[str, Any] | str]) -> None:
    """A log of calls of one day; a text stands as it is."""
    folder = place / "outcomes"
    folder.mkdir(parents=True, exist_ok=True)
    texts = [one if isinstance(one, str) else json.dumps(one) for one in lines]
    (folder / "2026-03-01.jsonl").write_text("".join(f"{text}\n" for text in texts))


def call(call_id: str, status: str = "ok", **facts: Any) -> dict[str, Any]:
    """The line of a call."""
    named = {"token": "ci", "tool_id": TOOL, "contract_digest": DIGEST, "call_id": call_id}
    return {"at": NOW - 60, "id": f"i{call_id}", "status": status, **named, **facts}


def report(call_id: str, said: str, **facts: Any) -> dict[str, Any]:
    """The line of a report."""
    return call(call_id, "reported", reported=said, **{"at": NOW - 30, **facts})
