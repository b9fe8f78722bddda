"""The page of outcomes: shares of calls that worked, weighed as reliability weighs them."""

import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping
from datetime import date, timedelta
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assets.contracts.changes import CHANGES
from assets.contracts.tool_id import ToolId
from assets.outcomes.policy import WRONG_TOOL, ReliabilityPolicy
from assets.outcomes.reliability.measure import CARRIED, read_changes, read_listed, read_weighed
from assets.outcomes.reliability.table import RELIABILITY
from assets.vectors.confusable_table import CONFUSABLES
from extensions.recommender.evaluation import CALL, RERANKER_EVALUATION
from extensions.recommender.rerank_method import measure_calibration
from extensions.recommender.role import ROLE, UNTRAINED_ORDER
from training.figures import NONE, Json, format_interval, shorten_model
from training.releases.in_service import find_model_in_service
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table
from warehouse.statistics import wilson_interval
from warehouse.storage.files import write_changed
from warehouse.store import Warehouse

SUMS = {"worked": pl.col("weight").filter(pl.col("success")).sum(), "n": pl.col("weight").sum()}


def measure_rate(worked: float, n: float) -> dict[str, float]:
    """{value, low, high, n}: Wilson's 95% interval of weighed counts; a value of 0 without any."""
    low, high = wilson_interval(worked, n)
    value = worked / n if n else 0.0
    figures = {"value": value, "low": min(low, value), "high": max(high, value)}
    return {**{name: round(figure, 4) for name, figure in figures.items()}, "n": round(n, 1)}


def drop_wrong_tool(calls: pl.DataFrame) -> pl.DataFrame:
    return calls.filter(pl.col("kind").fill_null("") != WRONG_TOOL)


def compare_rates(rate: Json, other: Json) -> int:
    """1 or -1 where a rate's interval lies above or below the other's, 0 where they overlap."""
    return int(rate["low"] > other["high"]) - int(rate["high"] < other["low"])


def format_rate(figure: Json | None) -> Markdown:
    """`0.82 [0.71, 0.90], n=40`; a dash where nothing was seen."""
    if not figure or not figure["n"]:
        return NONE
    return fill_markdown("{}, n={}", format_interval(figure, digits=2), f"{figure['n']:g}")


def tell_empty(because: str) -> Markdown:
    return fill_markdown("Nothing to show yet because {}.", because)


def sum_rates(rows: list[dict[str, Any]]) -> dict[str, float]:
    return measure_rate(sum(row["worked"] for row in rows), sum(row["n"] for row in rows))


_SHOWN = 12


def compare_alike(confusables: Iterable[Row], rates: Mapping[str, Json]) -> Json:
    """{pairs, called: both tools, apart: intervals that do not meet, shown: [{better, worse,
    apart}]}, tools as {tool_id, rate}. rates: tool id -> {value, low, high, n}."""
    pairs, cases = 0, []
    for row in confusables:
        pairs += 1
        names = str(ToolId.of_row(row)), str(ToolId(row["other_server_id"], row["other_tool"]))
        if not all(name in rates for name in names):
            continue
        worse, better = sorted(names, key=lambda name: (rates[name]["value"], name))
        cases.append(
            {
                "better": {"tool_id": better, "rate": rates[better]},
                "worse": {"tool_id": worse, "rate": rates[worse]},
                "apart": compare_rates(rates[better], rates[worse]) > 0,
            }
        )
    cases.sort(key=lambda item: (not item["apart"], -_measure_gap(item), item["better"]["tool_id"]))
    apart = sum(item["apart"] for item in cases)
    return {"pairs": pairs, "called": len(cases), "apart": apart, "shown": cases[:_SHOWN]}


def _measure_gap(pair: Json) -> float:
    return pair["better"]["rate"]["value"] - pair["worse"]["rate"]["value"]


def render_alike(facts: Json) -> Markdown:
    if not facts["pairs"]:
        return tell_empty("no two tools look alike (asset confusables)")
    if not facts["called"]:
        return tell_empty(
            f"of {facts['pairs']:,} pairs of look-alikes no one had both tools called"
        )
    lead = fill_markdown(
        "{called:,} of {pairs:,} pairs of look-alikes had both tools called; of {apart:,} one works"
        " better beyond doubt (the 95% intervals do not meet).",
        **{name: facts[name] for name in ("called", "pairs", "apart")},
    )
    lines = [
        [
            item["better"]["tool_id"],
            format_rate(item["better"]["rate"]),
            item["worse"]["tool_id"],
            format_rate(item["worse"]["rate"]),
            "yes" if item["apart"] else "not known",
        ]
        for item in facts["shown"]
    ]
    head = ("works better", "expected", "its look-alike", "expected", "sure")
    return join_markdown("\n\n", [lead, make_markdown_table(head, lines)])


_SHOWN_CHANGES = 12
Seen = tuple[float, float]  # calls that worked, calls; weighed
_VERDICTS = {1: "better", 0: "no difference known", -1: "worse"}


def compare_changes(calls: pl.DataFrame, changes: Iterable[Row]) -> Json:
    """{changed, called, classes: class -> {changed, compared, before, after}, shown: [{tool_id,
    cls, before, after, verdict}]}. calls: rows of OBSERVED that count; changes: of CHANGES."""
    sums = drop_wrong_tool(calls).group_by("tool_id", "contract_digest").agg(**SUMS)
    rates = {(tool_id, digest): (worked, n) for tool_id, digest, worked, n in sums.iter_rows()}
    cases, totals = [], defaultdict(list)
    called = 0
    for now, change in sorted(read_changes(changes).items()):
        before, after = rates.get(change.before), rates.get(now)
        called += after is not None
        totals[change.cls].append((before, after))
        if before is not None and after is not None:
            rate = measure_rate(*before), measure_rate(*after)
            verdict = compare_rates(rate[1], rate[0])
            about = {"tool_id": now[0], "cls": change.cls, "verdict": verdict}
            cases.append({**about, "before": rate[0], "after": rate[1]})
    cases.sort(key=lambda item: (not item["verdict"], -_measure_gap_changes(item), item["tool_id"]))
    return {
        "changed": sum(map(len, totals.values())),
        "called": called,
        "compared": len(cases),
        "classes": {name: _sum_class(pairs) for name, pairs in sorted(totals.items())},
        "shown": cases[:_SHOWN_CHANGES],
    }


def render_changes(facts: Json) -> Markdown:
    if not facts["changed"]:
        return tell_empty("no contract has changed (asset contract_changes)")
    lead = fill_markdown(
        "Contracts that replaced another: {changed:,}; called since: {called:,}; of these"
        " called under the contract before as well: {compared:,}.",
        **{name: facts[name] for name in ("changed", "called", "compared")},
    )
    if not facts["compared"]:
        why = "no tool was called both before and after a change of its contract"
        return join_markdown("\n\n", [lead, tell_empty(why)])
    classes = make_markdown_table(
        ("change", "contracts", "compared", "before [95%]", "after [95%]", "an old call counts"),
        [
            [name, totals["changed"], totals["compared"], format_rate(totals["before"]),
             format_rate(totals["after"]), CARRIED.get(name, 0.0)]
            for name, totals in facts["classes"].items()
        ],
    )  # fmt: skip
    tools = make_markdown_table(
        ("tool", "change", "before [95%]", "after [95%]", "since then"),
        [
            [item["tool_id"], item["cls"], format_rate(item["before"]), format_rate(item["after"]),
             _VERDICTS[item["verdict"]]]
            for item in facts["shown"]
        ],
    )  # fmt: skip
    return join_markdown("\n\n", [lead, classes, tools])


def _sum_class(pairs: list[tuple[Seen | None, Seen | None]]) -> dict[str, object]:
    """Of the changes of one class; rates of those whose tools were called before and after."""
    whole = [(old, new) for old, new in pairs if old is not None and new is not None]
    before, after = (
        measure_rate(sum(pair[at][0] for pair in whole), sum(pair[at][1] for pair in whole))
        for at in (0, 1)
    )
    return {"changed": len(pairs), "compared": len(whole), "before": before, "after": after}


def _measure_gap_changes(one: Json) -> float:
    return abs(one["after"]["value"] - one["before"]["value"])


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
    rows = [
        {**row, "worked": round(row["worked"], 4), "n": round(row["n"], 4)}
        for row in sums.to_dicts()
    ]
    by_day: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        by_day[row["day"]].append(row)
    return {"days": rows, "all": {name: sum_rates(own) for name, own in by_day.items()}}


def render_days(facts: Json) -> Markdown:
    if not facts["days"]:
        return tell_empty(
            "no call was executed, and none of a client's is in the log of calls"
            " (`toolmill serve`, docs/meta-server.md)"
        )
    days = sorted(facts["all"])
    first = str(date.fromisoformat(days[-1]) - timedelta(days=_RECENT - 1))
    by_category: dict[str, list[dict[str, Any]]] = defaultdict(list)
    for row in facts["days"]:
        by_category[row["category"]].append(row)
    listed = sorted(by_category.items(), key=lambda item: (-sum_rates(item[1])["n"], item[0]))
    lines = [
        [
            name,
            format_rate(sum_rates([row for row in rates if row["day"] < first])),
            format_rate(sum_rates([row for row in rates if row["day"] >= first])),
        ]
        for name, rates in [*listed, ("all", facts["days"])]
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


def measure_models(evaluation: Iterable[Row], in_service: str) -> list[dict[str, object]]:
    """Of each fitted model {model, in_service, n, worked, brier, constant: Brier of the mean,
    log_loss, calibration_error}. evaluation: rows of RERANKER_EVALUATION."""
    calls: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for row in evaluation:
        if row["kind"] == CALL and row["model"] != UNTRAINED_ORDER:
            calls[row["model"]].append((row["score"], row["right"]))
    return [
        {"model": name, "in_service": name == in_service, **_measure_model(calls[name])}
        for name in sorted(calls)
    ]


def render_calibration(models: list[dict[str, object]]) -> Markdown:
    if not models:
        return tell_empty("no reranker was fitted (asset reranker_adapter says what it lacks)")
    lead = Markdown(
        "Held-out calls in ten groups of equal size by what the reranker predicted. A Brier"
        " score below that of a constant says that its probabilities tell calls apart."
    )
    lines = [
        [
            f"{shorten_model(str(model['model']))}{' (in service)' if model['in_service'] else ''}",
            model["n"],
            *(f"{model[name]:.3f}" for name in ("worked", "brier", "constant", "log_loss")),
            f"{model['calibration_error']:.3f}",
        ]
        for model in models
    ]
    head = (
        "model",
        "calls",
        "worked",
        "Brier",
        "Brier of a constant",
        "log loss",
        "calibration error",
    )
    return join_markdown("\n\n", [lead, make_markdown_table(head, lines)])


def _measure_model(calls: list[tuple[float, bool]]) -> dict[str, object]:
    p = np.array([score for score, _ in calls], float)
    worked = np.array([right for _, right in calls], bool)
    rate = float(worked.mean())
    figures = {**measure_calibration(p, worked), "worked": rate, "constant": rate * (1 - rate)}
    return {"n": len(calls), **{name: round(value, 4) for name, value in figures.items()}}


_ALIKE = ("server_id", "tool", "other_server_id", "other_tool")


def gather_outcome_facts(warehouse: Warehouse, policy: ReliabilityPolicy) -> dict[str, Any]:
    """Facts of `render_outcomes`, of JSON's kinds. Raises PointerBroken."""
    tables, home = warehouse.tables, warehouse.home
    weighed = read_weighed(warehouse, read_listed(tables), policy, time.time())
    calls = weighed.frame.filter(pl.col("weight") > 0)
    rows = [(str(ToolId.of_row(row)), row) for row in tables.read(RELIABILITY).to_dicts()]
    rates = {
        name: {"value": row["mean"], **{key: row[key] for key in ("low", "high", "n")}}
        for name, row in rows
        if row["current"] and row["calls"]
    }
    return {
        "days": measure_days(calls, {name: row["category"] for name, row in rows}),
        "alike": compare_alike(tables.read(CONFUSABLES).select(_ALIKE).to_dicts(), rates),
        "calibration": measure_models(
            tables.read(RERANKER_EVALUATION).to_dicts(), find_model_in_service(home, ROLE).model
        ),
        "changes": compare_changes(calls, tables.read(CHANGES).to_dicts()),
    }


_PARTS: Mapping[str, tuple[Markdown, Callable[[Any], Markdown]]] = {
    "days": (Markdown("Success over time"), render_days),
    "alike": (Markdown("Look-alikes: which of them works"), render_alike),
    "calibration": (Markdown("Are the reranker's probabilities true?"), render_calibration),
    "changes": (Markdown("Before and after a change of contract"), render_changes),
}


def render_outcomes(facts: Mapping[str, Any]) -> Markdown:
    parts = [Markdown("# Outcomes")]
    for name, (title, render) in _PARTS.items():
        parts += [fill_markdown("## {}", title), render(facts[name])]
    return join_markdown("\n\n", parts)


def write_outcomes(home: Path, page: Markdown) -> Path:
    path = home / "reports" / "outcomes" / "report.md"
    path.parent.mkdir(parents=True, exist_ok=True)
    write_changed(path, page.encode() + b"\n")
    return path
