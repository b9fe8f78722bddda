"""Measuring a retriever: the rank of the right tool for instructions of servers never trained on.

What belongs here: ranking by base and candidates over one pool, per-item rows, their summary. What
does not: statistics (`metrics.py`), deciding who is champion (`champion.py`), the caller
(`evaluate_caller.py`).
"""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assets.vectors.embed import MiniLM
from assets.vectors.index import embed_texts, text_digest
from training.metrics import Figure, bootstrap, paired
from training.models import model_folder
from warehouse.lance import LanceStore
from warehouse.tables import TableSpec

Row = Mapping[str, Any]
Encode = Callable[[Sequence[str], bool], np.ndarray]
BASE_LABEL = "base"

RETRIEVER_EVALUATION = TableSpec(
    name="retriever_evaluation",
    key=("model", "pair_id"),
    columns={
        "model": pl.String,  # "base" or the digest that names an adapter
        "pair_id": pl.String,
        "server_id": pl.String,
        "tool": pl.String,
        "kind": pl.String,
        "text_digest": pl.String,
        "rank": pl.Int64,  # 1 is best; a tie counts against the model
        "pool": pl.Int64,  # distinct tool texts ranked
        "training_set": pl.String,
    },
)


class NothingToEvaluate(ValueError):
    """No test rows, or none whose tool is in the pool."""


def retriever_of(home: Path, name: str) -> MiniLM:
    """The encoder of a retriever: the base model, or the adapter `<home>/models/<name>`."""
    return MiniLM() if name == BASE_LABEL else MiniLM(model_folder(home, name))


def encoder(home: Path, name: str, store: LanceStore) -> Encode:
    """`embed(texts, is_query)` of a retriever: tool texts come through the vector store, so that
    what an evaluation embeds the router's index need not embed again."""
    embedder = retriever_of(home, name)

    def embed(texts: Sequence[str], is_query: bool) -> np.ndarray:
        return embedder.embed(texts) if is_query else embed_texts(texts, embedder, store)

    return embed


def evaluate_retriever(
    test_rows: Sequence[Row],
    pool_texts: Sequence[str],
    models: Mapping[str, Encode],
    training_set: str,
) -> list[dict[str, Any]]:
    """Rows of RETRIEVER_EVALUATION: every test pair ranked by every model.

    `models` maps a label to `embed(texts, is_query)` (see `encoder`). The pool is all tool texts,
    train servers' included: a router does not know which servers were trained on.
    Raises NothingToEvaluate.
    """
    pool = sorted({*pool_texts, *(row["positive"] for row in test_rows)})
    if not test_rows or len(pool) < 2:
        raise NothingToEvaluate(
            f"retriever evaluation: {len(test_rows)} test pairs over {len(pool)} tools; expected"
            " accepted pairs of at least one test server. Deploy more servers"
        )
    place = {text: i for i, text in enumerate(pool)}
    gold = np.array([place[row["positive"]] for row in test_rows])
    out: list[dict[str, Any]] = []
    for label, embed in models.items():
        queries = embed([row["instruction"] for row in test_rows], True)
        scores = queries @ embed(pool, False).T
        right = scores[np.arange(len(gold)), gold]
        ranks = (scores >= right[:, None]).sum(axis=1)
        out += [
            _item(label, row, int(rank), len(pool), training_set)
            for row, rank in zip(test_rows, ranks, strict=True)
        ]
    return out


def recall_summary(rows: Sequence[Row], candidate: str, incumbent: str = BASE_LABEL) -> dict:
    """Recall@1 and @5 of both models with intervals, and the paired gain of the candidate.

    Items are resampled by tool. Keys: n, servers, tools, pool, recall_at_1/5 {candidate,
    incumbent}, gain_at_1/5; each figure {value, low, high, n}.
    """
    ours = {row["pair_id"]: row for row in rows if row["model"] == candidate}
    theirs = {row["pair_id"]: row for row in rows if row["model"] == incumbent}
    if ours.keys() != theirs.keys() or not ours:
        raise NothingToEvaluate(
            f"{candidate[:12]} was ranked on {len(ours)} items and {incumbent[:12]} on"
            f" {len(theirs)}; a paired comparison needs the same items"
        )
    items = sorted(ours)
    groups = [ours[item]["text_digest"] for item in items]
    out: dict[str, Any] = {
        "candidate": candidate,
        "incumbent": incumbent,
        "n": len(items),
        "servers": len({ours[item]["server_id"] for item in items}),
        "tools": len(set(groups)),
        "pool": ours[items[0]]["pool"],
    }
    for k in (1, 5):
        a = [float(ours[item]["rank"] <= k) for item in items]
        b = [float(theirs[item]["rank"] <= k) for item in items]
        figures: dict[str, Figure] = {
            "candidate": bootstrap(a, groups),
            "incumbent": bootstrap(b, groups),
        }
        out[f"recall_at_{k}"] = {name: figure.as_dict() for name, figure in figures.items()}
        out[f"gain_at_{k}"] = paired(a, b, groups).as_dict()
    return out


def _item(label: str, row: Row, rank: int, pool: int, training_set: str) -> dict[str, Any]:
    copied = ("pair_id", "server_id", "tool", "kind")
    return {
        **{name: row[name] for name in copied},
        "model": label,
        "text_digest": row.get("text_digest") or text_digest(row["positive"]),
        "rank": rank,
        "pool": pool,
        "training_set": training_set,
    }
