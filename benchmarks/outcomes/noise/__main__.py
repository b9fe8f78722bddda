"""The noise bench: which tools work, learnt from outcomes of real calls among damaged copies.

    python -m benchmarks.outcomes.noise OUT [--tasks 2000] [--held-out 400] [--variants 150]

Real endpoints of MCP servers run in worlds, in the sandbox of this home's settings; variants are
proxies of ours before them, over MCP too. Each task is tried once with each of its candidates, in
the first state of its world, and judged by rule; the results are kept in OUT as a table
(full information), and every method then plays against that table: nothing is run again for it.
A table in OUT is used again, unless `--again`.
"""

import argparse
import json
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.outcomes.noise.build import TableSize, build_table, load_stage, save_stage
from benchmarks.outcomes.noise.intents import TRAIN
from benchmarks.outcomes.noise.play import Make, NoiseStage
from benchmarks.outcomes.noise.report import (
    describe_table,
    render_report,
    summarise_categories,
    summarise_values,
    value_fixed,
    value_methods,
)
from benchmarks.outcomes.noise.table import FILES
from extensions.recommender.methods import METHODS
from extensions.recommender.question_features import measure_contract_features
from extensions.recommender.rerank_method import OutcomeExample, RerankMethod
from extensions.recommender.tool_pool import ToolPool
from extensions.recommender.toolflix import CallTally, ToolFlix
from orchestration.factories import make_launcher, open_warehouse
from orchestration.settings.load import load_settings
from serving.ranking.strategies import RerankQuestion

RIDGE = 1.0
OATS_STEP = 0.3  # share of the way to the mean of the requests that a tool did


class FixedOrder(RerankMethod):
    """Orders by tool vectors, which `fit` sets; learns nothing online."""

    vectors: np.ndarray

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        return self.vectors[places] @ question.vector


class CosineOrder(FixedOrder):
    """The retriever's similarity; no outcome enters."""

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self.vectors = pool.vectors


class OatsOrder(FixedOrder):
    """Each tool's vector moved towards the requests that it succeeded at (OATS, 2026)."""

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        won, count = np.zeros_like(pool.vectors), np.zeros(len(pool))
        for example in examples:
            if example.success:
                won[example.place] += example.question.vector
                count[example.place] += 1
        mean = won / np.maximum(count, 1)[:, None]
        moved = pool.vectors + OATS_STEP * np.where(count[:, None] > 0, mean - pool.vectors, 0)
        self.vectors = moved / np.maximum(np.linalg.norm(moved, axis=1, keepdims=True), 1e-9)


class TallyMethod(RerankMethod):
    """Base of methods that read counts of the past, similarity and the contract's shape."""

    tally: CallTally

    def measure(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        """float [places, features]."""
        contract = measure_contract_features(self.tally.pool, question, places)
        return np.concatenate([self.tally.measure(question, places), contract], 1)

    def measure_examples(self, examples: Sequence[OutcomeExample]) -> np.ndarray:
        """`measure` of each example's own tool, its own outcome left out."""
        rows = []
        for example in examples:
            place = np.array([example.place])
            contract = measure_contract_features(self.tally.pool, example.question, place)[0]
            rows.append(np.concatenate([self.tally.measure_without(example), contract]))
        return np.array(rows)


class LinUcb(TallyMethod):
    """Least squares on the outcome."""

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self.tally = CallTally(examples, pool)
        if examples:
            rows = self.measure_examples(examples)
        else:
            empty = RerankQuestion("", np.zeros(pool.vectors.shape[1]), np.array([0]))
            rows = self.measure(empty, np.array([0]))[:0]
        several = len(rows) > 1
        self._centre = rows.mean(0) if several else np.zeros(rows.shape[1])
        self._scale = np.maximum(rows.std(0), 1e-2) if several else np.ones(rows.shape[1])
        design = self._scale_rows(rows)
        self._covariance = np.linalg.inv(design.T @ design + RIDGE * np.eye(design.shape[1]))
        self._moment = design.T @ np.array([example.success for example in examples], float)

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        return self._read(question, places) @ (self._covariance @ self._moment)

    def _read(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        return self._scale_rows(self.measure(question, places))

    def _scale_rows(self, rows: np.ndarray) -> np.ndarray:
        scaled = np.clip((rows - self._centre) / self._scale, -4, 4)
        return np.concatenate([scaled, np.ones((len(rows), 1))], 1)


class OutcomeClassifier(TallyMethod):
    """A classifier of outcomes; with outcomes of one kind only it predicts the smoothed rate."""

    def __init__(self, make_model: Callable[[], Any]) -> None:
        self._make_model = make_model

    def fit(self, examples: Sequence[OutcomeExample], pool: ToolPool) -> None:
        self.tally = CallTally(examples, pool)
        success = np.array([example.success for example in examples], bool)
        self._rate = (success.sum() + 1) / (len(success) + 2)
        self._model = None
        if success.any() and not success.all():
            weight = np.array([example.weight for example in examples])
            self._model = self._make_model()
            self._model.fit(self.measure_examples(examples), success, model__sample_weight=weight)

    def score(self, question: RerankQuestion, places: np.ndarray) -> np.ndarray:
        if self._model is None:
            return self._rate * (1 + self.tally.pool.vectors[places] @ question.vector) / 2
        return self._model.predict_proba(self.measure(question, places))[:, 1]


def _make_logistic() -> Any:
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import Pipeline
    from sklearn.preprocessing import StandardScaler

    return Pipeline(
        [("scale", StandardScaler()), ("model", LogisticRegression(C=0.3, max_iter=500))]
    )


def _make_trees() -> Any:
    from sklearn.ensemble import GradientBoostingClassifier
    from sklearn.pipeline import Pipeline

    trees = GradientBoostingClassifier(
        n_estimators=120, learning_rate=0.05, max_depth=3, subsample=0.7, random_state=0
    )
    return Pipeline([("model", trees)])


KNOWN: dict[str, Make] = {
    "cosine": CosineOrder,
    "oats": OatsOrder,
    "linucb": LinUcb,
    "logistic": lambda: OutcomeClassifier(_make_logistic),
    "boosted_trees": lambda: OutcomeClassifier(_make_trees),
    **METHODS,
    "toolflix-slim": lambda: ToolFlix(wide=False),  # without its wide features
}


SUMMARY = "summary.json"


def main() -> None:
    chosen = read_arguments()
    out: Path = chosen.out
    stage = find_stage(out, chosen)
    train = stage.list_tasks(TRAIN)
    names = chosen.methods.split(",") if chosen.methods else list(KNOWN)
    methods = {name: KNOWN[name] for name in names}
    seeds = range(chosen.seeds)
    values = value_fixed(stage) | value_methods(stage, methods, len(train), seeds)
    figures: dict[str, Any] = {
        "table": describe_table(stage),
        "log": {"success": summarise_values(stage, values)},
        "categories": summarise_categories(stage, values),
    }
    tell("learnt from the retriever's log")
    (out / SUMMARY).write_text(json.dumps(figures, indent=1))
    print(json.dumps(figures["table"]))
    print(render_report(figures))


def read_arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("out", type=Path)
    parser.add_argument("--tasks", type=int, default=2000)
    parser.add_argument("--held-out", type=int, default=400)
    parser.add_argument("--variants", type=int, default=150)
    parser.add_argument("--seed", type=int, default=1, help="of variants and failures")
    parser.add_argument("--seeds", type=int, default=3, help="logs that each method learns from")
    parser.add_argument("--methods", help=f"of {', '.join(KNOWN)}; default: all")
    parser.add_argument("--again", action="store_true", help="execute, even with a table in OUT")
    return parser.parse_args()


def find_stage(out: Path, chosen: argparse.Namespace) -> NoiseStage:
    """The table of OUT, or a new one."""
    if not chosen.again and (out / FILES[-1]).is_file():
        return load_stage(out)
    settings = load_settings()
    ledger, policy = open_warehouse(settings).ledger, make_launcher(settings).policy
    size = TableSize(chosen.tasks, chosen.held_out, chosen.variants, chosen.seed)
    run_date = ledger.open_run("noise")
    stage = build_table(size, policy, ledger, run_date, tell)
    ledger.close_run("noise")
    save_stage(stage, out)
    tell("table kept")
    return stage


_BEGAN = time.monotonic()


def tell(line: str) -> None:
    print(f"{time.monotonic() - _BEGAN:5.0f} s  {line}", file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
