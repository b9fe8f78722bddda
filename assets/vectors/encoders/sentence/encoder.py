"""Any sentence-transformers model as an embedder; needs torch and sentence-transformers.

How tokens are pooled, where a text is cut and which words stand before a question is for the
model's own files to say: nothing of it is guessed.
"""

from collections.abc import Callable, Sequence
from functools import cached_property
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
from assets.vectors.encoders.hub import SENTENCE, find_trusted_model, split_reference
from assets.vectors.encoders.prompts import Prompts, read_prompts
from assets.vectors.encoders.sentence.adapter import merge_adapter, require_own_adapter
from assets.vectors.encoders.sentence.model import (
    clean_text,
    digest_model,
    open_sentence_model,
    require_prompt_room,
)
from assets.vectors.encoders.tokens import Reading
from assets.vectors.encoders.weights import ADAPTER_FILES, BadAdapter
from warehouse.storage.digest import sha256

_CHUNK = 512  # texts between two reports of progress


class SentenceEncoder:
    """Unit vectors by the model in a folder or of a hub id at a commit (`name@commit`). Code that a
    model brings is not run, and its weights are read as safetensors alone.

    `adapter`: a LoRA adapter of its transformer, merged into the weights, which are then float32.
    Its id holds a digest of the weights, so a folder that was trained further is another embedder.
    `prompts` stand in place of the model's own. Raises BadEmbedder, BadAdapter.
    """

    def __init__(
        self,
        model: str,
        *,
        threads: int | None = None,
        prompts: Prompts | None = None,
        adapter: Path | None = None,
    ) -> None:
        where, _ = split_reference(model.removeprefix(SENTENCE))
        if adapter:
            require_own_adapter(adapter, where)
        opened = open_sentence_model(where, threads=threads, exact=adapter is not None)
        self._model, folder = opened.model, opened.folder
        self._adapter, self._merged = adapter, merge_adapter(self._model, adapter)
        self._prompts = prompts or Prompts()
        filled = self._prompts.fill(opened.prompts)
        require_prompt_room(self._model, filled)
        self._model.prompts.update({name: text or "" for name, text in filled.as_dict().items()})
        local = Path(where).expanduser().is_dir()
        self.source = str(folder.resolve()) if local else where
        self.dim = int(self._model.get_embedding_dimension() or 0)
        limit = self._model.max_seq_length or "all"
        name = folder.name if local else where.partition("@")[0]
        self.id = f"{SENTENCE}{name}/{limit}@{digest_model(self._model)[:16]}"
        self._lock = Lock()  # its tokenizer changes its own settings with every call

    def saved(self) -> Saved:
        """Where the model lies, whose weights are not copied, and its adapter, which is. Raises
        BadAdapter where that is another by now."""
        facts: dict[str, Any] = {"kind": "sentence-transformers", "model": self.source}
        if self._prompts.given:
            facts["prompts"] = self._prompts.as_dict()
        if self._adapter is None:
            return Saved(facts)
        files = {name: (self._adapter / name).read_bytes() for name in ADAPTER_FILES}
        if sha256(b"".join(files.values())) != self._merged:
            raise BadAdapter(f"{self._adapter}: changed since {self.id} was opened; open it again")
        return Saved(facts, files)

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Unit vectors [len(texts), dim] of tools' texts; one that is given twice is computed
        once."""
        return self._encode_texts(self._model.encode_document, texts, on_done)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors [len(texts), dim] of questions, after the words that the model wants."""
        return self._encode_texts(self._model.encode_query, texts, None)

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray:
        """How much of each text its tokenizer knows, float32 [len(texts)], 0..1; 1 where it has no
        tokenizer of the `tokenizers` library."""
        if self._reading is None:
            return np.ones(len(texts), np.float32)
        with self._lock:
            return self._reading.measure([clean_text(text) for text in texts])

    @cached_property
    def _reading(self) -> Reading | None:
        fast = getattr(getattr(self._model, "tokenizer", None), "backend_tokenizer", None)
        return None if fast is None else Reading(fast)

    def _encode_texts(
        self, encode: Callable[..., Any], texts: Sequence[str], on_done: Progress | None
    ) -> np.ndarray:
        places = {text: place for place, text in enumerate(dict.fromkeys(texts))}
        # Long ones first, alike beside each other: the model pads to the longest of its batch.
        due = sorted(places, key=len, reverse=True)
        out = np.empty((len(due), self.dim), np.float32)
        for start in range(0, len(due), _CHUNK):
            part = due[start : start + _CHUNK]
            with self._lock:
                made = encode(
                    [clean_text(text) for text in part],
                    convert_to_numpy=True,
                    show_progress_bar=False,
                )
            out[[places[text] for text in part]] = normalise_rows(made, self.id)
            if on_done:
                on_done(start + len(part), len(due))
        return out[[places[text] for text in texts]]


def reopen_sentence(
    card: dict[str, Any], threads: int | None, adapter: Path | None = None
) -> SentenceEncoder:
    """The model that a saved encoder names, where the user's own settings name it too: somebody
    else may have written the file, and a model's folder can hold code. Raises BadEmbedder."""
    model = card["model"]
    own = find_trusted_model(model)
    if own is None:
        raise BadEmbedder(
            f"{card['id']!r:.120}: its encoder.json asks for the sentence-transformers model"
            f" {model!r:.120}, which you did not name; nothing of it was opened. If you trust that"
            " model, set EMBEDDER_MODEL to it"
        )
    return SentenceEncoder(own, threads=threads, prompts=read_prompts(card), adapter=adapter)
