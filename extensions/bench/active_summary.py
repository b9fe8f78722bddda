"""What a comparison of arms came to, as plain data and as a table."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from itertools import combinations
from typing import Any

from extensions.bench.active_cases import ARMS
from training.evaluation.metrics import MetricFigure, bootstrap_difference, bootstrap_mean
from training.figures import format_interval, format_table
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown

RULES = {
    "right": "the first tool that was called is the expected one, or one that says the same; of"
    " retrieval, the router's first hit for the user's last words",
    "first": "the router's first hit for the model's first request is right (MCP-Zero's measure)",
    "tool_tokens": "what showing tools puts into the prompt, once, by our estimate",
    "failed": "no answer came (an endpoint's error, a prompt beyond the context): counts as wrong",
}
_FEW = 5
_ANSWERED = ("planned", "answered", "empty", "turn_limit")


def summarise_arms(rows: Sequence[Row], cell: Sequence[str]) -> dict[str, Any]:
    """Per cell (the values of these fields; "all" for every row) and arm: figures with 95%
    intervals that resample whole groups, and the paired difference of each two arms."""
    cells = {"all": list(rows)}
    for row in rows:
        named = ", ".join(f"{name} {row[name]}" for name in cell)
        cells.setdefault(named, []).append(row)
    return {
        "groups": len({row["group"] for row in rows}),
        "cells": {name: _summarise_cell(held) for name, held in cells.items()},
        "rules": RULES,
    }


def write_page(about: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[str]:
    """Who answered what, then the table; an interval of few groups says that it means little."""
    left = ", ".join(f"{why} {count}" for why, count in about["left_out"].items()) or "nothing"
    yield (
        f"provider={about['provider']}, model={about['model']}; {about['cases']} of"
        f" {about['of_cases']} cases of {about['set']} over {about['tools']} tools; left out:"
        f" {left}; encoder {about['embedder']}"
    )
    few = " (too few for an interval)" if summary["groups"] < _FEW else ""
    yield f"Intervals: 95%, whole groups drawn; {summary['groups']} groups{few}."
    yield ""
    yield from write_table(summary)


def write_table(summary: Mapping[str, Any]) -> list[Markdown]:
    """The lines of a Markdown table, a row for each cell and arm."""
    head = ("cell", "arm", "n", "right", "first hit right", "tool tokens", "failed")
    rows = [
        (
            name,
            arm,
            figures["right"]["n"],
            format_interval(figures["right"]),
            format_interval(figures["first"]) if figures["first"] else "",
            f"{figures['tool_tokens']:,.0f}",
            sum(figures["failed"].values()),
        )
        for name, cell in summary["cells"].items()
        for arm, figures in cell["arms"].items()
    ]
    return format_table(head, rows)


def _summarise_cell(rows: Sequence[Row]) -> dict[str, Any]:
    by_arm = {arm: {row["case_id"]: row for row in rows if row["arm"] == arm} for arm in ARMS}
    held = {arm: found for arm, found in by_arm.items() if found}
    return {
        "arms": {arm: _summarise_arm(list(found.values())) for arm, found in held.items()},
        "differences": {
            f"{second} - {first}": _compare_arms(held[second], held[first]).as_dict()
            for first, second in combinations(held, 2)
        },
    }


def _summarise_arm(rows: Sequence[Row]) -> dict[str, Any]:
    groups = [row["group"] for row in rows]
    first = [float(row["first"]) for row in rows if row["first"] is not None]
    of_first = [row["group"] for row in rows if row["first"] is not None]
    ended = Counter(row["ended"] for row in rows)
    means = ("tool_tokens", "prompt_tokens", "completion_tokens", "turns", "searches", "seconds")
    return {
        "right": bootstrap_mean([float(row["right"]) for row in rows], groups).as_dict(),
        "first": bootstrap_mean(first, of_first).as_dict() if first else None,
        **{name: round(sum(row[name] for row in rows) / len(rows), 3) for name in means},
        "ended": dict(sorted(ended.items())),
        "failed": {kind: n for kind, n in sorted(ended.items()) if kind not in _ANSWERED},
    }


def _compare_arms(better: Mapping[str, Row], worse: Mapping[str, Row]) -> MetricFigure:
    both = [name for name in better if name in worse]
    return bootstrap_difference(
        [float(better[name]["right"]) for name in both],
        [float(worse[name]["right"]) for name in both],
        [better[name]["group"] for name in both],
    )
