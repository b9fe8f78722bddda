"""Calls whose rule is known, in words, and the reranker that they teach."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl

from extensions.recommender.call_history import (
    ServedOrder,
    add_passed_over,
    digest_history,
    make_examples,
    open_order,
)
from extensions.recommender.role import train_reranker
from serving.index.model import IndexSource
from tests.outcomes.reliability.observing import Observation, make_frame
from tests.vectors.conftest import WordEmbedder, snapshot

JOBS = ("weather", "train", "mail", "file", "map")
# Two tools say the same of each job, and one of them fails.
ROWS = [
    snapshot(f"npm:{kind}", f"{kind}_{job}", f"Tell the {job} of a city {kind}")
    for job in JOBS
    for kind in ("good", "bad")
]
DIGESTS = {f"{row['server_id']}::{row['tool']}": row["contract_digest"] for row in ROWS}


def draw_calls(count: int, seed: int = 0) -> pl.DataFrame:
    """Rows of OBSERVED: the good tools work nine times in ten, the bad ones once."""
    dice = np.random.default_rng(seed)
    made = []
    for at in range(count):
        kind, job = ("good", "bad")[int(dice.integers(2))], JOBS[int(dice.integers(len(JOBS)))]
        tool_id = f"npm:{kind}::{kind}_{job}"
        success = bool(dice.random() < (0.9 if kind == "good" else 0.1))
        words = f"tell me the {job} of city {at}"
        observation = Observation(float(at), tool_id, DIGESTS[tool_id], success)
        made.append(replace(observation, query=words, query_key=f"q1:{at}", source="token:ann"))
    return make_frame(made)


def order_rows(home: Path, embedder: WordEmbedder) -> ServedOrder:
    """The order in which the tools of ROWS are served."""
    return ServedOrder(open_order(home / "order", IndexSource(ROWS), embedder.embed, embedder))


def train(home: Path, calls: pl.DataFrame, embedder: WordEmbedder) -> dict:
    """The card of a reranker of these calls."""
    served = order_rows(home, embedder)
    return train_reranker(
        home,
        digest_history(calls, served.version),
        lambda: add_passed_over(make_examples(calls, served.pool, served.ask), served.pool),
        served.pool,
        ("base", embedder.id),
    )
