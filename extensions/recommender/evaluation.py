"""Measuring a reranker: on calls and requests that it has not learnt from.

call      held-out calls: how often one that worked is scored above one that failed (AUC)
request   held-out requests of known tools: whether the right tool still comes first

Without a model both are told of the order that is served without one (`call_history.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from assets.columns import read_table_spec
from extensions.recommender.rerank_method import OutcomeExample, rank_worked
from extensions.recommender.reranker import BayesianReranker
from extensions.recommender.role import UNTRAINED_ORDER, score_examples
from extensions.recommender.tool_pool import ToolPool
from serving.ranking.strategies import RerankQuestion
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.evaluation.retriever import NothingToEvaluate
from warehouse.json_types import Row

CALL, REQUEST = "call", "request"
RERANKER_EVALUATION = read_table_spec(__file__, "reranker_evaluation")
Requests = Sequence[tuple[RerankQuestion, int]]  # and the place of the right tool
Score = Callable[[Sequence[str]], Mapping[str, np.ndarray]]  # words -> served score of every tool


def evaluate_reranker(
    models: Mapping[str, BayesianReranker | None],
    calls: Sequence[OutcomeExample],
    requests: Requests,
    pool: ToolPool,
    score: Score,
    training_set: str,
) -> list[dict[str, Any]]:
    """Rows of RERANKER_EVALUATION; a model of None leaves the order as it is served."""
    rows = []
    for name, ranker in models.items():
        shared = {"model": name, "training_set": training_set}
        scores = score_examples(ranker, calls) if ranker else _score_served(score, calls)
        for at, (call, value) in enumerate(zip(calls, map(float, scores), strict=True)):
            about = {"item_id": f"{CALL}:{at}", "kind": CALL, "score": value, "right": call.success}
            rows.append({**shared, **about, **_name_tool(pool, call.place)})
        for at, (question, place) in enumerate(requests):
            best = int(np.argmax(ranker.score(question).p)) if ranker else 0
            first = int(question.candidates[best])
            about = {"item_id": f"{REQUEST}:{at}", "kind": REQUEST, "right": first == place}
            rows.append({**shared, **about, "score": None, **_name_tool(pool, place)})
    return rows


def summarise_reranker(
    rows: Sequence[Row], candidate: str, incumbent: str = UNTRAINED_ORDER
) -> dict[str, Any]:
    """{candidate, incumbent, n, tools, servers, auc, recall_at_1: {candidate, incumbent}, gain (of
    AUC), requests}: figures {value, low, high, n}, over tools. Raises NothingToEvaluate."""
    pairs = [
        {row["item_id"]: row for row in rows if row["model"] == name}
        for name in (candidate, incumbent)
    ]
    of_kind = {
        kind: [name for name in sorted(pairs[0]) if pairs[0][name]["kind"] == kind]
        for kind in (CALL, REQUEST)
    }
    worked = [name for name in of_kind[CALL] if pairs[0][name]["right"]]
    if not worked or len(worked) == len(of_kind[CALL]):
        raise NothingToEvaluate(
            f"{len(worked)} of {len(of_kind[CALL])} held-out calls worked; expected some of either"
        )
    ranked = [_rank_worked(of, of_kind[CALL], worked) for of in pairs]
    first = [[float(of[name]["right"]) for name in of_kind[REQUEST]] for of in pairs]
    groups = [pairs[0][name]["tool_id"] for name in worked]
    asked = [pairs[0][name]["tool_id"] for name in of_kind[REQUEST]]
    calls = [pairs[0][name] for name in of_kind[CALL]]
    labels = ("candidate", "incumbent")
    return {
        "candidate": candidate,
        "incumbent": incumbent,
        "n": len(calls),
        "tools": len({row["tool_id"] for row in calls}),
        "servers": len({row["server_id"] for row in calls}),
        "auc": {
            label: bootstrap_mean(values, groups).as_dict()
            for label, values in zip(labels, ranked, strict=True)
        },
        "recall_at_1": {
            label: bootstrap_mean(values, asked).as_dict()
            for label, values in zip(labels, first, strict=True)
        },
        "gain": bootstrap_difference(ranked[0], ranked[1], groups).as_dict(),
        "requests": bootstrap_difference(first[0], first[1], asked).as_dict(),
    }


def _rank_worked(
    rows: Mapping[str, Row], calls: Sequence[str], worked: Sequence[str]
) -> list[float]:
    failed = np.array([rows[name]["score"] for name in calls if not rows[name]["right"]])
    return rank_worked(np.array([rows[name]["score"] for name in worked]), failed).tolist()


def _score_served(score: Score, calls: Sequence[OutcomeExample]) -> np.ndarray:
    scores = score([call.question.text for call in calls])
    return np.array([scores[call.question.text][call.place] for call in calls])


def _name_tool(pool: ToolPool, place: int) -> dict[str, str]:
    tool = pool.tools[place]
    return {"tool_id": tool.tool_id, "server_id": tool.server_id}
