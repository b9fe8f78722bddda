"""Measuring a retriever: the rank of the right tool for instructions that were never trained on.

A rank is strict: the one right text counts, and a twin of it before it counts against the model.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from assets.columns import read_table_spec
from assets.synthesis.tables import ONE_CALL
from assets.vectors.encoders.choose import open_base
from assets.vectors.encoders.embedder import BadEmbedder, Embedder, Encode, Prompts
from assets.vectors.encoders.minilm import MiniLM, digest_base, open_general
from assets.vectors.encoders.weights import BASE, BadAdapter, read_adapter_prompts
from assets.vectors.index import digest_text, embed_either_kind
from assets.vectors.scale import get_plain
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from training.retriever.settings import NONE
from training.runtime.model_store import get_model_folder, read_model_card
from training.sets.split import TRAIN, UNSEEN_SERVER
from warehouse.json_types import Row
from warehouse.storage.lance import LanceStore

BASE_LABEL = "base"
RECALL_AT = (1, 5, 10)

RETRIEVER_EVALUATION = read_table_spec(__file__, "retriever_evaluation")

# What a rank is worth, by measure. One text is right, so the best DCG is 1.
MEASURES: dict[str, Callable[[int], float]] = {
    **{f"recall_at_{k}": lambda rank, k=k: float(rank <= k) for k in RECALL_AT},
    "ndcg_at_10": lambda rank: 1 / math.log2(1 + rank) if rank <= 10 else 0.0,
    "mrr": lambda rank: 1 / rank,
}


class NothingToEvaluate(ValueError):
    """No test rows, or none whose tool is in the pool."""


def load_retriever(
    home: Path, name: str, start: str = NONE, prompts: Prompts | None = None
) -> Embedder:
    """A retriever's encoder: `base` (`start`: MiniLM, or the shipped adapter), `base@<another>`,
    which reads texts after `prompts`, or `<home>/models/<name>`, which does after its training's.
    Raises BadAdapter for another base's adapter, BadEmbedder."""
    if name == BASE_LABEL:
        return MiniLM() if start == NONE else open_general()
    if name.startswith(f"{BASE_LABEL}@"):
        return open_base(name.removeprefix(f"{BASE_LABEL}@"), prompts=prompts)
    card, folder = read_model_card(home, name) or {}, get_model_folder(home, name)
    base = str(card.get("base") or BASE)
    try:
        digest_now, digest_then = digest_base(base), card.get("base_digest")
        if digest_then and digest_now != digest_then:
            raise BadAdapter(
                f"{folder}: this adapter belongs to another base model: it was trained on {base}"
                f" with files {digest_then[:16]}, here they are {digest_now[:16]}; put that base"
                " back or train again"
            )
        return open_base(base, adapter=folder, prompts=read_adapter_prompts(folder))
    except BadEmbedder as error:
        raise BadAdapter(f"{folder}: its base cannot be opened: {error}") from error


def open_in_service(home: Path, name: str, start: str, embedder: Embedder) -> Embedder:
    """The serving encoder; untrained, `start` or the embedder. Raises BadAdapter, BadEmbedder."""
    if name != BASE_LABEL:
        return load_retriever(home, name)
    return get_plain(embedder) if start == NONE else load_retriever(home, name, start)


def read_beginning(home: Path, name: str) -> str:
    """What a model's training started from, by its card."""
    card = read_model_card(home, name) or {}
    return str((card.get("settings") or {}).get("start") or NONE)


def make_encoder(
    home: Path, name: str, store: LanceStore, start: str = NONE, untrained: Embedder | None = None
) -> Encode:
    """`embed(texts, is_query)` of a retriever; texts go through the vector store, shared with
    the router's index. `untrained`: what `base` is where trainings start from nothing."""
    as_it_is = untrained if name == BASE_LABEL and start == NONE else None
    embedder = as_it_is or load_retriever(home, name, start)
    return partial(embed_either_kind, embedder=embedder, store=store)


def select_testable_rows(rows: Sequence[Row]) -> list[Row]:
    """Held-out rows with a call to one tool: what a retriever can be asked."""
    return [
        row
        for row in rows
        if row.get("split") != TRAIN and (row.get("task") or ONE_CALL[0]) in ONE_CALL
    ]


def evaluate_retriever(
    test_rows: Sequence[Row],
    pool_texts: Sequence[str],
    models: Mapping[str, Encode],
    training_set: str,
) -> list[dict[str, Any]]:
    """Rows of RETRIEVER_EVALUATION: each test pair with one right tool, ranked by every model among
    all tool texts. `models`: label -> `embed(texts, is_query)`. Raises NothingToEvaluate."""
    rows = select_testable_rows(test_rows)
    pool = sorted({*pool_texts, *(row["positive"] for row in rows)})
    if not rows or len(pool) < 2:
        raise NothingToEvaluate(
            f"retriever evaluation: {len(rows)} test pairs over {len(pool)} tools; expected"
            " accepted pairs of at least one test server. Deploy more servers"
        )
    place = {text: i for i, text in enumerate(pool)}
    gold = np.array([place[row["positive"]] for row in rows])
    out: list[dict[str, Any]] = []
    for label, embed in models.items():
        queries = embed([row["instruction"] for row in rows], True)
        # The place of each query's gold text among all; vectors that are no numbers rank it last
        scores = queries @ embed(pool, False).T
        right = scores[np.arange(len(gold)), gold]
        ranks = scores.shape[1] - (scores < right[:, None]).sum(axis=1)
        out += [
            _make_evaluation_row(label, row, int(rank), len(pool), training_set)
            for row, rank in zip(rows, ranks, strict=True)
        ]
    return out


def summarise_recall(
    rows: Sequence[Row], candidate: str, incumbent: str = BASE_LABEL
) -> dict[str, Any]:
    """Both models and the candidate's paired gain on unseen servers, and on each of "splits", drawn
    over tools: {candidate, incumbent, split, n, servers, tools, pool, chance}, per measure
    {candidate, incumbent}, gain_at_1/5/10, gain_ndcg_at_10, gain_mrr; figures {value, low, high,
    n}."""
    ours = {row["pair_id"]: row for row in rows if row["model"] == candidate}
    theirs = {row["pair_id"]: row for row in rows if row["model"] == incumbent}
    splits = sorted({row["split"] for row in ours.values()})
    if ours.keys() != theirs.keys() or UNSEEN_SERVER not in splits:
        raise NothingToEvaluate(
            f"{candidate[:12]} was ranked on {len(ours)} items and {incumbent[:12]} on"
            f" {len(theirs)}, of {', '.join(splits) or 'no split'}; a paired comparison needs the"
            f" same items, some of them of {UNSEEN_SERVER}"
        )
    split_pairs = {
        name: _compare_ranks(
            [item for item in sorted(ours) if ours[item]["split"] == name], ours, theirs
        )
        for name in splits
    }
    both = {"candidate": candidate, "incumbent": incumbent, "split": UNSEEN_SERVER}
    return {**both, **split_pairs[UNSEEN_SERVER], "splits": split_pairs}


def _compare_ranks(
    items: Sequence[str], ours: Mapping[str, Row], theirs: Mapping[str, Row]
) -> dict[str, Any]:
    groups = [ours[item]["text_digest"] for item in items]
    pool = ours[items[0]]["pool"]
    out: dict[str, Any] = {
        "n": len(items),
        "servers": len({ours[item]["server_id"] for item in items}),
        "tools": len(set(groups)),
        "pool": pool,
        "chance": round(1 / pool, 4),
    }
    for name, worth in MEASURES.items():
        a = [worth(ours[item]["rank"]) for item in items]
        b = [worth(theirs[item]["rank"]) for item in items]
        out[name] = {
            "candidate": bootstrap_mean(a, groups).as_dict(),
            "incumbent": bootstrap_mean(b, groups).as_dict(),
        }
        out[f"gain_{name.removeprefix('recall_')}"] = bootstrap_difference(a, b, groups).as_dict()
    return out


def _make_evaluation_row(
    label: str, row: Row, rank: int, pool: int, training_set: str
) -> dict[str, Any]:
    copied = ("pair_id", "server_id", "tool", "kind", "split")
    return {
        **{name: row[name] for name in copied},
        "model": label,
        "text_digest": row.get("text_digest") or digest_text(row["positive"]),
        "rank": rank,
        "pool": pool,
        "training_set": training_set,
    }
