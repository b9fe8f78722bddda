"""Any sentence-transformers model as an embedder; needs torch and sentence-transformers.

How tokens are pooled, where a text is cut and which words stand before a question is for the
model's own files to say: nothing of it is guessed.
"""

import hashlib
from collections.abc import Callable, Sequence
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
from assets.vectors.encoders.hub import (
    NotFetched,
    UnpinnedModel,
    fetch_model,
    find_trusted_model,
)
from assets.vectors.encoders.layout.modules import (
    list_modules,
    read_model_prompts,
    require_safetensors,
)
from assets.vectors.encoders.prompts import Prompts, read_prompts
from warehouse.sanitize.escape import drop_surrogates

_CHUNK = 512  # texts between two reports of progress
_CUT = 50_000  # characters: no model reads more, and a tokenizer's time grows with them
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
_UNUSED = "pooler."  # of BERT's own: vectors come of the last layer's tokens
_HINT = "expected a folder, or a hub id at a commit (name@commit), of a sentence-transformers model"


class SentenceEncoder:
    """Unit vectors by the model in a folder or of a hub id at a commit (`name@commit`). Code that a
    model brings is not run, and its weights are read as safetensors alone.

    Its id holds a digest of the weights, so a folder that was trained further is another embedder.
    `prompts` stand in place of the model's own. Raises BadEmbedder.
    """

    def __init__(
        self, model: str, *, threads: int | None = None, prompts: Prompts | None = None
    ) -> None:
        folder, own = _find_model(model)
        try:
            import torch
            from sentence_transformers import SentenceTransformer
        except ImportError as error:
            raise BadEmbedder(
                f"sentence-transformers:{model}: needs the packages torch and"
                f" sentence-transformers ({error}); pip install 'toolmill[sentence]'"
            ) from error
        if threads:
            torch.set_num_threads(threads)
        try:
            with torch.random.fork_rng(devices=[]):
                torch.manual_seed(0)  # a pooler that no file holds is random, and in the id
                self._model = SentenceTransformer(
                    str(folder),
                    trust_remote_code=False,
                    local_files_only=True,
                    model_kwargs={"use_safetensors": True},
                )
        except Exception as error:  # of torch, transformers, safetensors and the hub, all unlike
            message = " ".join(str(error).split())[:200]
            raise BadEmbedder(
                f"sentence-transformers:{model}: cannot be opened ({type(error).__name__}:"
                f" {message}); {_HINT}"
            ) from error
        _require_weights(model, folder, self._model)
        self._prompts = prompts or Prompts()
        filled = self._prompts.fill(own).as_dict()
        self._model.prompts.update({name: text or "" for name, text in filled.items()})
        local = Path(model).expanduser().is_dir()
        self.source = str(folder.resolve()) if local else model
        self.dim = int(self._model.get_embedding_dimension() or 0)
        limit = self._model.max_seq_length or "all"
        name = folder.name if local else model.partition("@")[0]
        self.id = f"sentence-transformers:{name}/{limit}@{_digest_model(self._model)[:16]}"
        self._lock = Lock()  # its tokenizer changes its own settings with every call

    def saved(self) -> Saved:
        """Where the model lies; its weights are not copied."""
        facts: dict[str, Any] = {"kind": "sentence-transformers", "model": self.source}
        if self._prompts.given:
            facts["prompts"] = self._prompts.as_dict()
        return Saved(facts)

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Unit vectors [len(texts), dim] of tools' texts; one that is given twice is computed
        once."""
        return self._encode_texts(self._model.encode_document, texts, on_done)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors [len(texts), dim] of questions, after the words that the model wants."""
        return self._encode_texts(self._model.encode_query, texts, None)

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
                    [drop_surrogates(text)[:_CUT] for text in part],
                    convert_to_numpy=True,
                    show_progress_bar=False,
                )
            out[[places[text] for text in part]] = normalise_rows(made, self.id)
            if on_done:
                on_done(start + len(part), len(due))
        return out[[places[text] for text in texts]]


def reopen_sentence(card: dict[str, Any], threads: int | None) -> SentenceEncoder:
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
    return SentenceEncoder(own, threads=threads, prompts=read_prompts(card))


def _find_model(model: str) -> tuple[Path, Prompts]:
    """Where the model's files are, and its prompts. Raises BadEmbedder for one that does not say
    how it pools, or whose weights are pickles."""
    try:
        folder = fetch_model(model, _FILES)
        require_safetensors(folder, list_modules(folder))
        return folder, read_model_prompts(folder)
    except (UnpinnedModel, NotFetched) as error:
        raise BadEmbedder(f"sentence-transformers:{error}; {_HINT}") from error
    except BadEmbedder as error:
        raise BadEmbedder(f"sentence-transformers:{model}: {error}; {_HINT}") from error


def _require_weights(model: str, folder: Path, modules: Any) -> None:
    """Raises BadEmbedder where a transformer's file lacks weights that vectors need: the library
    leaves them random."""
    for listed, module in zip(list_modules(folder), modules, strict=False):
        inner = getattr(module, "auto_model", None)
        if inner is None or _hold_all_weights(listed.folder, inner):
            continue
        _, loading = type(inner).from_pretrained(
            str(listed.folder),
            config=inner.config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
        lost = sorted(name for name in loading["missing_keys"] if not name.startswith(_UNUSED))
        if lost:
            raise BadEmbedder(
                f"sentence-transformers:{model}: its weights have no {', '.join(lost[:3])}"
                f" ({len(lost)} missing), which would be random; {_HINT}"
            )


def _hold_all_weights(folder: Path, inner: Any) -> bool:
    """Whether the files hold each weight under its own name: then nothing is read twice."""
    from safetensors import safe_open

    held: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(str(file), "pt") as tensors:
            held |= set(tensors.keys())
    before = f"{inner.base_model_prefix}."
    return all(
        name in held or f"{before}{name}" in held or name.startswith(_UNUSED)
        for name in inner.state_dict()
    )


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
