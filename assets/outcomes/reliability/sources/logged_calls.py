"""Observations of the calls that clients made, and of what they reported of them."""

from dataclasses import dataclass
from pathlib import Path

import polars as pl

from assets.outcomes.reliability.observation import BLAMED, TOKEN, WRONG_TOOL
from assets.outcomes.reliability.sources.frame import OBSERVED
from assets.outcomes.reliability.sources.log_lines import read_lines

_DAY = 86_400


@dataclass(frozen=True)
class Logged:
    """frame: rows of OBSERVED. left_out: why lines are no observation of their own -> how many."""

    frame: pl.DataFrame
    left_out: dict[str, int]


def read_logged(place: Path, claims: float = 0.25) -> Logged:
    """The calls that were answered, or failed by the tool's own fault.

    A report of such a call says whether it worked; one of a call that failed, or was never sent,
    changes nothing, for that was seen here. Of several reports of one call the last one counts. A
    report of no call is a claim, of the weight `claims`, one a token, tool, query and day.
    """
    lines = read_lines(place)
    named = lines.filter(pl.col("token").is_not_null() & pl.col("tool_id").is_not_null())
    named = named.with_columns(pl.col("call_id").fill_null(""))
    is_report = (pl.col("status") == "reported") & pl.col("reported").is_not_null()
    own = ["token", "call_id"]
    calls = _keep_last(
        named.filter((pl.col("status") != "reported") & (pl.col("call_id") != "")), own
    )
    reports = named.filter(is_report)
    of_call = reports.filter(pl.col("call_id") != "")
    last = _keep_last(of_call, own)
    doubled = of_call.unique([*own, "reported"]).height - last.height
    verdicts = last.select(*own, verdict="reported")
    seen = calls.join(verdicts, on=own, how="left").filter(_is_seen())
    without = pl.concat(
        [reports.filter(pl.col("call_id") == ""), last.join(calls, on=own, how="anti")]
    )
    day = (pl.col("at") / _DAY).floor().alias("day")
    about = ["token", "tool_id", "contract_digest", "query", "day"]
    claimed = _keep_last(without.with_columns(day), about).drop("day")
    rows = pl.concat(
        [
            _make_observations(seen, 1.0, claimed=False),
            _make_observations(claimed.with_columns(verdict="reported"), claims, claimed=True),
        ]
    )
    repeated = of_call.height - last.height - doubled + without.height - claimed.height
    of_failed = verdicts.join(calls.filter(pl.col("status") != "ok"), on=own, how="semi").height
    left_out = {
        "contradicting reports": doubled,
        "repeated reports": repeated,
        "reports of calls that failed": of_failed,
        "not the tool's fault": calls.height - seen.height,
    }
    return Logged(_add_words(rows, lines), left_out)


def _is_seen() -> pl.Expr:
    """Whether a call says anything of its tool."""
    failed = pl.col("status").is_in(["tool_error", "failed"]) & pl.col("blame").is_in(BLAMED)
    return (pl.col("status") == "ok") | failed


def _keep_last(lines: pl.DataFrame, own: list[str]) -> pl.DataFrame:
    """One line each, the last; whatever order they were written in."""
    ordered = lines.sort("at", "reported", "status", "id", nulls_last=True)
    return ordered.unique(own, keep="last", maintain_order=True)


def _make_observations(lines: pl.DataFrame, weight: float, *, claimed: bool) -> pl.DataFrame:
    answered = pl.col("status").is_in(["ok", "reported"])
    verdict = pl.col("verdict").fill_null("worked")
    return lines.select(
        "at",
        "tool_id",
        pl.col("contract_digest").fill_null(""),
        success=answered & (verdict == "worked"),
        weight=pl.lit(weight),
        seconds="seconds",
        query=pl.col("words").fill_null(""),
        query_key=pl.col("query").fill_null(""),
        source=pl.lit(TOKEN) + pl.col("token"),
        client="client",
        kind=pl.when(~answered)
        .then(pl.coalesce("error_kind", "status"))
        .when(verdict == WRONG_TOOL)
        .then(pl.lit(WRONG_TOOL))
        .when(verdict == "failed")
        .then(pl.lit("reported_failed"))
        .otherwise(pl.lit("ok")),
        rank="rank",
        call_id="call_id",
        search_id=pl.col("search_id").fill_null(""),
        claimed=pl.lit(claimed),
    ).select(list(OBSERVED))


def _add_words(rows: pl.DataFrame, lines: pl.DataFrame) -> pl.DataFrame:
    """The words of the search that a call answers, where they are kept."""
    kept = lines.filter((pl.col("status") == "searched") & pl.col("words").is_not_null())
    searches = _keep_last(kept.filter(pl.col("search_id").is_not_null()), ["token", "search_id"])
    named = searches.select("search_id", source=pl.lit(TOKEN) + pl.col("token"), asked="words")
    joined = rows.join(named, on=["source", "search_id"], how="left", maintain_order="left")
    return joined.with_columns(query=pl.coalesce("asked", "query")).select(list(OBSERVED))
