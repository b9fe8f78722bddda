"""A LoRA adapter merged into the transformer of a sentence-transformers model."""

from collections import ChainMap
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.hub import SENTENCE
from assets.vectors.encoders.sentence.model import digest_sentence_base
from assets.vectors.encoders.weights import (
    ADAPTER_FILES,
    BadAdapter,
    is_other_base,
    merge_matrices,
    read_adapter_base,
)
from warehouse.storage.digest import sha256


def require_own_adapter(adapter: Path, model: str) -> None:
    """Raises BadAdapter where an adapter says that it was trained on another base than `model`."""
    named = read_adapter_base(adapter)
    if named is None:
        return
    base = f"{SENTENCE}{model}@{digest_sentence_base(model)[:16]}"
    if is_other_base(named, base):
        raise BadAdapter(
            f"{adapter}: this adapter belongs to another base model: it was trained on {named}, not"
            f" on {base}; take that base, or train it again"
        )


def merge_adapter(model: Any, adapter: Path | None) -> str | None:
    """Adds the adapter's matrices to those of the model's transformer, in place; returns the
    SHA-256 of its files, None without one. Raises BadAdapter."""
    if adapter is None:
        return None
    import torch

    inner = getattr(model[0], "auto_model", None)
    if inner is None:
        raise BadAdapter(f"{adapter}: its base has no transformer to adapt; name another base")
    held = {name: weight for name, weight in inner.state_dict().items() if weight.ndim == 2}
    views = {name: weight.detach().cpu().float().numpy() for name, weight in held.items()}
    adapted: dict[str, np.ndarray] = {}
    merge_matrices(ChainMap(adapted, views), adapter)
    with torch.no_grad():
        for name, matrix in adapted.items():
            held[name].copy_(torch.from_numpy(matrix))
    return sha256(b"".join((adapter / name).read_bytes() for name in ADAPTER_FILES))
