"""Callers on data of others: BFCL-format folders, by BFCL's rules and by ours.

    questions -> any predictor -> both verdicts -> per category, all beside the uncontaminated part

An answer that never came (an endpoint's fault) is in no rate and counted. Rates are over items;
BFCL's leaderboard averages categories, so its figures are not these.
"""

import json
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from extensions.bench.bfcl.data import BfclItem, read_bfcl
from extensions.bench.bfcl.verdict import match_bfcl
from extensions.bench.outside.contamination import measure_all_and_clean
from extensions.bench.outside.contamination_kept import Embed, check_against_training
from extensions.bench.outside.items import match_by_our_rules, render_request, to_asked
from training.evaluation.metrics import bootstrap_difference
from training.evaluation.predictors.interface import Answered, Predictor
from training.evaluation.retriever import NothingToEvaluate
from training.evaluation.saved import OUTSIDE, save_evaluation
from warehouse.progress import Progress, SilentProgress
from warehouse.store import Warehouse

Row = dict[str, Any]
RULES = {
    "bfcl": "BFCL's checker reproduced (bfcl_compat): its normalised strings, its types",
    "ours": "AST match through the schema, any allowed value, calls in any order; Python and"
    " relevance categories only (Java and JavaScript values are source text)",
    "relevance": "irrelevance categories: right is no call; relevance: any call",
}


def evaluate_outside_set(
    warehouse: Warehouse,
    folder: Path,
    predictors: Sequence[Predictor],
    embed: Embed | None = None,
    per_category: int | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Every predictor on a BFCL-format folder: {"set", "contamination", "models": [summary],
    "rules", "skipped", "rows"}; each is paired with the last, the baseline as a rule. per_category:
    items, the first of each; None: all. Kept under `<home>/evaluations` by model. Raises
    UnusableInput, NothingToEvaluate."""
    reporter = progress or SilentProgress()
    skipped: list[str] = []
    items = _choose_items(read_bfcl(folder, skipped), per_category, folder)
    name = f"BFCL-format {folder.name}"
    texts = [render_request(item) for item in items]
    held = check_against_training(warehouse, texts, name, embed=embed)
    clean = dict(zip([item.id for item in items], held.found.clean, strict=True))
    rows: list[Row] = []
    asked = [to_asked(item) for item in items]
    for predictor in predictors:
        stage = f"asking {predictor.label[:40]}"
        answers = predictor.predict(asked, lambda done, of, at=stage: reporter.update(at, done, of))
        rows += [
            make_outside_row(item, answer, predictor.label, clean[item.id])
            for item, answer in zip(items, answers, strict=True)
        ]
    models = [
        summarise_outside_rows(rows, predictor.label, predictors[-1].label)
        for predictor in predictors
    ]
    common = {"set": name, "contamination": held.summary, "skipped": skipped, "rules": RULES}
    for model in models:
        save_evaluation(warehouse.home, OUTSIDE, f"{name}: {model['model']}", {**common, **model})
    return {**common, "models": models, "rows": rows}


def make_outside_row(item: BfclItem, answer: Answered, model: str, clean: bool) -> Row:
    """One item's verdicts."""
    theirs = match_bfcl(
        item.functions, item.truth, answer.calls, language=item.language, category=item.category
    )
    ours, kind = (None, None)
    if item.language == "python":
        ours, kind = match_by_our_rules(item, answer.calls)
    return {
        "model": model,
        "item_id": item.id,
        "category": item.category,
        "calls": json.dumps(answer.calls, ensure_ascii=False, default=str),
        "kind": answer.kind,
        "bfcl": theirs.match,
        "bfcl_error": theirs.error_kind,
        "ours": ours,
        "ours_error": kind,
        "clean": clean,
        "failed": answer.error is not None,
        "error": answer.error,
        "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "usd": answer.usd,
    }


def summarise_outside_rows(rows: Sequence[Row], model: str, against: str) -> dict[str, Any]:
    """JSON of one model: figures by BFCL's rules and by ours, each over all items and over the
    clean ones, per category and in all; the paired difference to `against` on common items."""
    mine = [row for row in rows if row["model"] == model]
    answered = [row for row in mine if not row["failed"]]
    theirs = {r["item_id"]: r for r in rows if r["model"] == against and not r["failed"]}
    common = [(row, theirs[row["item_id"]]) for row in answered if row["item_id"] in theirs]
    categories = dict.fromkeys(row["category"] for row in answered)
    return {
        "model": model,
        "n": len(answered),
        "failures": dict(Counter(str(row["error"]) for row in mine if row["failed"])),
        **_measure_both_rules(answered),
        "categories": {
            name: _measure_both_rules([row for row in answered if row["category"] == name])
            for name in categories
        },
        "errors": dict(Counter(str(r["bfcl_error"]) for r in answered if not r["bfcl"])),
        "against": against,
        "difference": bootstrap_difference(
            [float(ours["bfcl"]) for ours, _ in common],
            [float(other["bfcl"]) for _, other in common],
            [ours["item_id"] for ours, _ in common],
        ).as_dict(),
        "prompt_tokens": sum(row["prompt_tokens"] for row in answered),
        "completion_tokens": sum(row["completion_tokens"] for row in answered),
        "usd": round(sum(row["usd"] for row in answered), 6),
    }


def _measure_both_rules(rows: Sequence[Row]) -> dict[str, Any]:
    return {name: _measure_rule([row for row in rows if row[name] is not None], name)
            for name in ("bfcl", "ours")}  # fmt: skip


def _measure_rule(rows: Sequence[Row], name: str) -> dict[str, Any]:
    values = [float(row[name]) for row in rows]
    return measure_all_and_clean(
        values, [row["item_id"] for row in rows], [row["clean"] for row in rows]
    )


def _choose_items(items: Sequence[BfclItem], most: int | None, folder: Path) -> list[BfclItem]:
    """The first so many of each category."""
    seen: Counter[str] = Counter()
    out = []
    for item in items:
        seen[item.category] += 1
        if most is None or seen[item.category] <= most:
            out.append(item)
    if not out:
        raise NothingToEvaluate(f"{folder}: found no question in its files")
    return out
