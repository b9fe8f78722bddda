"""`toolmill evaluate`: any models on any part of the test splits, as plain data and as files."""

import json
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.evaluation.caller.bench import Bench
from training.evaluation.caller.items import make_whole_pool_items
from training.evaluation.caller.markdown import as_markdown
from training.evaluation.caller.plan import TestPlan
from training.evaluation.caller.run import evaluate_predictors, with_examples
from training.evaluation.caller.summary import summarise_calls
from training.evaluation.predictors.examples import RULE, Embed
from training.evaluation.predictors.interface import Predictor
from warehouse.progress import Progress
from warehouse.storage.files import write_atomically

# Some 2,000 items on a set of a thousand pairs: minutes for a small model, cents for an endpoint.
LARGE = TestPlan(per_split=100, per_large=50, perturbations=50, irrelevance=100, phantom=100)
ENDPOINT_FAILURES = (
    "endpoint_down", "timeout", "rate_limited", "server_error", "auth", "bad_request",
    "no_provider", "budget_exceeded",
)  # fmt: skip


@dataclass(frozen=True)
class Evaluated:
    """Every row, and the first model's summary against each other one."""

    plan: TestPlan
    rows: list[dict[str, Any]]
    summaries: list[dict[str, Any]]
    notes: list[str]

    def as_dict(self) -> dict[str, Any]:
        return {
            "plan": asdict(self.plan),
            "rows": len(self.rows),
            "unanswered": count_unanswered(self.rows),
            "notes": self.notes,
            "summaries": self.summaries,
        }


def compare_callers(
    held: Bench,
    predictors: Sequence[Predictor],
    plan: TestPlan,
    *,
    examples: int = 0,
    embed: Embed | None = None,
    progress: Progress | None = None,
) -> Evaluated:
    """Asks every model the plan's items. Raises NothingToEvaluate, CannotPredict.

    `examples`: similar accepted train pairs put before each request, found by `embed`.
    """
    items, notes = held.make_items_for(plan), []
    if any(predictor.kind == "router" for predictor in predictors):
        items += make_whole_pool_items(held.rows, held.pool, plan)
    if examples and embed is not None:
        items = with_examples(items, held.rows, embed, examples)
        notes.append(f"{examples} examples before each request: {RULE}")
    rows = evaluate_predictors(predictors, items, held.training_set, progress)
    first = predictors[0].label
    summaries = [summarise_calls(rows, first, other.label) for other in predictors[1:]]
    return Evaluated(plan, rows, summaries, notes)


def count_unanswered(rows: Sequence[dict[str, Any]]) -> dict[str, dict[str, int]]:
    """Model -> error kind -> questions that got no answer."""
    out: dict[str, dict[str, int]] = {}
    for row in rows:
        if row["failed"]:
            of = out.setdefault(row["model"], {})
            of[row["error_kind"]] = of.get(row["error_kind"], 0) + 1
    return out


def write_out(folder: Path, made: Evaluated) -> list[Path]:
    """`items.jsonl` (a row a model and item), `summary.json`, `report.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row) + "\n" for row in made.rows)
    summary = json.dumps(made.as_dict(), indent=1)
    parts = {
        "items.jsonl": lines,
        "summary.json": summary,
        "report.md": as_markdown(made.summaries),
    }
    for name, text in parts.items():
        write_atomically(folder / name, text.encode())
    return [folder / name for name in parts]
