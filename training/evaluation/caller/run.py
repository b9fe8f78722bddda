"""Asking predictors the same items: rows of CALLER_EVALUATION."""

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from training.evaluation.caller.items import WHOLE_POOL, Item
from training.evaluation.caller.score import score_answer
from training.evaluation.predictors.examples import Embed, select_similar_examples
from training.evaluation.predictors.interface import Asked, Predictor
from training.evaluation.retriever import NothingToEvaluate
from training.prompts.rows import list_named_tools
from warehouse.progress import Progress, SilentProgress

_CHOOSE_FROM_ALL = ("router",)  # who can take a whole pool; a prompt cannot


def evaluate_predictors(
    predictors: Sequence[Predictor],
    items: Sequence[Item],
    training_set: str,
    progress: Progress | None = None,
) -> list[dict[str, Any]]:
    """Every predictor's rows for every item it can be asked. Raises NothingToEvaluate."""
    if not items:
        raise NothingToEvaluate(
            "caller evaluation: 0 items; expected accepted pairs in a test split of the training"
            " set. Deploy more servers, or ask for another --split"
        )
    reporter = progress or SilentProgress()
    rows = []
    for predictor in predictors:
        fit = [
            i for i in items if i.distractors != WHOLE_POOL or predictor.kind in _CHOOSE_FROM_ALL
        ]
        asked = [to_asked(item) for item in fit]

        def on_done(done: int, total: int, label: str = predictor.label) -> None:
            reporter.update(f"asking {label[:40]}", done, total)

        answers = predictor.predict(asked, on_done)
        rows += [
            score_answer(item, answer, predictor.label, training_set)
            for item, answer in zip(fit, answers, strict=True)
        ]
    return rows


def with_examples(
    items: Sequence[Item], train_rows: Sequence[Any], embed: Embed, n: int
) -> list[Item]:
    """The items with up to `n` similar train pairs before each, by the rule of `examples.py`."""
    found = select_similar_examples([item.row for item in items], train_rows, embed, n)
    return [replace(item, examples=each) for item, each in zip(items, found, strict=True)]


def to_asked(item: Item) -> Asked:
    whole = item.distractors == WHOLE_POOL
    named = list_named_tools(item.row) if item.before else frozenset()
    keep = named | {call["name"] for call in item.expected}
    return Asked(
        item.item_id, item.instruction, item.tools, item.examples, keep, whole, item.before
    )
