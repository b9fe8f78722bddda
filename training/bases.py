"""Whether the base that the settings name is the one that a role's last candidate was trained on.

Asked every minute by a sensor, so nothing is fetched or loaded for it: a hub id names its commit,
a folder is known by the digest of its files, which is worked out again only when they change.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.vectors.encoders.hub import SENTENCE, split_reference
from assets.vectors.encoders.minilm import DEFAULT
from assets.vectors.encoders.weights import BASE as MINILM
from training.caller.tiny.base import TINY
from training.runtime.model_store import TrainingFailed

BASE = "base"  # its name in a recipe, beside the hyper-parameters


def get_causal_base_name(base: str) -> str:
    """The causal model that a setting names, as a card of its role has it."""
    from training.caller.train import resolve_base

    try:
        return resolve_base(base)
    except TrainingFailed:
        return base  # its training says what is wrong


def get_retriever_base_name(base: str) -> str:
    """The embedder that a setting names, as a retriever's card has it. A hub id, and a folder whose
    files cannot be read, come without the digest of their files."""
    from training.retriever.train import resolve_retriever_base

    if base.strip() in ("", *DEFAULT):
        return MINILM
    try:
        folder = Path(split_reference(base.removeprefix(SENTENCE))[0]).expanduser()
        return resolve_retriever_base(base) if folder.is_dir() else base
    except TrainingFailed:
        return base


def read_card_base(card: Mapping[str, Any]) -> str | None:
    """The base that a card names, as its setting names it; None where it names none."""
    base = card.get("base")
    if base == TINY:
        return f"{base}:{card.get('base_name')}"
    return base


def is_same_base(then: str, now: str) -> bool:
    """Whether two names are of one base: the same files where both know them, wherever they lie,
    else the same place."""
    (place, files), (other, known) = split_reference(then), split_reference(now)
    kind, other_kind = place.startswith(SENTENCE), other.startswith(SENTENCE)
    if files and known:
        return (kind, files) == (other_kind, known)
    return place == other
