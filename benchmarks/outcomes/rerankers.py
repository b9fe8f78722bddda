"""Every method on judged rows, on a stream that starts cold, after drift, and what ours costs.

    python -m benchmarks.outcomes.rerankers --data DIR [--part offline] [--stage NAME] [--seed 1]

DIR holds `metatool` and `retrieval`; without it the tools and requests are made up. Methods were
chosen and tuned on the stages of TUNED_ON with the mix TUNED; what is printed for the others, with
the mix HELD_OUT, was not looked at until then.
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

from benchmarks.outcomes.online import Stream, run_stream, tell_oracle, tell_retriever
from benchmarks.outcomes.simulated_pools import Stage, make_random_stage, read_stage
from benchmarks.outcomes.simulator import (
    EASY,
    HELD_OUT,
    TUNED,
    Mix,
    World,
    draw_judged,
    drift_world,
    make_world,
)
from extensions.recommender.training.examples import Example, Method
from extensions.recommender.training.folds import assign_folds, run_fold, tabulate_methods
from extensions.recommender.training.methods.catalogue import METHODS
from extensions.recommender.training.methods.ours import Ours
from extensions.recommender.training.ranker_fit import FitSettings
from training.evaluation.metrics import bootstrap_mean

TUNED_ON = ("metatool-a", "vendor-mcp-evals")
MIXES: dict[str, Mix] = {"tuned": TUNED, "held-out": HELD_OUT, "easy": EASY}
ROWS, TASKS, TRIED, FOLDS = 1_798, 1_000, 3, 5
DRIFTING = FitSettings(half_life_s=600 * 600.0)  # 600 requests, at one in ten minutes
_WINDOW = 100


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--data", type=Path)
    parser.add_argument("--cache", type=Path, default=Path("var/rerankers"))
    parser.add_argument(
        "--part", choices=("offline", "online", "drift", "cold", "cost"), default="offline"
    )
    parser.add_argument("--stage", default="metatool-b")
    parser.add_argument("--mix", choices=tuple(MIXES), default="held-out")
    parser.add_argument("--seed", type=int, action="append")
    parser.add_argument("--method", action="append", choices=tuple(METHODS))
    asked = parser.parse_args()
    seeds, names = asked.seed or [1], asked.method or list(METHODS)
    if asked.part == "cost":
        print(json.dumps(measure_cost(), indent=1))
        return
    stage = _open_stage(asked.data, asked.cache, asked.stage)
    worlds = [make_world(stage, MIXES[asked.mix], seed) for seed in seeds]
    part = {"offline": compare_offline, "online": compare_online, "drift": compare_drift}
    part["cold"] = compare_cold_start
    found = part[asked.part](worlds, seeds, names)
    print(json.dumps({"stage": stage.name, "mix": asked.mix, "seeds": seeds, **found}, indent=1))


def _open_stage(data: Path | None, cache: Path, name: str) -> Stage:
    if data is None:
        return make_random_stage(1, 59, 104, TASKS)
    return read_stage(name, data, cache, 1, 59, 104, TASKS + 200)


def compare_offline(
    worlds: Sequence[World], seeds: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    """AUC and same-task pair accuracy over judged rows, five folds by task; ours less each other,
    over folds of all seeds, with its interval."""
    rows: dict[str, list[dict[str, Any]]] = {name: [] for name in names}
    for world, seed in zip(worlds, seeds, strict=True):
        examples = draw_judged(world, seed + 100, TASKS, TRIED)[:ROWS]
        folds = assign_folds(examples, FOLDS)
        for name in names:
            began = time.perf_counter()
            results = [
                run_fold(name, METHODS[name], examples, world.stage.pool, folds, fold)
                for fold in range(FOLDS)
            ]
            rows[name].append(tabulate_methods({name: results}, examples)[name])
            _tell(f"offline {name} seed {seed}: {time.perf_counter() - began:.0f} s")
    return {"rows": ROWS, "methods": {name: _sum_offline(rows, name) for name in names}}


def _sum_offline(rows: dict[str, list[dict[str, Any]]], name: str) -> dict[str, Any]:
    found: dict[str, Any] = {
        key: round(float(np.mean([row[key] for row in rows[name]])), 4)
        for key in ("auc", "pair_accuracy")
    }
    if "calibration" in rows[name][0]:
        errors = [row["calibration"]["calibration_error"] for row in rows[name]]
        found["calibration_error"] = round(float(np.mean(errors)), 4)
    seconds = [fold["seconds"] for row in rows[name] for fold in row["folds"]]
    found["seconds_a_fold"] = round(float(np.max(seconds)), 1)
    if name != "ours" and "ours" in rows:
        for key in ("auc", "pair_accuracy"):
            gaps = [
                ours[key] - other[key]
                for mine, theirs in zip(rows["ours"], rows[name], strict=True)
                for ours, other in zip(mine["folds"], theirs["folds"], strict=True)
                if ours[key] is not None
            ]
            groups = [str(at) for at in range(len(gaps))]
            found[f"ours_ahead_{key}"] = f"{bootstrap_mean(gaps, groups):+}"
    return found


def compare_online(
    worlds: Sequence[World], seeds: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    """Expected success by what the actor takes of the five shown, over a stream from cold."""
    streams: dict[str, list[Stream]] = {}
    for name in names:
        began = time.perf_counter()
        streams[name] = [
            run_stream([(TASKS, world)], METHODS[name], seed)
            for world, seed in zip(worlds, seeds, strict=True)
        ]
        _tell(f"online {name}: {time.perf_counter() - began:.0f} s")
    found = {name: _sum_streams(own) for name, own in streams.items()}
    if "ours" in streams:
        for name in set(names) - {"ours"}:
            found[name]["ours_ahead"] = _compare_streams(streams["ours"], streams[name])
    return {
        "requests": TASKS,
        "oracle": round(float(np.mean([tell_oracle(world).mean() for world in worlds])), 4),
        "retriever": round(float(np.mean([tell_retriever(one).mean() for one in worlds])), 4),
        "methods": found,
    }


def _sum_streams(streams: Sequence[Stream]) -> dict[str, Any]:
    expected = np.array([stream.expected for stream in streams])
    return {
        "success": round(float(expected.mean()), 4),
        "first_50": round(float(expected[:, :50].mean()), 4),
        "requests_50_to_250": round(float(expected[:, 50:250].mean()), 4),
        "last_250": round(float(expected[:, -250:].mean()), 4),
    }


def _compare_streams(ours: Sequence[Stream], others: Sequence[Stream]) -> str:
    """The mean difference a request; requests of twenty in a row are drawn together."""
    gaps, groups = [], []
    for seed, (mine, theirs) in enumerate(zip(ours, others, strict=True)):
        for at, (one, other) in enumerate(zip(mine.expected, theirs.expected, strict=True)):
            gaps.append(one - other)
            groups.append(f"{seed}/{at // 20}")
    return f"{bootstrap_mean(gaps, groups):+}"


def compare_drift(
    worlds: Sequence[World], seeds: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    """After 20% of the tools changed in mid-stream: requests until nine tenths of what the change
    cost are made up for, and what is lost to the oracle before and after; seeds are drawn."""
    makers: dict[str, Callable[[], Method]] = {name: METHODS[name] for name in names}
    makers["ours"] = lambda: Ours(DRIFTING)
    refits = tuple(range(100, 2 * TASKS, 100))
    found: dict[str, Any] = {}
    for name, make in makers.items():
        lost, began = [], time.perf_counter()
        for world, seed in zip(worlds, seeds, strict=True):
            later = drift_world(world, 0.2, seed)
            stream = run_stream([(TASKS, world), (TASKS, later)], make, seed, refits=refits)
            lost.append(list_lost((world, later), stream))
        found[name] = summarise_drift(np.array(lost), TASKS)
        _tell(f"drift {name}: {time.perf_counter() - began:.0f} s")
    return {"methods": found}


def list_lost(worlds: tuple[World, World], stream: Stream) -> list[float]:
    """Expected success that each request lost to who knows the true chances; the second world is
    played from the TASKS-th on."""
    best = [tell_oracle(world) for world in worlds]
    rows = [int(example.task.removeprefix("task-")) for example in stream.examples]
    return [
        float(best[at >= TASKS][row]) - expected
        for at, (row, expected) in enumerate(zip(rows, stream.expected, strict=True))
    ]


def summarise_drift(lost: np.ndarray, change: int, draws: int = 1_000) -> dict[str, Any]:
    """Of losses [seeds, requests]: when the mean over seeds has recovered, with the 95% interval of
    drawing seeds (null: not within the stream), and the losses before and after the change."""
    rng = np.random.default_rng(0)
    never = lost.shape[1] - change + 1
    ends = [
        count_recovery(lost[rng.integers(0, len(lost), len(lost))].mean(0), change) or never
        for _ in range(draws)
    ]
    spread = np.percentile(ends, [2.5, 97.5], method="nearest").astype(int).tolist()
    groups = [str(seed) for seed in range(len(lost))]
    before, after = (
        part.mean(1).tolist() for part in (lost[:, change - 200 : change], lost[:, change:])
    )
    return {
        "seeds": len(lost),
        "requests_to_recover": count_recovery(lost.mean(0), change),
        "interval": [end if end < never else None for end in spread],
        "lost_before": f"{bootstrap_mean(before, groups)}",
        "lost_after": f"{bootstrap_mean(after, groups)}",
    }


def compare_cold_start(
    worlds: Sequence[World], seeds: Sequence[int], names: Sequence[str]
) -> dict[str, Any]:
    """A good twin of a tool comes after 500 requests: over the first 50 requests that it serves
    best, what is lost to who knows it (mean success), and how often it is among the five."""
    found: dict[str, Any] = {}
    for name in names:
        lost, shown, groups = [], [], []
        for world, seed in zip(worlds, seeds, strict=True):
            for twin in choose_twins(world, 2):
                without = hide_tool(world, twin)
                stream = run_stream([(500, without), (500, world)], METHODS[name], seed)
                served = list_served(world, stream, twin, 500)[:50]
                lost += [gap for gap, _ in served]
                shown += [at_hand for _, at_hand in served]
                groups += [str(seed)] * len(served)
        found[name] = {
            "n": len(lost),
            "lost": f"{bootstrap_mean(lost, groups)}",
            "shown": round(float(np.mean(shown)), 3) if shown else None,
        }
        _tell(f"cold {name}")
    return {"methods": found}


def choose_twins(world: World, count: int) -> list[int]:
    """The variants that are the best candidate of the most requests."""
    best = [int(one.candidates[np.argmax(world.chance[row, one.candidates])])
            for row, one in enumerate(world.questions)]  # fmt: skip
    wins = np.bincount(best, minlength=len(world.stage.pool))
    variants = wins[world.stage.real :]
    return (world.stage.real + np.argsort(-variants)[:count]).tolist()


def hide_tool(world: World, place: int) -> World:
    """The world before a tool was there: no candidate of any question."""
    questions = tuple(
        replace(question, candidates=question.candidates[question.candidates != place])
        for question in world.questions
    )
    return replace(world, questions=questions)


def list_served(world: World, stream: Stream, twin: int, since: int) -> list[tuple[float, bool]]:
    """(what was lost to the best five, whether the twin was among those shown) of each request
    since then that the twin serves best."""
    best, found = tell_oracle(world), []
    for at in range(since, len(stream.expected)):
        row = int(stream.examples[at].task.removeprefix("task-"))
        if world.chance[row, twin] >= 0.95 * world.chance[row].max():
            found.append((float(best[row]) - stream.expected[at], twin in stream.shown[at]))
    return found


def count_recovery(lost: Sequence[float] | np.ndarray, change: int) -> int | None:
    """Requests after `change` until a window of 100 has made up for nine tenths of what the worst
    window lost beyond the 200 before the change; None where none has, or nothing was lost."""
    values = np.asarray(lost, float)
    before = values[max(change - 2 * _WINDOW, 0) : change].mean()
    windows = np.convolve(values[change:], np.ones(_WINDOW) / _WINDOW, "valid")
    worst = int(np.argmax(windows[: 3 * _WINDOW]))
    if windows[worst] <= before:
        return None
    goal = before + 0.1 * (windows[worst] - before)
    back = np.flatnonzero(windows[worst:] <= goal)
    return int(worst + back[0] + _WINDOW) if len(back) else None


def measure_cost(outcomes: int = 1_000_000, tools: int = 2_000) -> dict[str, Any]:
    """Times and memory of ours over made-up tools with that many outcomes."""
    stage = make_random_stage(1, tools, 0, 4_000, dim=384)
    world = make_world(stage, replace(EASY, candidates=100), 1)
    rng = np.random.default_rng(1)
    rows, picks = rng.integers(0, 4_000, outcomes), rng.integers(0, 20, outcomes)
    examples = [
        Example(question, int(question.candidates[pick]), bool(won), task=str(row))
        for row, pick, won in zip(
            rows.tolist(), picks.tolist(), rng.random(outcomes) < 0.5, strict=True
        )
        for question in [world.questions[row]]
    ]
    began = time.perf_counter()
    method = Ours()
    method.fit(examples, stage.pool)
    refresh = time.perf_counter() - began
    ranker = method.ranker
    scores = [_time(lambda q=q: ranker.score(q)) for q in world.questions[:1_000]]
    updates = [
        _time(
            lambda example=example: ranker.update(example.question, example.place, example.success)
        )
        for example in examples[:1_000]
    ]
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
    return {
        "outcomes": outcomes,
        "tools": tools,
        "refresh_s": round(refresh, 1),
        "peak_mb": round(peak),
        "rerank_100_ms_p50_p95": np.percentile(scores, [50, 95]).round(2).tolist(),
        "update_ms_p50_p95": np.percentile(updates, [50, 95]).round(2).tolist(),
    }


def _time(run: Callable[[], Any]) -> float:
    began = time.perf_counter()
    run()
    return 1_000 * (time.perf_counter() - began)


def _tell(line: str) -> None:
    print(line, file=sys.stderr, flush=True)


if __name__ == "__main__":
    main()
