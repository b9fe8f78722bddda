"""Whether the base that the settings name is the one that a role's last candidate was trained on.

Asked every minute by a sensor, so nothing is fetched or loaded for it: a hub id names its commit,
a folder is known by the digest of its files, which is worked out again only when they change.
"""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from assets.vectors.encoders.bases import DEFAULT
from assets.vectors.encoders.hub import SENTENCE, split_reference
from assets.vectors.encoders.weights import BASE as MINILM
from training.caller.tiny.base import TINY
from training.runtime.model_store import TrainingFailed

_CAUSAL = ("caller", "sidecar")  # whose base is a causal model
BASE = "base"  # its name in a recipe, beside the hyper-parameters


def name_base(role: str, base: str) -> str:
    """The base that a setting names, as a card of the role has it; of a folder whose files cannot
    be read, and of a hub id of a retriever, without the digest of its files."""
    from training.caller.train import resolve_base
    from training.retriever.train import resolve_retriever_base

    try:
        if role in _CAUSAL:
            return resolve_base(base)
        if base.strip() in ("", *DEFAULT):
            return MINILM
        folder = Path(split_reference(base.removeprefix(SENTENCE))[0]).expanduser()
        return resolve_retriever_base(base) if folder.is_dir() else base
    except TrainingFailed:
        return base  # its training says what is wrong


def read_card_base(card: Mapping[str, Any]) -> str | None:
    """The base that a card names, in the words of `name_base`; None where it names none."""
    base = card.get("base")
    if card.get("role") in _CAUSAL and base == TINY:
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
