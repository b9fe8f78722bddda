"""Inert pages and annotations of a contract check (GitHub Docs, "Workflow commands for GitHub
Actions")."""

import json
from collections.abc import Iterator, Mapping
from typing import Any

from assets.contracts.scan import HIGH
from extensions.contract_ci.check import ALARMING, list_failing
from warehouse.sanitize.markdown import (
    Markdown,
    fill_markdown,
    join_markdown,
    make_markdown_table,
    quote_text,
)
from warehouse.sanitize.untrusted_text import escape_text

_MOST = 50  # rows of one table


def write_page(report: Mapping[str, Any]) -> Markdown:
    changes = report["changes"]
    counts = ", ".join(
        f"{sum(change['class'] == cls for change in changes)} {cls}"
        for cls in ("suspicious", "breaking", "compatible", "wording")
    )
    sections = [
        Markdown("## Tool contracts"),
        fill_markdown("{} tools changed ({}), {} the same.", len(changes), counts, report["same"]),
    ]
    if changes:
        sections.append(_list_changes(changes))
    if report["findings"]:
        rows = [
            (
                entry["severity"],
                entry["rule"],
                quote_text(entry["tool"]),
                quote_text(entry["excerpt"]),
            )
            for entry in report["findings"][:_MOST]
        ]
        table = make_markdown_table(("severity", "rule", "tool", "text"), rows)
        sections += [Markdown("### Found by the scan"), table]
    if report.get("lookalikes"):
        rows = [
            (quote_text(entry["tool"]), quote_text(entry["other"]), entry["cosine"])
            for entry in report["lookalikes"][:_MOST]
        ]
        heads = ("tool", "looks like", "cosine")
        sections += [Markdown("### New look-alikes"), make_markdown_table(heads, rows)]
    if report["left_out"]:
        lines = [fill_markdown("- {}", quote_text(line)) for line in report["left_out"][:_MOST]]
        sections += [Markdown("### Not compared"), join_markdown("\n", lines)]
    return join_markdown("\n\n", sections)


def _list_changes(changes: list[dict[str, Any]]) -> Markdown:
    order = ("suspicious", "breaking", "compatible", "wording")
    rows = []
    for entry in sorted(changes, key=lambda each: order.index(each["class"]))[:_MOST]:
        renamed = f" (was {entry['renamed_from']})" if entry["renamed_from"] else ""
        call = entry["call"]
        rows.append(
            (
                entry["class"],
                quote_text(entry["tool"] + renamed),
                entry["why"],
                fill_markdown("{}: {}", quote_text(json.dumps(call["arguments"])), call["why"])
                if call and call["arguments"] is not None
                else (call or {}).get("why", ""),
            )
        )
    return make_markdown_table(("class", "tool", "why", "a call that was right"), rows)


_MOST_ANNOTATIONS = 10  # of each level that GitHub shows of a step
_LONGEST_ANNOTATIONS = 500  # characters of one
_LEVELS = ("error", "warning")


def write_annotations(report: Mapping[str, Any], fail_on: str) -> list[str]:
    """One line each of what is worst in a report of `check.py`: errors are what the check fails on
    under `fail_on`. Ten of a level at most; the last of more says how many there are."""
    lines = []
    for level in _LEVELS:
        texts = [text for of, text in _list_texts(report, fail_on) if of == level]
        if len(texts) > _MOST_ANNOTATIONS:
            left = len(texts) - _MOST_ANNOTATIONS + 1
            texts[_MOST_ANNOTATIONS - 1 :] = [f"{left} more: see the summary of this job"]
        lines += [f"::{level} title=Tool contracts::{_escape_data(text)}" for text in texts]
    return lines


def _list_texts(report: Mapping[str, Any], fail_on: str) -> Iterator[tuple[str, str]]:
    failing = list_failing(fail_on)
    for change in sorted(report["changes"], key=lambda entry: entry["class"] != "suspicious"):
        if change["class"] in ALARMING:
            call = change["call"] or {}
            details = [change["why"], call.get("why")]
            if call.get("arguments") is not None:
                details.append(f"was right: {json.dumps(call['arguments'], ensure_ascii=False)}")
            level = "error" if change["class"] in failing else "warning"
            yield level, f"{change['class']}: {change['tool']}: {'; '.join(filter(None, details))}"
    for entry in report["findings"]:
        if entry["severity"] == HIGH or entry["rule"] == "malformed_tool":
            level = "error" if failing and entry["severity"] == HIGH else "warning"
            yield level, f"{entry['rule']}: {entry['tool']}: {entry['excerpt']}"
    for entry in report.get("lookalikes", ()):
        yield "warning", f"look-alike: {entry['tool']} of {entry['other']}"


def _escape_data(text: str) -> str:
    """A text as the data of a command: one line, of which the runner decodes nothing else."""
    line = escape_text(text)[:_LONGEST_ANNOTATIONS]
    return line.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
