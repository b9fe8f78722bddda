"""What a served reranker costs: `find` with and without it in turns, an update, and `find` while
thousands of outcomes of the log are learnt.

    python -m benchmarks.outcomes.bench_served [--home DIR] [--size 12600] [--queries 300]

The index is that of `benchmarks/router_latency.py`; outcomes are made up. Prints one JSON object.
"""

import argparse
import json
import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event, Thread
from typing import Any

import numpy as np

from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.log import CallLog
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.saved import open_encoder, save_encoder
from benchmarks.own_process import run_alone
from benchmarks.router_latency import SMITHERY, build_grown, build_size
from benchmarks.shared_data import SHARED, read_corpus, require_paths
from extensions.recommender.online_learner import OnlineLearner
from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.reranker import BayesianReranker
from extensions.recommender.reranker_file import open_pool
from extensions.recommender.reranker_fit import fit_reranker
from extensions.recommender.tool_pool import ToolPool
from serving.index.folder import load_index
from serving.ranking.query import ToolQuery
from serving.ranking.reranking import RERANKED, RerankQuestion
from serving.ranking.strategies import find_top
from serving.router import QUERY_TOKENS, Router

_WARM, _SEED, _TOKENS = 20, 7, 50


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--home", type=Path, default=Path("var/router_bench"))
    parser.add_argument("--size", type=int, default=12_600)
    parser.add_argument("--queries", type=int, default=300)
    parser.add_argument("--fitted", type=int, default=5_000, help="outcomes of the fit")
    parser.add_argument("--learnt", type=int, default=4_000, help="outcomes of the log")
    parser.add_argument("--threads", type=int, default=2)
    args = parser.parse_args()
    require_paths(SHARED / "corpus", SMITHERY)
    os.environ |= dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), str(args.threads))
    run_alone(build_size, args.home, args.size, args.threads)
    print(json.dumps(run_alone(measure_served, args), indent=1))


def measure_served(asked: argparse.Namespace) -> dict[str, Any]:
    """Milliseconds of each part."""
    base = MiniLM(threads=asked.threads)
    save_encoder(base, asked.home)
    encoder = open_encoder(asked.home, base.id, threads=asked.threads, most_tokens=QUERY_TOKENS)
    index = load_index(asked.home / "index", build_grown(asked.home, asked.size, base))
    pool = open_pool(index)
    words = [row["instruction"] for row in read_corpus()]
    rng = np.random.default_rng(_SEED)
    words = [words[at] for at in rng.permutation(len(words))]
    outcomes = draw_outcomes(pool, words, encoder.embed(words[: asked.fitted]), asked.fitted, rng)
    weights = fit_reranker(outcomes, pool, embedder=encoder.id)
    ranked = Router(index, encoder, ranker=BayesianReranker(weights, pool))
    plain, asks = Router(index, encoder), [ToolQuery(query=text) for text in words[: asked.queries]]
    result: dict[str, Any] = {"tools": len(index.tools), "fitted": len(outcomes)}
    result["load_average"] = os.getloadavg()[0]
    result |= time_in_turns({"plain": plain.find, "reranked": ranked.find}, asks)
    pair = result["reranked"], result["plain"]
    result["ratio"] = {part: round(pair[0][part] / pair[1][part], 3) for part in ("p50", "p95")}
    questions = [outcome.question for outcome in outcomes[: asked.queries]]
    ranker = BayesianReranker(weights, pool)
    result |= time_in_turns({"score of 100": ranker.score}, questions)
    result |= time_in_turns(
        {"update": lambda one: ranker.update(one, int(one.candidates[0]), False)}, questions
    )
    with TemporaryDirectory() as place:
        result["learning"] = measure_learning(Path(place), ranked, asks, asked.learnt, words)
    return result


def draw_outcomes(
    pool: ToolPool, words: Sequence[str], vectors: np.ndarray, count: int, rng: np.random.Generator
) -> list[OutcomeExample]:
    """Outcomes of tools among the first five for requests; each tool has a rate of its own."""
    rates, made = rng.beta(4, 1, len(pool)), []
    for at in range(count):
        vector = vectors[at % len(vectors)]
        candidates = find_top(pool.vectors @ vector, None, RERANKED)
        place = int(candidates[rng.integers(5)])
        question = RerankQuestion(words[at % len(vectors)], vector, candidates, float(at))
        made.append(OutcomeExample(question, place, bool(rng.random() < rates[place])))
    return made


def time_in_turns(
    parts: dict[str, Callable[[Any], Any]], given: Sequence[Any]
) -> dict[str, dict[str, Any]]:
    """Milliseconds of each part, asked the same in turns, so that other work meets all of them;
    `cpu`: of the processor's time."""
    took: dict[str, list[float]] = {name: [] for name in parts}
    worked: dict[str, list[float]] = {name: [] for name in parts}
    for at, one in enumerate([*given[:_WARM], *given]):
        for name in list(parts)[:: 1 if at % 2 else -1]:
            began, busy = time.perf_counter(), time.process_time()
            parts[name](one)
            worked[name].append((time.process_time() - busy) * 1000)
            took[name].append((time.perf_counter() - began) * 1000)
    return {
        name: {
            **tell_quantiles(took[name][_WARM:]),
            "cpu": tell_quantiles(worked[name][_WARM:]),
        }
        for name in parts
    }


def tell_quantiles(values: Sequence[float]) -> dict[str, float]:
    p50, p95 = np.quantile(values, [0.5, 0.95])
    return {"p50": round(float(p50), 2), "p95": round(float(p95), 2), "n": len(values)}


class _ServedRouterStub:
    """One router, for the learner that asks for what is served."""

    def __init__(self, router: Router) -> None:
        self._router = router

    def current(self) -> Router:
        return self._router


def measure_learning(
    place: Path, router: Router, asks: Sequence[ToolQuery], count: int, words: Sequence[str]
) -> dict[str, Any]:
    """How long a log of so many outcomes takes to be learnt beside searches, and those meanwhile;
    then a late report of the first call that worked, after which all others are learnt anew."""
    first = write_log(place, router, count, words)
    policy = ReliabilityPolicy()
    ranker = router.ranker
    assert isinstance(ranker, BayesianReranker)
    # The fit has no date; the log is of now.
    weights = replace(ranker.weights, facts={**ranker.weights.facts, "until": 0.0})
    router = Router(router.index, router.encoder, ranker=BayesianReranker(weights, ranker.pool))
    learner = OnlineLearner(_ServedRouterStub(router), CallLog(place), policy)  # type: ignore[arg-type]
    result: dict[str, Any] = {}
    for name in ("the whole log", "a late report"):
        if name == "a late report":
            CallLog(place).record({**first, "status": "reported", "reported": "failed"})
        done, took, steps = Event(), [], []
        began = time.perf_counter()
        thread = Thread(target=_follow, args=(learner, done, steps), daemon=True)
        thread.start()
        at = 0
        while not done.is_set():
            start = time.perf_counter()
            router.find(asks[at % len(asks)])
            took.append((time.perf_counter() - start) * 1000)
            at += 1
        thread.join()
        result[name] = {
            "seconds": round(time.perf_counter() - began, 2),
            "learnt": learner.learnt,
            "longest step": round(max(steps), 1),
            "find meanwhile": tell_quantiles(took),
        }
    return result


def _follow(learner: OnlineLearner, done: Event, steps: list[float]) -> None:
    """As the meta-server does, until nothing is left."""
    while True:
        began = time.perf_counter()
        idle = learner.step()
        steps.append((time.perf_counter() - began) * 1000)
        if idle:
            break
        time.sleep(steps[-1] / 1000)
    done.set()


def write_log(place: Path, router: Router, count: int, words: Sequence[str]) -> dict[str, str]:
    """Searches and calls of fifty tokens, as the log has them; what names the first that worked."""
    rng, tools = np.random.default_rng(_SEED), router.index.tools
    now, folder = time.time(), place / "outcomes"
    folder.mkdir()
    lines = []
    for at in range(count):
        tool = tools[int(rng.integers(len(tools)))]
        token = {"at": now - 60, "token": f"client-{at % _TOKENS}", "search_id": str(at)}
        lines.append({**token, "status": "searched", "words": words[at % len(words)]})
        about = {"tool_id": tool.tool_id, "contract_digest": tool.contract_digest}
        ended = {"status": "ok"} if rng.random() < 0.8 else {"status": "failed", "blame": "tool"}
        lines.append({**token, **about, **ended, "call_id": str(at)})
    day = time.strftime("%Y-%m-%d", time.gmtime(now))
    (folder / f"{day}.jsonl").write_text("".join(json.dumps(line) + "\n" for line in lines))
    worked = next(line for line in lines if line["status"] == "ok")
    return {name: worked[name] for name in ("token", "call_id", "tool_id")}


if __name__ == "__main__":
    main()
