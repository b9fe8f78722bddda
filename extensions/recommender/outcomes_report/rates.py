"""Shares of calls that worked, weighed as reliability weighs them, with their intervals."""

from typing import Any

import polars as pl

from assets.outcomes.policy import WRONG_TOOL
from training.figures import NONE, Json, format_interval
from warehouse.sanitize.markdown import Markdown, fill_markdown
from warehouse.statistics import wilson_interval

SUMS = {
    "worked": pl.col("weight").filter(pl.col("success")).sum(),
    "n": pl.col("weight").sum(),
}


def measure_rate(worked: float, n: float) -> dict[str, float]:
    """{value, low, high, n}: Wilson's 95% interval of weighed counts; a value of 0 without any."""
    low, high = wilson_interval(worked, n)
    value = worked / n if n else 0.0
    found = {"value": value, "low": min(low, value), "high": max(high, value)}
    return {**{name: round(one, 4) for name, one in found.items()}, "n": round(n, 1)}


def drop_wrong_tool(calls: pl.DataFrame) -> pl.DataFrame:
    """Without the calls that say nothing of whether their tool works."""
    return calls.filter(pl.col("kind").fill_null("") != WRONG_TOOL)


def compare_rates(one: Json, other: Json) -> int:
    """1 or -1 where one's interval lies above or below the other's, 0 where they overlap."""
    return int(one["low"] > other["high"]) - int(one["high"] < other["low"])


def format_rate(figure: Json | None) -> Markdown:
    """`0.82 [0.71, 0.90], n=40`; a dash where nothing was seen."""
    if not figure or not figure["n"]:
        return NONE
    return fill_markdown("{}, n={}", format_interval(figure, digits=2), f"{figure['n']:g}")


def tell_empty(because: str) -> Markdown:
    """What a part says whose input is empty."""
    return fill_markdown("Nothing to show yet because {}.", because)


def sum_rates(rows: list[dict[str, Any]]) -> dict[str, float]:
    """The rate of rows {worked, n} together."""
    return measure_rate(sum(row["worked"] for row in rows), sum(row["n"] for row in rows))
