"""The page of a contract check: Markdown for a pull request, in which no text of a server acts."""

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
_LONGEST = 2_000  # characters of a description that is proposed


def write_page(report: Mapping[str, Any]) -> Markdown:
    """What `check.py` found, the worst first."""
    changes = report["changes"]
    counts = ", ".join(
        f"{sum(change['class'] == cls for change in changes)} {cls}"
        for cls in ("suspicious", "breaking", "compatible", "wording")
    )
    parts = [
        Markdown("## Tool contracts"),
        fill_markdown("{} tools changed ({}), {} the same.", len(changes), counts, report["same"]),
    ]
    if changes:
        parts.append(_list_changes(changes))
    if report["findings"]:
        rows = [
            (one["severity"], one["rule"], quote_text(one["tool"]), quote_text(one["excerpt"]))
            for one in report["findings"][:_MOST]
        ]
        table = make_markdown_table(("severity", "rule", "tool", "text"), rows)
        parts += [Markdown("### Found by the scan"), table]
    if report.get("lookalikes"):
        rows = [
            (quote_text(one["tool"]), quote_text(one["other"]), one["cosine"], one["tells_apart"])
            for one in report["lookalikes"][:_MOST]
        ]
        heads = ("tool", "looks like", "cosine", "what tells them apart")
        parts += [Markdown("### New look-alikes"), make_markdown_table(heads, rows)]
    if "wording" in report:
        parts += [Markdown("### Wording"), _show_wording(report["wording"])]
    if report["left_out"]:
        lines = [fill_markdown("- {}", quote_text(line)) for line in report["left_out"][:_MOST]]
        parts += [Markdown("### Not compared"), join_markdown("\n", lines)]
    return join_markdown("\n\n", parts)


def _list_changes(changes: list[dict[str, Any]]) -> Markdown:
    order = ("suspicious", "breaking", "compatible", "wording")
    rows = []
    for one in sorted(changes, key=lambda each: order.index(each["class"]))[:_MOST]:
        renamed = f" (was {one['renamed_from']})" if one["renamed_from"] else ""
        call, made = one["call"], one.get("affected") or {}
        rows.append(
            (
                one["class"],
                quote_text(one["tool"] + renamed),
                one["why"],
                fill_markdown("{}: {}", quote_text(json.dumps(call["arguments"])), call["why"])
                if call and call["arguments"] is not None
                else (call or {}).get("why", ""),
                ", ".join(f"{n} {kind}" for kind, n in made.items() if n),
            )
        )
    heads = ("class", "tool", "why", "a call that was right", "made of it")
    shown = len(heads) if any("affected" in change for change in changes) else len(heads) - 1
    return make_markdown_table(heads[:shown], [row[:shown] for row in rows])


def _show_wording(found: Mapping[str, Any]) -> Markdown:
    before, after = (found[key]["recall_at_1"] for key in ("before", "after"))
    if not found["wordings"]:
        return fill_markdown(
            "No other wording was found to help; Recall@1 is {} on {} held-out questions.",
            f"{before:.2f}",
            found["held_out"],
        )
    lead = fill_markdown(
        "On {} held-out questions Recall@1 was {} and is {} [{}, {}] with these descriptions{}.",
        found["held_out"],
        f"{before:.2f}",
        f"{after:.2f}",
        f"{found['after']['low']:.2f}",
        f"{found['after']['high']:.2f}",
        "" if found["shown_to_help"] else ": no gain is shown",
    )
    rows = [
        (quote_text(one["tool"]), quote_text(one["description"], _LONGEST))
        for one in found["wordings"]
    ]
    table = make_markdown_table(("tool", "description"), rows, cap=_LONGEST)
    return join_markdown("\n\n", [lead, table])


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
    line = escape_text(text)[:_LONGEST_ANNOTATIONS]
    return line.replace("%", "%25").replace("\r", "%0D").replace("\n", "%0A")
