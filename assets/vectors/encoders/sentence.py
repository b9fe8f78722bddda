"""Any sentence-transformers model as an embedder; needs torch and sentence-transformers."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from threading import Lock
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import (
    BadEmbedder,
    Progress,
    Saved,
    normalise_rows,
)
from warehouse.sanitize.escape import drop_surrogates

_CHUNK = 512  # texts between two reports of progress


class SentenceEncoder:
    """Unit vectors by the model at a path or of a hub id. Code that a model brings is not run.

    Its id holds a digest of the weights, so a folder that was trained further is another embedder.
    Raises BadEmbedder.
    """

    def __init__(self, model: str, *, threads: int | None = None) -> None:
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise BadEmbedder(
                f"sentence-transformers:{model}: needs the packages torch and"
                f" sentence-transformers ({error}); pip install sentence-transformers"
            ) from error
        if threads:
            torch.set_num_threads(threads)
        try:
            self._model = SentenceTransformer(model, trust_remote_code=False)
        except Exception as error:  # of torch, transformers, safetensors and the hub, all unlike
            said = " ".join(str(error).split())[:200]
            raise BadEmbedder(
                f"sentence-transformers:{model}: cannot be opened ({type(error).__name__}: {said});"
                " expected a folder or hub id of a sentence-transformers model"
            ) from error
        self.source = str(Path(model).resolve()) if Path(model).is_dir() else model
        self.dim = int(self._model.get_embedding_dimension() or 0)
        limit = self._model.max_seq_length or "all"
        name = Path(model).name if Path(model).is_dir() else model
        self.id = f"sentence-transformers:{name}/{limit}@{_digest_model(self._model)[:16]}"
        self._lock = Lock()  # its tokenizer changes its own settings with every call

    def saved(self) -> Saved:
        """Where the model lies; its weights are not copied."""
        return Saved({"kind": "sentence-transformers", "model": self.source})

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Unit vectors [len(texts), dim]; a text that is given twice is computed once."""
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        # Long ones first, alike beside each other: the model pads to the longest of its batch.
        due = sorted(places, key=len, reverse=True)
        out = np.empty((len(due), self.dim), np.float32)
        for start in range(0, len(due), _CHUNK):
            part = due[start : start + _CHUNK]
            with self._lock:
                made = self._model.encode(
                    [drop_surrogates(text) for text in part],
                    convert_to_numpy=True,
                    show_progress_bar=False,
                )
            out[[places[text] for text in part]] = normalise_rows(made, self.id)
            if on_done:
                on_done(start + len(part), len(due))
        return out[[places[text] for text in texts]]


def reopen_sentence(card: dict[str, Any], threads: int | None) -> SentenceEncoder:
    """The model that a saved encoder names, where the user's EMBEDDER_MODEL names it too: somebody
    else may have written the file, and a model's folder can hold code. Raises BadEmbedder."""
    model, own = card["model"], os.environ.get("EMBEDDER_MODEL", "").strip()
    if own != model and not (own and Path(own).is_dir() and str(Path(own).resolve()) == model):
        raise BadEmbedder(
            f"{card['id']!r:.120}: its encoder.json asks for the sentence-transformers model"
            f" {model!r:.120}, which you did not name; nothing of it was opened. If you trust that"
            " model, set EMBEDDER_MODEL to it"
        )
    return SentenceEncoder(own, threads=threads)


def _digest_model(model: Any) -> str:
    """SHA-256 over the names and bytes of all parameters, and over how tokens are pooled."""
    found = hashlib.sha256(repr([type(module).__name__ for module in model]).encode())
    found.update(repr((model.default_prompt_name, model.prompts)).encode())
    for module in model:
        found.update(repr(sorted(getattr(module, "get_config_dict", dict)().items())).encode())
    for name, tensor in sorted(model.state_dict().items()):
        found.update(name.encode())
        found.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return found.hexdigest()
