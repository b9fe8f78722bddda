"""Annotations of a contract check: commands to GitHub's runner, in which no text of a server acts.

Source: GitHub Docs, "Workflow commands for GitHub Actions" and the limits of annotations there.
"""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from assets.contracts.scan import HIGH
from extensions.contract_ci.check import ALARMING, list_failing
from warehouse.sanitize.escape import escape_text

_MOST = 10  # of each level that GitHub shows of a step
_LONGEST = 500  # characters of one
_LEVELS = ("error", "warning")


def write_annotations(report: Mapping[str, Any], fail_on: str) -> list[str]:
    """One line each of what is worst in a report of `check.py`: errors are what the check fails on
    under `fail_on`. Ten of a level at most; the last of more says how many there are."""
    lines = []
    for level in _LEVELS:
        texts = [text for of, text in _list_texts(report, fail_on) if of == level]
        if len(texts) > _MOST:
            left = len(texts) - _MOST + 1
            texts[_MOST - 1 :] = [f"{left} more: see the summary of this job"]
        lines += [f"::{level} title=Tool contracts::{_escape_data(text)}" for text in texts]
    return lines


def _list_texts(report: Mapping[str, Any], fail_on: str) -> Iterator[tuple[str, str]]:
    failing = list_failing(fail_on)
    for change in sorted(report["changes"], key=lambda one: one["class"] != "suspicious"):
        if change["class"] in ALARMING:
            call = change["call"] or {}
            shown = [change["why"], call.get("why")]
            if call.get("arguments") is not None:
                shown.append(f"was right: {json.dumps(call['arguments'], ensure_ascii=False)}")
            level = "error" if change["class"] in failing else "warning"
            yield level, f"{change['class']}: {change['tool']}: {'; '.join(filter(None, shown))}"
    for one in report["findings"]:
        if one["severity"] == HIGH or one["rule"] == "malformed_tool":
            level = "error" if failing and one["severity"] == HIGH else "warning"
            yield level, f"{one['rule']}: {one['tool']}: {one['excerpt']}"
    for one in report.get("lookalikes", ()):
        yield "warning", f"look-alike: {one['tool']} of {one['other']}"


def _escape_data(text: str) -> str:
    """A text as the data of a command: one line, of which the runner decodes nothing else."""
    line = escape_text(text)[:_LONGEST]
    return line.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
