"""Tools that look alike and were both called: which of them works."""

from collections.abc import Iterable, Mapping

from assets.contracts.tool_id import ToolId
from extensions.recommender.outcomes_report.rates import compare_rates, format_rate, tell_empty
from training.figures import Json
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table

_SHOWN = 12


def compare_alike(confusables: Iterable[Row], rates: Mapping[str, Json]) -> Json:
    """{pairs, called: of which both tools were called, apart: of which the intervals do not meet,
    shown: [{better, worse, apart, tells_apart}]}, a tool as {tool_id, rate}; those told apart
    first, then by difference. rates: tool id -> {value, low, high, n} of the tools called."""
    pairs, found = 0, []
    for row in confusables:
        pairs += 1
        names = str(ToolId.of_row(row)), str(ToolId(row["other_server_id"], row["other_tool"]))
        if not all(name in rates for name in names):
            continue
        worse, better = sorted(names, key=lambda name: (rates[name]["value"], name))
        found.append(
            {
                "better": {"tool_id": better, "rate": rates[better]},
                "worse": {"tool_id": worse, "rate": rates[worse]},
                "apart": compare_rates(rates[better], rates[worse]) > 0,
                "tells_apart": row["tells_apart"] or "",
            }
        )
    found.sort(key=lambda one: (not one["apart"], -_measure_gap(one), one["better"]["tool_id"]))
    apart = sum(one["apart"] for one in found)
    return {"pairs": pairs, "called": len(found), "apart": apart, "shown": found[:_SHOWN]}


def render_alike(found: Json) -> Markdown:
    """The part of the page: the pairs as a table."""
    if not found["pairs"]:
        return tell_empty("no two tools look alike (asset confusables)")
    if not found["called"]:
        return tell_empty(
            f"of {found['pairs']:,} pairs of look-alikes no one had both tools called"
        )
    lead = fill_markdown(
        "{called:,} of {pairs:,} pairs of look-alikes had both tools called; of {apart:,} one works"
        " better beyond doubt (the 95% intervals do not meet).",
        **{name: found[name] for name in ("called", "pairs", "apart")},
    )
    lines = [
        [
            one["better"]["tool_id"],
            format_rate(one["better"]["rate"]),
            one["worse"]["tool_id"],
            format_rate(one["worse"]["rate"]),
            "yes" if one["apart"] else "not known",
            one["tells_apart"],
        ]
        for one in found["shown"]
    ]
    head = ("works better", "expected", "its look-alike", "expected", "sure", "how they differ")
    return join_markdown("\n\n", [lead, make_markdown_table(head, lines)])


def _measure_gap(pair: Json) -> float:
    return pair["better"]["rate"]["value"] - pair["worse"]["rate"]["value"]
