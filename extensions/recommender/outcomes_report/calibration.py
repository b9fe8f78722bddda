"""Whether the reranker's probabilities are true: what it predicted of held-out calls, what came."""

from collections import defaultdict
from collections.abc import Iterable

import numpy as np

from extensions.recommender.model_role import UNTRAINED_ORDER
from extensions.recommender.outcomes_report.rates import measure_rate, tell_empty
from extensions.recommender.training.evaluation import CALL
from extensions.recommender.training.metrics import BINS, measure_calibration
from training.figures import shorten_model
from warehouse.json_types import Row
from warehouse.sanitize.markdown import Markdown, join_markdown, make_markdown_table


def measure_models(evaluation: Iterable[Row], in_service: str) -> list[dict[str, object]]:
    """Of each fitted model {model, in_service, n, worked, brier, constant: Brier score of telling
    the mean each time, log_loss, calibration_error, bins: [{predicted, observed}]}. evaluation:
    rows of RERANKER_EVALUATION. The retriever's order tells no probability, and is left out."""
    calls: dict[str, list[tuple[float, bool]]] = defaultdict(list)
    for row in evaluation:
        if row["kind"] == CALL and row["model"] != UNTRAINED_ORDER:
            calls[row["model"]].append((row["score"], row["right"]))
    return [
        {"model": name, "in_service": name == in_service, **_measure_model(calls[name])}
        for name in sorted(calls)
    ]


def render_calibration(models: list[dict[str, object]]) -> Markdown:
    """The part of the page: one line a model."""
    if not models:
        return tell_empty("no reranker was fitted (asset reranker_adapter says what it lacks)")
    lead = Markdown(
        "Held-out calls in ten groups of equal size by what the reranker predicted. A Brier"
        " score below that of a constant says that its probabilities tell calls apart."
    )
    lines = [
        [
            f"{shorten_model(str(model['model']))}{' (in service)' if model['in_service'] else ''}",
            model["n"],
            *(f"{model[name]:.3f}" for name in ("worked", "brier", "constant", "log_loss")),
            f"{model['calibration_error']:.3f}",
        ]
        for model in models
    ]
    head = (
        "model",
        "calls",
        "worked",
        "Brier",
        "Brier of a constant",
        "log loss",
        "calibration error",
    )
    return join_markdown("\n\n", [lead, make_markdown_table(head, lines)])


def _measure_model(calls: list[tuple[float, bool]]) -> dict[str, object]:
    p = np.array([score for score, _ in calls], float)
    worked = np.array([right for _, right in calls], bool)
    order, rate = np.argsort(p, kind="stable"), float(worked.mean())
    parts = [part for part in np.array_split(order, BINS) if len(part)]
    figures = {**measure_calibration(p, worked), "worked": rate, "constant": rate * (1 - rate)}
    return {
        "n": len(calls),
        **{name: round(value, 4) for name, value in figures.items()},
        "bins": [
            {
                "predicted": round(float(p[part].mean()), 4),
                "observed": measure_rate(int(worked[part].sum()), len(part)),
            }
            for part in parts
        ],
    }
