"""Report: what a run's pairs and judgements come to, for the asset's page."""

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from typing import Any

from assets.synthesis.common.tables import TASKS, reaches_judge, read_goldens
from warehouse.json_types import Row
from warehouse.ledger.events import Batch
from warehouse.llm.roles import PENDING
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.statistics import wilson_interval

_SHOWN = 24  # pairs of a table in the UI


def report_pairs(rows: Sequence[Row]) -> dict[str, Any]:
    """Figures and tables of rows of PAIRS."""
    by_task = {task: [row for row in rows if row["task"] == task] for task in TASKS}
    counts = [[task, *map(str, _count_outcomes(own))] for task, own in by_task.items() if own]
    # A few pairs of every task, so that no kind hides the others.
    each = max(2, _SHOWN // len(TASKS))
    latest = [row for own in by_task.values()
              for row in [one for one in own if one["status"] == "ok"][:each]]  # fmt: skip
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
    """The outcome of a pair before the judge."""
    if row["status"] != "ok":
        return PENDING if row["status"] == PENDING else "failed"
    return "twin" if row["twin_of"] else str(row["verdict"])


def _count_outcomes(rows: Sequence[Row]) -> list[int]:
    found = Counter(_name_outcome(row) for row in rows)
    return [len(rows), *(found[fate] for fate in _FATES)]


def count_reasons(rows: Iterable[Row]) -> list[tuple[str, int]]:
    """Why pairs go no further, most frequent first: certain flaws, twins, failed steps."""
    found: Counter[str] = Counter()
    for row in rows:
        if row["status"] == PENDING:
            found["waits for a batch"] += 1
        elif row["status"] != "ok":
            found[f"{row['failed_step'] or 'a step'} failed: {row['error_kind']}"] += 1
        elif row["twin_of"]:
            found["repeats another pair"] += 1
        elif row["verdict"] == "reject":
            flaws = json.loads(row["flaws"] or "[]")
            found.update({flaw["kind"] for flaw in flaws if flaw["certain"]})
    return found.most_common()


def report_batches(batches: Sequence[Batch]) -> dict[str, Any]:
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
