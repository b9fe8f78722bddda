"""The reranker as a role: its gates, its file, and which retriever it may serve with."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.reranker import BayesianReranker, RerankerWeights
from extensions.recommender.reranker_file import BadReranker, read_reranker, write_reranker
from extensions.recommender.reranker_fit import FitSettings, fit_reranker
from extensions.recommender.tool_pool import ToolPool
from serving.index.model import RERANKER_FILE
from training.gates import Json, PromotionGate, check_gain, check_no_worse
from training.role import ModelRole
from training.runtime.model_store import (
    find_unreadable_weights,
    get_model_folder,
    make_model_name,
    read_model_card,
    save_model,
)

ROLE = "reranker"
UNTRAINED_ORDER = "retriever-order"


def _check_gates(summary: Json) -> list[PromotionGate]:
    return [check_gain(summary.get("gain")), check_no_worse(summary.get("requests"), "requests")]


def _find_weights_flaw(folder: Path) -> str | None:
    if not (folder / RERANKER_FILE).exists():
        return find_unreadable_weights(folder)
    try:
        read_reranker(folder / RERANKER_FILE)
    except (OSError, BadReranker) as error:
        return " ".join(str(error).split())
    return None


def _find_misfit(home: Path, models: Mapping[str, str]) -> str | None:
    """A reranker serves only with the retriever whose vectors it reads."""
    reranker, retriever = models[ROLE], models["retriever"]
    if reranker == UNTRAINED_ORDER:
        return None
    trained_for = (read_model_card(home, reranker) or {}).get("base")
    if trained_for == retriever:
        return None
    return (
        f"reranker: {reranker[:12]} reads vectors of retriever {str(trained_for)[:12]}, not of"
        f" {retriever[:12]}; the retriever's order serves until it is fitted again:"
        " materialize reranker_adapter"
    )


RERANKER = ModelRole(
    ROLE,
    UNTRAINED_ORDER,
    _check_gates,
    name_base=str,
    learns_from_calls=True,
    find_weights_flaw=_find_weights_flaw,
    find_misfit=_find_misfit,
)


# Below these an interval of the gain is wider than any gain that was ever measured.
MIN_CALLS, MIN_EITHER, MIN_TOOLS = 200, 20, 8


def find_lack(success: Sequence[bool], tools: int) -> str | None:
    """What calls lack to learn from; None where they are enough."""
    worked = sum(success)
    failed = len(success) - worked
    if len(success) >= MIN_CALLS and min(worked, failed) >= MIN_EITHER and tools >= MIN_TOOLS:
        return None
    return (
        f"too few outcomes: {len(success)} calls with words ({worked} worked, {failed} failed) of"
        f" {tools} tools; expected {MIN_CALLS} ({MIN_EITHER} of each) of {MIN_TOOLS}. The order of"
        ' the retriever stays; calls of tokens with `remember = "text"` are learnt from'
    )


def train_reranker(
    home: Path,
    history: str,
    make_rows: Callable[[], list[OutcomeExample]],
    pool: ToolPool,
    retriever: tuple[str, str],
) -> dict[str, Any]:
    """The card of the model of this history, fitted unless it is there: only then are its rows
    made. retriever: the name of the model whose vectors it reads, and their id."""
    recipe = asdict(FitSettings())
    base, embedder = retriever
    name = make_model_name(ROLE, base, history, {**recipe, "embedder": embedder})
    if (model_card := read_model_card(home, name)) is not None:
        return model_card
    began, rows = time.perf_counter(), make_rows()
    before = fit_reranker([], pool, FitSettings(), embedder)
    weights = fit_reranker(rows, pool, FitSettings(), embedder)
    losses = [measure_loss(item, pool, rows) for item in (before, weights)]
    card = {
        "name": name,
        "role": ROLE,
        "base": base,
        "embedder": embedder,
        "training_set": history,
        "settings": recipe,
        "pairs": len(rows),
        "steps": 1,
        "losses": losses,
        "loss_first": losses[0],
        "loss_last": losses[1],
        "device": "cpu",
        "seconds": round(time.perf_counter() - began, 3),
        **dict.fromkeys(("tokens_per_s", "step_ms", "peak_mb")),
    }
    save_model(home, name, card, lambda folder: write_reranker(weights, folder / RERANKER_FILE))
    return read_model_card(home, name) or {}


def measure_loss(
    weights: RerankerWeights, pool: ToolPool, examples: Sequence[OutcomeExample]
) -> float:
    """Mean log loss, in nats an outcome."""
    p = score_examples(BayesianReranker(weights, pool), examples)
    worked = np.array([example.success for example in examples])
    likelihood = np.clip(np.where(worked, p, 1 - p), 1e-6, 1)
    share = np.array([example.weight for example in examples])
    return round(float((-np.log(likelihood) * share).sum() / share.sum()), 4)


def score_examples(ranker: BayesianReranker, examples: Sequence[OutcomeExample]) -> np.ndarray:
    return np.array(
        [ranker.score(example.question, np.array([example.place])).p[0] for example in examples]
    )


def load_reranker(home: Path, card: Mapping[str, Any], pool: ToolPool) -> BayesianReranker:
    return BayesianReranker(
        read_reranker(get_model_folder(home, card["name"]) / RERANKER_FILE), pool
    )
