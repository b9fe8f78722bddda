"""Observations: what executed and logged calls say of tools, and how much each one counts.

An observation says that a tool under one contract did, or did not do, what it was called for. Calls
that failed by their caller, missing credentials, a policy, a service behind the tool or Toolmill
itself are no observations. Nothing is removed from the log: a source that is included again counts
as before. A million observations are weighed as columns.
"""

import io
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from assets.contracts.tool_id import ToolId
from assets.outcomes.outcome import USEFUL
from assets.outcomes.policy import BLAMED, EXECUTION, TOKEN, WRONG_TOOL, ReliabilityPolicy
from assets.outcomes.table import EXECUTIONS, PASSING
from assets.servers.calls.log import CallLog, parse_line
from warehouse.storage.tables import Tables

OBSERVED: dict[str, Any] = {
    "at": pl.Float64,  # epoch seconds
    "tool_id": pl.String,
    "contract_digest": pl.String,
    "success": pl.Boolean,
    "weight": pl.Float64,  # 1 for a call that ran here, less for a claim
    "seconds": pl.Float64,  # that the call took
    "query": pl.String,  # words of the search; "" where they are not kept
    "query_key": pl.String,  # digest of the words; "" where the call answers no search
    "source": pl.String,  # EXECUTION, or TOKEN and the token's name
    "client": pl.String,  # as it names itself
    "kind": pl.String,  # of the outcome or the failure
    "rank": pl.Int64,  # among the tools shown, from 1
    "call_id": pl.String,
    "search_id": pl.String,
    "claimed": pl.Boolean,  # reported by a client of a call that did not run here
}
LOG_COLUMNS: dict[str, Any] = {
    **dict.fromkeys(("at", "seconds"), pl.Float64),
    **dict.fromkeys(("id", "token", "tool_id", "contract_digest", "status"), pl.String),
    **dict.fromkeys(("error_kind", "blame", "query", "call_id", "reported"), pl.String),
    **dict.fromkeys(("search_id", "client", "words"), pl.String),
    "rank": pl.Int64,
}
KNOWN_CONTRACTS = {"tool_id": pl.String, "contract_digest": pl.String, "first_at": pl.Float64}
_DAY = 86_400
_AHEAD = 300.0  # seconds that another machine's clock may run fast


@dataclass(frozen=True)
class ObservedCalls:
    """frame: rows of OBSERVED. left_out: reason -> lines or observations that count less."""

    frame: pl.DataFrame
    left_out: dict[str, int]


def read_log_lines(place: Path, columns: dict[str, Any] = LOG_COLUMNS) -> pl.DataFrame:
    """All lines of the log under a place, null where a line lacks a column. Lines that are cut
    short or of another shape are skipped. columns: must include `at` and `status`."""
    days = [_read_day(path, columns) for path in CallLog(place).list_files()]
    frame = pl.concat(days) if days else pl.DataFrame(schema=columns)
    return frame.filter(pl.col("at").is_finite() & pl.col("status").is_not_null())


def _read_day(path: Path, schema: dict[str, Any]) -> pl.DataFrame:
    try:
        data = path.read_bytes()
    except FileNotFoundError:  # deleted since: the log keeps so many days
        return pl.DataFrame(schema=schema)
    whole = data[: data.rfind(b"\n") + 1]  # the rest is being written, or was cut short
    try:
        if whole.strip():
            return pl.read_ndjson(io.BytesIO(whole), schema=schema)
        lines = []
    except (pl.exceptions.PolarsError, OverflowError):  # one bad line fails the whole file
        texts = whole.decode("utf-8", "replace").split("\n")
        lines = [line for text in texts if (line := parse_line(text)) is not None]
    columns = {
        name: [_read_value(line.get(name), kind) for line in lines] for name, kind in schema.items()
    }
    return pl.DataFrame(columns, schema=schema)


def _read_value(value: Any, kind: Any) -> Any:
    """A value of a column's kind; None for any other."""
    if kind == pl.String:
        return value.encode("utf-8", "replace").decode() if isinstance(value, str) else None
    if not isinstance(value, int | float) or isinstance(value, bool):
        return None
    if isinstance(value, float) and not math.isfinite(value):
        return None
    number = float(min(max(value, -1e300), 1e300))
    return int(number) if kind == pl.Int64 and abs(number) < 1e15 else number


def read_executed(tables: Tables) -> pl.DataFrame:
    """Rows of OBSERVED of executed calls: useful, or failed by the tool's fault; each once."""
    rows = tables.read(EXECUTIONS).unique("execution_id", keep="first", maintain_order=True)
    useful = (pl.col("outcome") == USEFUL) & pl.col("blame").is_null()
    failed = pl.col("blame").is_in(BLAMED) & ~pl.col("error_kind").is_in(PASSING).fill_null(False)
    ids = [str(ToolId(*row)) for row in rows.select("server_id", "tool").iter_rows()]
    return (
        rows.with_columns(
            tool_id=pl.Series(ids, dtype=pl.String),
            at="executed_at",
            success=useful,
            weight=pl.lit(1.0),
            query=pl.lit(""),
            query_key=pl.lit(""),
            source=pl.lit(EXECUTION),
            client=pl.lit(None, pl.String),
            kind=pl.coalesce("error_kind", "outcome"),
            rank=pl.lit(None, pl.Int64),
            call_id="execution_id",
            search_id=pl.lit(""),
            claimed=pl.lit(False),
        )
        .filter((useful | failed) & pl.col("at").is_finite())
        .select(list(OBSERVED))
    )


def read_logged(place: Path, claims: float = 0.25) -> ObservedCalls:
    """Logged calls that were answered or failed by the tool's own fault, with clients' reports.

    A report of an answered call says whether it worked; one of a call that failed or was never sent
    changes nothing, because that was observed here. The last of several reports of one call counts.
    A report without a call is a claim of weight `claims`, one per token, tool, query and day.
    """
    lines = read_log_lines(place)
    addressed = lines.filter(pl.col("token").is_not_null() & pl.col("tool_id").is_not_null())
    addressed = addressed.with_columns(pl.col("call_id").fill_null(""))
    is_report = (pl.col("status") == "reported") & pl.col("reported").is_not_null()
    keys = ["token", "call_id"]
    sent = (pl.col("status") != "reported") & (pl.col("call_id") != "")
    calls = _keep_last(addressed.filter(sent), keys)
    reports = addressed.filter(is_report)
    of_call = reports.filter(pl.col("call_id") != "")
    last = _keep_last(of_call, keys)
    doubled = of_call.unique([*keys, "reported"]).height - last.height
    verdicts = last.select(*keys, verdict="reported")
    failed = pl.col("status").is_in(["tool_error", "failed"]) & pl.col("blame").is_in(BLAMED)
    telling = calls.join(verdicts, on=keys, how="left").filter((pl.col("status") == "ok") | failed)
    without_call = pl.concat(
        [reports.filter(pl.col("call_id") == ""), last.join(calls, on=keys, how="anti")]
    )
    day = (pl.col("at") / _DAY).floor().alias("day")
    about = ["token", "tool_id", "contract_digest", "query", "day"]
    claimed = _keep_last(without_call.with_columns(day), about).drop("day")
    rows = pl.concat(
        [
            _make_observations(telling, 1.0, claimed=False),
            _make_observations(claimed.with_columns(verdict="reported"), claims, claimed=True),
        ]
    )
    repeated = of_call.height - last.height - doubled + without_call.height - claimed.height
    of_failed = verdicts.join(calls.filter(pl.col("status") != "ok"), on=keys, how="semi").height
    left_out = {
        "contradicting reports": doubled,
        "repeated reports": repeated,
        "reports of calls that failed": of_failed,
        "not the tool's fault": calls.height - telling.height,
    }
    searched = lines.filter((pl.col("status") == "searched") & pl.col("words").is_not_null())
    searches = _keep_last(
        searched.filter(pl.col("search_id").is_not_null()), ["token", "search_id"]
    )
    query_words = searches.select(
        "search_id", source=pl.lit(TOKEN) + pl.col("token"), asked="words"
    )
    joined = rows.join(query_words, on=["source", "search_id"], how="left", maintain_order="left")
    with_words = joined.with_columns(query=pl.coalesce("asked", "query"))
    return ObservedCalls(with_words.select(list(OBSERVED)), left_out)


def _keep_last(lines: pl.DataFrame, keys: list[str]) -> pl.DataFrame:
    """The last line of each key, in whatever order they were written."""
    ordered = lines.sort("at", "reported", "status", "id", nulls_last=True)
    return ordered.unique(keys, keep="last", maintain_order=True)


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


def weigh_observations(
    frame: pl.DataFrame, contracts: pl.DataFrame, policy: ReliabilityPolicy, now: float
) -> ObservedCalls:
    """The observations of known contracts with their weights, before age counts. contracts: rows of
    KNOWN_CONTRACTS; now: epoch seconds. A call from the future waits for its time; one from before
    its contract was first seen counts as made then."""
    left_out: dict[str, int] = {}

    def keep(name: str, remaining: pl.DataFrame) -> pl.DataFrame:
        left_out[name] = frame.height - remaining.height
        return remaining

    silent = [source for source, weight in policy.weights.items() if not weight]
    frame = keep("of sources without weight", frame.filter(~pl.col("source").is_in(silent)))
    identified = frame.filter(pl.col("call_id") != "")
    last = identified.sort("at", ~pl.col("success"), "tool_id").unique(
        ["source", "call_id"], keep="last", maintain_order=True
    )
    frame = keep("told of twice", pl.concat([frame.filter(pl.col("call_id") == ""), last]))
    frame = keep("from the future", frame.filter(pl.col("at") <= now + _AHEAD))
    keys = ["tool_id", "contract_digest"]
    frame = keep(
        "of an unknown contract",
        frame.join(contracts.unique(keys), on=keys, how="inner", maintain_order="left"),
    )
    early = pl.col("at") < pl.col("first_at")
    left_out["from before their contract"] = frame.filter(early).height
    frame = frame.with_columns(at=pl.max_horizontal("at", "first_at")).select(list(OBSERVED))
    if policy.weights:
        factor = pl.col("source").replace_strict(
            policy.weights, default=1.0, return_dtype=pl.Float64
        )
        frame = frame.with_columns(weight=pl.col("weight") * factor)
    # A token's calls of a tool on one day share at most `per_day`, and all its claims on the tool
    # `claims_together`. Column `before`: the weight without these limits.
    day = (pl.col("at") / _DAY).floor()
    limited = frame.with_columns(before="weight")
    for applies, most, group in (
        (pl.col("source") != EXECUTION, policy.per_day, ["source", "tool_id", day]),
        (pl.col("claimed"), policy.claims_together, ["source", "tool_id", "claimed"]),
    ):
        total = pl.max_horizontal(pl.col("weight").sum().over(group), 1e-12)
        shared = pl.col("weight") * pl.min_horizontal(1.0, most / total)
        limited = limited.with_columns(weight=pl.when(applies).then(shared).otherwise("weight"))
    left_out["of a flood"] = limited.filter(pl.col("weight") < pl.col("before")).height
    return ObservedCalls(limited.select(list(OBSERVED)), left_out)
