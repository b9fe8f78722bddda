"""How often a tool worked before and after its contract changed."""

from collections import defaultdict
from collections.abc import Iterable

import polars as pl

from assets.outcomes.reliability.estimate import CARRIED, ToolVersion, read_changes
from extensions.recommender.outcomes_report.rates import (
    SUMS,
    compare_rates,
    drop_wrong_tool,
    format_rate,
    measure_rate,
    tell_empty,
)
from training.figures import Json
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table

_SHOWN = 12
Seen = tuple[float, float]  # calls that worked, calls; weighed
_VERDICTS = {1: "better", 0: "no difference known", -1: "worse"}


def compare_changes(calls: pl.DataFrame, changes: Iterable[Row]) -> Json:
    """{changed: contracts that replaced another, called: after their change, classes: class ->
    {changed, compared, before, after}, shown: [{tool_id, cls, before, after, verdict}]}: the
    largest differences first, those beyond doubt before others. calls: rows of OBSERVED that count;
    changes: rows of CHANGES."""
    rates = _measure_versions(calls)
    found, totals = [], defaultdict(list)
    called = 0
    for now, change in sorted(read_changes(changes).items()):
        before, after = rates.get(change.before), rates.get(now)
        called += after is not None
        totals[change.cls].append((before, after))
        if before is not None and after is not None:
            rate = measure_rate(*before), measure_rate(*after)
            verdict = compare_rates(rate[1], rate[0])
            about = {"tool_id": now[0], "cls": change.cls, "verdict": verdict}
            found.append({**about, "before": rate[0], "after": rate[1]})
    found.sort(key=lambda one: (not one["verdict"], -_measure_gap(one), one["tool_id"]))
    return {
        "changed": sum(map(len, totals.values())),
        "called": called,
        "compared": len(found),
        "classes": {name: _sum_class(pairs) for name, pairs in sorted(totals.items())},
        "shown": found[:_SHOWN],
    }


def render_changes(found: Json) -> Markdown:
    """The part of the page: a table of classes, and one of tools."""
    if not found["changed"]:
        return tell_empty("no contract has changed (asset contract_changes)")
    lead = fill_markdown(
        "Contracts that replaced another: {changed:,}; called since: {called:,}; of these"
        " called under the contract before as well: {compared:,}.",
        **{name: found[name] for name in ("changed", "called", "compared")},
    )
    if not found["compared"]:
        why = "no tool was called both before and after a change of its contract"
        return join_markdown("\n\n", [lead, tell_empty(why)])
    classes = make_markdown_table(
        ("change", "contracts", "compared", "before [95%]", "after [95%]", "an old call counts"),
        [
            [name, one["changed"], one["compared"], format_rate(one["before"]),
             format_rate(one["after"]), CARRIED.get(name, 0.0)]
            for name, one in found["classes"].items()
        ],
    )  # fmt: skip
    tools = make_markdown_table(
        ("tool", "change", "before [95%]", "after [95%]", "since then"),
        [
            [one["tool_id"], one["cls"], format_rate(one["before"]), format_rate(one["after"]),
             _VERDICTS[one["verdict"]]]
            for one in found["shown"]
        ],
    )  # fmt: skip
    return join_markdown("\n\n", [lead, classes, tools])


def _measure_versions(calls: pl.DataFrame) -> dict[ToolVersion, Seen]:
    sums = drop_wrong_tool(calls).group_by("tool_id", "contract_digest").agg(**SUMS)
    return {(tool_id, digest): (worked, n) for tool_id, digest, worked, n in sums.iter_rows()}


def _sum_class(pairs: list[tuple[Seen | None, Seen | None]]) -> dict[str, object]:
    """Of the changes of one class; rates of those whose tools were called before and after."""
    whole = [(old, new) for old, new in pairs if old is not None and new is not None]
    before, after = (
        measure_rate(sum(pair[at][0] for pair in whole), sum(pair[at][1] for pair in whole))
        for at in (0, 1)
    )
    return {"changed": len(pairs), "compared": len(whole), "before": before, "after": after}


def _measure_gap(one: Json) -> float:
    return abs(one["after"]["value"] - one["before"]["value"])
