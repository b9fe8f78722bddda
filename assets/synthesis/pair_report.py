"""Reports a run's pairs, judgements and spending: figures for the assets' pages, and `spend`.
Requests that belong to no marketplace (`_`) are shared by accepted pairs; the row `all` is
exact."""

import json
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import polars as pl

from assets.columns import read_table_spec
from assets.synthesis.tables import TASKS, reaches_judge, read_goldens
from warehouse.audit import AuditVerdict
from warehouse.json_types import JsonObject, Record, Row
from warehouse.ledger.batch_records import BatchRecord
from warehouse.llm.roles import PENDING
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.statistics import wilson_interval

_SHOWN = 24  # pairs of a table in the UI


def report_pairs(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures and tables of rows of PAIRS."""
    by_task = {task: [row for row in rows if row["task"] == task] for task in TASKS}
    counts = [
        [task, *map(str, _count_outcomes(task_rows))]
        for task, task_rows in by_task.items()
        if task_rows
    ]
    # A few pairs of every task, so that no kind hides the others.
    each = max(2, _SHOWN // len(TASKS))
    latest = [row for task_rows in by_task.values()
              for row in [row for row in task_rows if row["status"] == "ok"][:each]]  # fmt: skip
    reasons = [[str(n), why] for why, n in count_reasons(rows)]
    head = ["task", "fate", "tool", "instruction", "call"]
    return {
        "written": sum(row["status"] == "ok" for row in rows),
        "to_the_judge": sum(reaches_judge(row) for row in rows),
        "failed": sum(row["status"] not in ("ok", PENDING) for row in rows),
        "pending": sum(row["status"] == PENDING for row in rows),
        "provider": _join_names(row["provider"] for row in rows),
        "by_task": make_markdown_table(["task", "rows", *_FATES], counts),
        "why_not": make_markdown_table(["rows", "why"], reasons),
        "latest": make_markdown_table(head, [_make_line(row) for row in latest]),
    }


_FATES = ("accept", "unsure", "reject", "twin", "failed", PENDING)


def _name_outcome(row: Row) -> str:
    if row["status"] != "ok":
        return PENDING if row["status"] == PENDING else "failed"
    return "twin" if row["twin_of"] else str(row["verdict"])


def _count_outcomes(rows: Sequence[Row]) -> list[int]:
    outcomes = Counter(_name_outcome(row) for row in rows)
    return [len(rows), *(outcomes[fate] for fate in _FATES)]


def count_reasons(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """Why pairs go no further, most frequent first: certain flaws, twins, failed steps."""
    reasons: Counter[str] = Counter()
    for row in rows:
        if row["status"] == PENDING:
            reasons["waits for a batch"] += 1
        elif row["status"] != "ok":
            reasons[f"{row['failed_step'] or 'a step'} failed: {row['error_kind']}"] += 1
        elif row["twin_of"]:
            reasons["repeats another pair"] += 1
        elif row["verdict"] == "reject":
            flaws = json.loads(row["flaws"] or "[]")
            reasons.update({flaw["kind"] for flaw in flaws if flaw["certain"]})
    return reasons.most_common()


def report_batches(batches: Sequence[BatchRecord]) -> dict[str, Any]:
    """What was sent by batch in a run, as a table; nothing where nothing was."""
    if not batches:
        return {}
    lines = [
        [batch.name, batch.role, str(batch.requests), batch.state, batch.problem]
        for batch in batches
    ]
    head = ["batch", "role", "requests", "state", "problem"]
    return {"batches": make_markdown_table(head, lines)}


def report_judgements(rows: Sequence[Row], pairs: Sequence[Row]) -> dict[str, Any]:
    """Figures and tables of rows of JUDGEMENTS, over the pairs that they judge."""
    accepted = sum(row["verdict"] == "accept" for row in rows)
    whole = sum(row["status"] == "ok" for row in pairs)
    low, high = wilson_interval(accepted, whole)
    rate = f"{accepted} of {whole} [{low:.2f}, {high:.2f}]" if whole else "none written"
    scores = [row["score"] for row in rows if row["score"] is not None]
    texts = {row["pair_id"]: str(row["instruction"])[:200] for row in pairs}
    rejected = [row for row in rows if row["verdict"] == "reject"]
    worst = sorted(rejected, key=lambda row: row["score"])[:_SHOWN]
    lines = ((f"{row['score']:.1f}", row["tool"], texts.get(row["pair_id"], ""),
              str(row["reasons"])[:160]) for row in worst)  # fmt: skip
    return {
        "accepted": accepted,
        "rejected": len(rejected),
        "failed": sum(row["status"] not in ("ok", PENDING) for row in rows),
        "pending": sum(row["status"] == PENDING for row in rows),
        "accepted_of_written": rate,
        **({"mean_score": round(sum(scores) / len(scores), 2)} if scores else {}),
        "judge": _join_names(row["judge"] for row in rows),
        "rejected_pairs": make_markdown_table(["score", "tool", "instruction", "reasons"], lines),
    }


def tabulate_trials(rows: Sequence[Row]) -> Markdown:
    """The judge's own trial as a table: refused of n per kind of flaw, with 95% intervals."""
    lines = [
        [row["stage"], row["kind"], f"{row['refused']} of {row['n']}",
         f"{row['low']:.2f} to {row['high']:.2f}"]
        for row in rows
    ]  # fmt: skip
    return make_markdown_table(["stage", "pairs that are", "refused", "95% interval"], lines)


def tabulate_costs(rows: Sequence[Row]) -> Markdown:
    """What each stage cost per marketplace, as a table of rows of SPEND."""
    lines = [
        [row["marketplace"], row["stage"], row["model"], str(row["tokens"]), f"{row['usd']:.4f}",
         "" if row["usd_per_accepted_pair"] is None else f"{row['usd_per_accepted_pair']:.6f}"]
        for row in rows
        if row["tokens"] or row["stage"] == "total"
    ]  # fmt: skip
    head = ["marketplace", "stage", "model", "tokens", "usd", "usd per accepted pair"]
    return make_markdown_table(head, lines)


def _make_line(row: Row) -> list[str]:
    calls = []
    for call in read_goldens(row):
        arguments = ", ".join(f"{name}={value!r}" for name, value in call.arguments.items())
        calls.append(f"{call.tool}({arguments})")
    called = "; ".join(calls)[:90] or "no call"
    return [row["task"], _name_outcome(row), row["tool"], str(row["instruction"])[:200], called]


def _join_names(values: Iterable[Any]) -> str:
    return ", ".join(sorted({str(value) for value in values if value})) or "none"


ALL, TOTAL, SHARED = "all", "total", "_"

SPEND = read_table_spec(__file__, "spend")

_COUNT = {"done": "calls", "failed": "failed", "unknown": "unknown"}
_SUMMED = ("calls", "failed", "unknown", "prompt_tokens", "completion_tokens", "usd")
_TRIFLE = 0.001  # US dollars: below it a pair is all but free, and ratios say nothing


def make_spend_rows(
    costs: Iterable[JsonObject], accepted: Mapping[str, int], distinct: int | None = None
) -> list[Record]:
    """Rows of SPEND from `Ledger.costs()` and the accepted pairs per marketplace, with a total for
    each marketplace and one for all. distinct: accepted pairs, each once, where some are in
    several marketplaces."""
    costs_by_key: dict[tuple[str, str, str], Record] = defaultdict(_make_zeros)
    for cost in costs:
        row = costs_by_key[cost["partition"], cost["stage"].removeprefix("llm:"), cost["model"]]
        if cost["status"] in _COUNT:
            row[_COUNT[cost["status"]]] += cost["effects"]
        for name in ("prompt_tokens", "completion_tokens", "usd"):
            row[name] += cost[name]
    sums: dict[str, Record] = defaultdict(_make_zeros)
    for (marketplace, _, _), row in costs_by_key.items():
        for name in _SUMMED:
            sums[marketplace][name] += row[name]
            sums[ALL][name] += row[name]
    whole = sum(accepted.values())
    once = whole if distinct is None else distinct
    rows = [_make_row(*key, row, accepted.get(key[0], 0)) for key, row in costs_by_key.items()]
    for marketplace in sorted((sums.keys() | accepted.keys()) - {ALL, SHARED}):
        pairs = accepted.get(marketplace, 0)
        shared = sums[SHARED]["usd"] * pairs / whole if whole else 0.0
        rows.append(_make_row(marketplace, TOTAL, "", sums[marketplace], pairs, shared))
    return [*rows, _make_row(ALL, TOTAL, "", sums[ALL], once)]


def count_accepted_pairs(judgements: pl.DataFrame) -> tuple[dict[str, int], int]:
    """(accepted pairs per marketplace, accepted pairs each once) of rows of JUDGEMENTS."""
    frame = judgements.filter(pl.col("verdict") == "accept")
    counts = frame.group_by("marketplace").len().sort("marketplace")
    return dict(counts.iter_rows()), frame["pair_id"].n_unique()


def audit_cost(
    rows: Iterable[Record], previous: Iterable[Record], *, most: float = 3.0
) -> AuditVerdict:
    """The audit's question: does an accepted pair cost at most `most` times what it did in the
    version before? Passes where either of them has no accepted pair or is all but free."""
    now, before = _find_overall(rows), _find_overall(previous)
    if now is None or before is None:
        observed = (
            "no accepted pair yet" if now is None else f"{now:.6f} USD; nothing to compare with"
        )
        return AuditVerdict("cost_per_accepted_pair", True, observed)
    limit = most * max(before, _TRIFLE)
    observed = f"{now:.6f} USD, {before:.6f} before"
    return AuditVerdict(
        "cost_per_accepted_pair", now <= limit, observed, f"at most {limit:.6f} USD"
    )


def _find_overall(rows: Iterable[Record]) -> float | None:
    totals = [row for row in rows if (row["marketplace"], row["stage"]) == (ALL, TOTAL)]
    return totals[0]["usd_per_accepted_pair"] if totals else None


def _make_zeros() -> Record:
    return dict.fromkeys(_SUMMED, 0) | {"usd": 0.0}


def _make_row(
    marketplace: str,
    stage: str,
    model: str,
    sums: Record,
    accepted: int,
    shared: float | None = None,
) -> Record:
    tokens, usd = sums["prompt_tokens"] + sums["completion_tokens"], sums["usd"] + (shared or 0.0)
    return {
        "marketplace": marketplace,
        "stage": stage,
        "model": model,
        **sums,
        "usd": round(sums["usd"], 9),
        "tokens": tokens,
        "shared_usd": None if shared is None else round(shared, 9),
        "accepted_pairs": accepted,
        "usd_per_accepted_pair": round(usd / accepted, 9) if accepted else None,
        "tokens_per_accepted_pair": round(tokens / accepted, 3) if accepted else None,
    }
