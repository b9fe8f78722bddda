"""The reranker as a role: its gates, its file, and which retriever it may serve with."""

from collections.abc import Mapping
from pathlib import Path

from extensions.recommender.reranking.file import BadReranker, read_reranker
from serving.index.model import RERANKER_FILE
from training.gates import Gate, Json, check_gain, check_no_worse
from training.role import ModelRole
from training.runtime.model_store import find_unreadable_weights, read_model_card

ROLE = "reranker"
UNTRAINED_ORDER = "retriever-order"


def _check_gates(summary: Json) -> list[Gate]:
    return [
        check_gain(summary.get("gain")),
        check_no_worse(summary.get("requests"), "requests"),
    ]


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
