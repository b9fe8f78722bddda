"""How many calls worked on each day, by category of server."""

from collections import defaultdict
from collections.abc import Mapping
from datetime import date, timedelta
from typing import Any

import polars as pl

from extensions.recommender.outcomes_report.rates import (
    SUMS,
    drop_wrong_tool,
    format_rate,
    measure_rate,
    sum_rates,
    tell_empty,
)
from training.figures import Json
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table

_RECENT = 7  # days up to the newest call
_OTHER = "other"


def measure_days(calls: pl.DataFrame, categories: Mapping[str, str]) -> Json:
    """{days: [{day, category, worked, n}], all: the rate of each day}. calls: rows of OBSERVED that
    count. categories: tool id -> category of its server. Days are of UTC."""
    day = pl.from_epoch(pl.col("at").floor().cast(pl.Int64), "s").dt.strftime("%Y-%m-%d")
    kind = pl.col("tool_id").replace_strict(
        dict(categories), default=_OTHER, return_dtype=pl.String
    )
    counted = drop_wrong_tool(calls).with_columns(day=day, category=kind)
    sums = counted.group_by("day", "category").agg(**SUMS).sort("day", "category")
    rows = [{**row, **_round_sums(row)} for row in sums.to_dicts()]
    by_day: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_day[row["day"]].append(row)
    return {"days": rows, "all": {name: sum_rates(own) for name, own in by_day.items()}}


def render_days(found: Json) -> Markdown:
    """The part of the page: the table of categories."""
    if not found["days"]:
        return tell_empty(
            "no call was executed, and none of a client's is in the log of calls"
            " (`toolmill serve`, docs/meta-server.md)"
        )
    days = sorted(found["all"])
    first = str(date.fromisoformat(days[-1]) - timedelta(days=_RECENT - 1))
    by_category: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in found["days"]:
        by_category[row["category"]].append(row)
    listed = sorted(by_category.items(), key=lambda one: (-sum_rates(one[1])["n"], one[0]))
    lines = [
        [
            name,
            format_rate(sum_rates([row for row in own if row["day"] < first])),
            format_rate(sum_rates([row for row in own if row["day"] >= first])),
        ]
        for name, own in [*listed, ("all", found["days"])]
    ]
    lead = fill_markdown(
        "{} days with calls, {} to {} (UTC). Calls count as the asset reliability counts them"
        " (by source and daily limit), but not by age.",
        len(days),
        days[0],
        days[-1],
    )
    head = ("category", f"worked before {first} [95%]", f"worked from {first} on [95%]")
    return join_markdown("\n\n", [lead, make_markdown_table(head, lines)])


def rank_categories(found: Json, most: int) -> list[str]:
    """The categories of most calls, at most so many."""
    totals: dict[str, float] = defaultdict(float)
    for row in found["days"]:
        totals[row["category"]] += row["n"]
    return sorted(totals, key=lambda name: (-totals[name], name))[:most]


def collect_rates(found: Json, category: str) -> dict[str, dict[str, float]]:
    """Day -> rate of one category, on the days on which it was called."""
    return {
        row["day"]: measure_rate(row["worked"], row["n"])
        for row in found["days"]
        if row["category"] == category
    }


def _round_sums(row: Json) -> dict[str, float]:
    return {name: round(row[name], 4) for name in ("worked", "n")}
