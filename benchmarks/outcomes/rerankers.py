"""Every method on judged rows of simulated tools, and what the served reranker costs.

    python -m benchmarks.outcomes.rerankers --data DIR [--part cost] [--stage NAME] [--seed 1]

DIR holds `metatool` and `retrieval`; without it tools and requests are made up. Shapes and priors
were tuned on the stages `metatool-a` and `vendor-mcp-evals` with the mix TUNED; other stages, with
the mix HELD_OUT, were not looked at before.
"""

import argparse
import json
import resource
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.outcomes.baselines import ALL_METHODS
from benchmarks.outcomes.simulated_pools import make_random_stage, read_stage
from benchmarks.outcomes.simulator import (
    EASY,
    HELD_OUT,
    TUNED,
    SimulatedWorld,
    draw_judged,
    make_world,
)
from extensions.recommender.fold_evaluation import assign_folds, run_fold, tabulate_methods
from extensions.recommender.methods import BayesianMethod
from extensions.recommender.rerank_method import OutcomeExample
from training.evaluation.metrics import bootstrap_mean

MIXES = {"tuned": TUNED, "held-out": HELD_OUT, "easy": EASY}
ROWS, TASKS, TRIED, FOLDS = 1_798, 1_000, 3, 5


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("var/rerankers"))
    parser.add_argument("--part", choices=("folds", "cost"), default="folds")
    parser.add_argument("--stage", default="metatool-b")
    parser.add_argument("--mix", choices=tuple(MIXES), default="held-out")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--method", action="append", choices=tuple(ALL_METHODS))
    options = parser.parse_args()
    if options.part == "cost":
        print(json.dumps(measure_cost(), indent=1))
        return
    seeds, names = options.seed or [1], options.method or list(ALL_METHODS)
    if options.data is None:
        stage = make_random_stage(1, 59, 104, TASKS)
    else:
        stage = read_stage(options.stage, options.data, options.cache, 1, 59, 104, TASKS + 200)
    worlds = [make_world(stage, MIXES[options.mix], seed) for seed in seeds]
    figures = compare_folds(worlds, seeds, names)
    print(
        json.dumps({"stage": stage.name, "mix": options.mix, "seeds": seeds, **figures}, indent=1)
    )


def compare_folds(
    worlds: Sequence[SimulatedWorld], seeds: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    """AUC and same-task pair accuracy over judged rows, five folds by task; ours less each other
    method, over folds of all seeds, with its interval."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for world, seed in zip(worlds, seeds, strict=True):
        examples = draw_judged(world, seed + 100, TASKS, TRIED)[:ROWS]
        folds = assign_folds(examples, FOLDS)
        for name in names:
            began = time.perf_counter()
            results = [
                run_fold(name, ALL_METHODS[name], examples, world.stage.pool, folds, fold)
                for fold in range(FOLDS)
            ]
            rows[name].append(tabulate_methods({name: results}, examples)[name])
            took = time.perf_counter() - began
            print(f"{name} seed {seed}: {took:.0f} s", file=sys.stderr, flush=True)
    return {"rows": ROWS, "methods": {name: _summarise_method(rows, name) for name in names}}


def _summarise_method(rows: dict[str, list[dict[str, Any]]], name: str) -> dict[str, Any]:
    summary: dict[str, Any] = {
        key: round(float(np.mean([row[key] for row in rows[name]])), 4)
        for key in ("auc", "pair_accuracy")
    }
    if "calibration" in rows[name][0]:
        errors = [row["calibration"]["calibration_error"] for row in rows[name]]
        summary["calibration_error"] = round(float(np.mean(errors)), 4)
    summary["seconds_a_fold"] = max(fold["seconds"] for row in rows[name] for fold in row["folds"])
    if name != "ours" and "ours" in rows:
        for key in ("auc", "pair_accuracy"):
            gaps = [
                ours[key] - other[key]
                for mine, theirs in zip(rows["ours"], rows[name], strict=True)
                for ours, other in zip(mine["folds"], theirs["folds"], strict=True)
                if ours[key] is not None
            ]
            groups = [str(fold) for fold in range(len(gaps))]
            summary[f"ours_ahead_{key}"] = f"{bootstrap_mean(gaps, groups):+}"
    return summary


def measure_cost(outcomes: int = 1_000_000, tools: int = 2_000) -> dict[str, Any]:
    """Times and memory of the served model over made-up tools with that many outcomes."""
    stage = make_random_stage(1, tools, 0, 4_000, dim=384)
    world = make_world(stage, replace(EASY, candidates=100), 1)
    rng = np.random.default_rng(1)
    rows, picks = rng.integers(0, 4_000, outcomes), rng.integers(0, 20, outcomes)
    examples = [
        OutcomeExample(question, int(question.candidates[pick]), bool(won), task=str(row))
        for row, pick, won in zip(
            rows.tolist(), picks.tolist(), rng.random(outcomes) < 0.5, strict=True
        )
        for question in [world.questions[row]]
    ]
    method = BayesianMethod()
    fit_ms = _time_call(lambda: method.fit(examples, stage.pool))
    scores = [_time_call(lambda q=q: method.ranker.score(q)) for q in world.questions[:1_000]]
    updates = [
        _time_call(lambda example=example: method.update(example)) for example in examples[:1_000]
    ]
    return {
        "outcomes": outcomes,
        "tools": tools,
        "refresh_s": round(fit_ms / 1_000, 1),
        "peak_mb": round(resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024),
        "rerank_100_ms_p50_p95": np.percentile(scores, [50, 95]).round(2).tolist(),
        "update_ms_p50_p95": np.percentile(updates, [50, 95]).round(2).tolist(),
    }


def _time_call(run: Callable[[], Any]) -> float:
    """Milliseconds of one call."""
    began = time.perf_counter()
    run()
    return 1_000 * (time.perf_counter() - began)


if __name__ == "__main__":
    main()
