"""The order that was served, as outcomes came in: how often the call of a shown tool worked."""

import polars as pl

from assets.outcomes.policy import TOKEN
from extensions.recommender.outcomes_report.rates import format_rate, measure_rate, tell_empty
from training.figures import Json
from warehouse.sanitize.markdown import Markdown, fill_markdown, join_markdown, make_markdown_table

_FEWEST, _MOST = 20, 20  # calls of a point; points


def measure_curve(calls: pl.DataFrame) -> list[dict[str, object]]:
    """Points {upto: calls up to its end, worked: of its calls, first: how many called the tool that
    stood first}, each of as many calls. calls: rows of OBSERVED that count, of which those of
    clients that answer a search are read; a wrong tool did not work."""
    answers = pl.col("source").str.starts_with(TOKEN) & (pl.col("rank") >= 1)
    rows = calls.filter(answers).sort("at", "tool_id", "call_id")
    points = min(max(rows.height // _FEWEST, 1), _MOST) if rows.height else 0
    ends = [rows.height * (at + 1) // points for at in range(points)]
    return [
        {
            "upto": end,
            "worked": _measure_share(rows.slice(begin, end - begin), pl.col("success")),
            "first": _measure_share(rows.slice(begin, end - begin), pl.col("rank") == 1),
        }
        for begin, end in zip([0, *ends], ends, strict=False)
    ]


def render_curve(points: list[dict[str, Json]]) -> Markdown:
    """The part of the page: the first and last point as a table."""
    if not points:
        return tell_empty(
            "no call in the log of calls answers a search (calls of tools that `find_tools` showed"
            " have a rank there)"
        )
    lead = fill_markdown(
        "{} calls of tools that a search had shown, in order of time. A curve that rises says that"
        " the order got better, or the tools, or the questions easier: only the noise bench tells"
        " which.",
        points[-1]["upto"],
    )
    ends = points if len(points) == 1 else [points[0], points[-1]]
    lines = [[end["upto"], format_rate(end["worked"]), format_rate(end["first"])] for end in ends]
    table = make_markdown_table(("calls up to", "worked [95%]", "was shown first [95%]"), lines)
    return join_markdown("\n\n", [lead, table])


def _measure_share(rows: pl.DataFrame, hit: pl.Expr) -> dict[str, float]:
    sums = rows.select(hits=pl.col("weight").filter(hit).sum(), n=pl.col("weight").sum())
    return measure_rate(*sums.row(0))
