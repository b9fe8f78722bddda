"""Sentence-transformers models as embedders, with an optional LoRA adapter; needs torch. No code of
a model is run, and its weights are read as safetensors only."""

import hashlib
import json
from collections import ChainMap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import (
    BadEmbedder,
    EncoderFiles,
    Progress,
    Prompts,
    normalise_rows,
    read_prompts,
    require_same_files,
)
from assets.vectors.encoders.hub import (
    SENTENCE,
    NotFetched,
    UnpinnedModel,
    fetch_model,
    is_named,
    resolve_model,
    split_reference,
)
from assets.vectors.encoders.session import TokenizerCoverage
from assets.vectors.encoders.weights import (
    ADAPTER_FILES,
    BadAdapter,
    merge_matrices,
    require_own_base,
)
from warehouse.sanitize.untrusted_text import drop_surrogates
from warehouse.storage.digest import digest, sha256

MODULES, PROMPTS = "modules.json", "config_sentence_transformers.json"
_OURS = "sentence_transformers."  # another type is code that the model brings
_PICKLES = (".bin", ".pt", ".pth", ".pkl", ".ckpt")
_MOST = 20  # modules; models have 2 to 5


@dataclass(frozen=True)
class ModelModule:
    """One module: its class, and the folder of its files."""

    kind: str
    folder: Path


def list_modules(model: Path) -> list[ModelModule]:
    """The modules of the model in a folder, at least one. Raises BadEmbedder."""
    path = model / MODULES
    if not path.is_file():
        raise BadEmbedder(
            f"{model}: has no {MODULES}, which says how tokens become one vector: guessing that"
            " would make another model of it"
        )
    entries = read_model_json(path)
    if not isinstance(entries, list) or not 0 < len(entries) <= _MOST:
        raise BadEmbedder(f"{path}: no list of 1 to {_MOST} modules")
    return [_read_module(model, path, entry) for entry in entries]


def _read_module(model: Path, path: Path, entry: Any) -> ModelModule:
    kind, where = (
        (entry.get("type"), entry.get("path")) if isinstance(entry, dict) else (None, None)
    )
    if not isinstance(kind, str) or not isinstance(where, str):
        raise BadEmbedder(f"{path}: a module without its type and path ({str(entry)[:80]!r})")
    if not kind.startswith(_OURS):
        raise BadEmbedder(f"{path}: {kind[:80]!r} is code of its own, which is not run")
    module_path = PurePosixPath(where)
    if module_path.is_absolute() or ".." in module_path.parts or "\0" in where:
        raise BadEmbedder(f"{path}: {where[:80]!r} is no folder inside the model's")
    return ModelModule(kind.rpartition(".")[2], model / where)


def require_safetensors(model: Path, modules: Sequence[ModelModule]) -> None:
    """Raises BadEmbedder where a module's weights lie as a pickle alone: opening one runs code."""
    for folder in dict.fromkeys([model, *(module.folder for module in modules)]):
        # A module of several, as a Router, has folders of its own; beside the model lie others'.
        files = folder.iterdir() if folder == model else folder.rglob("*")
        for file in sorted(files) if folder.is_dir() else ():
            if file.suffix in _PICKLES and not any(file.parent.glob("*.safetensors")):
                raise BadEmbedder(
                    f"{file}: a pickle, and no safetensors beside it: its weights are not read;"
                    " save the model as safetensors"
                )


def read_model_prompts(model: Path) -> Prompts:
    """The model's own prompts, None where it names none. Raises BadEmbedder."""
    path = model / PROMPTS
    if not path.is_file():
        return Prompts()
    config = read_model_json(path)
    prompts = (config.get("prompts") if isinstance(config, dict) else config) or {}
    if not isinstance(prompts, dict) or not all(
        isinstance(text, str | None) for text in prompts.values()
    ):
        raise BadEmbedder(f"{path}: prompts is {str(prompts)[:80]!r}, expected texts by name")
    usual = prompts.get(str(config.get("default_prompt_name")))

    def find(*names: str) -> str | None:
        return next((prompts[name] for name in names if prompts.get(name)), None) or (
            None if any(name in prompts for name in names) else usual
        )

    return Prompts(find("query") or None, find("document", "passage", "corpus") or None)


def read_model_json(path: Path) -> Any:
    """The JSON of a model's file. Raises BadEmbedder."""
    try:
        return json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError) as error:
        raise BadEmbedder(f"{path}: not readable as JSON ({str(error)[:120]})") from error


_CUT = 50_000  # characters: no model reads more, and a tokenizer's time grows with them
_FILES = ("*.json", "*.txt", "*.model", "*.safetensors")
_UNUSED = "pooler."  # of BERT's own: vectors come of the last layer's tokens
_HINT = "expected a folder, or a hub id at a commit (name@commit), of a sentence-transformers model"


@dataclass(frozen=True)
class OpenedModel:
    """A SentenceTransformer, the folder of its files, and the prompts that they name."""

    model: Any
    folder: Path
    prompts: Prompts


def open_sentence_model(
    model: str, *, threads: int | None = None, exact: bool = False
) -> OpenedModel:
    """The model in a folder or at a hub's commit. exact: in float32. Raises BadEmbedder."""
    folder, prompts = _find_model(model)
    try:
        import torch
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise BadEmbedder(
            f"{SENTENCE}{model}: needs the packages torch and"
            f" sentence-transformers ({error}); pip install 'toolmill[sentence]'"
        ) from error
    if threads:
        torch.set_num_threads(threads)
    try:
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(0)  # a pooler that no file holds is random, and in the id
            opened = SentenceTransformer(
                str(folder),
                trust_remote_code=False,
                local_files_only=True,
                model_kwargs={"use_safetensors": True} | ({"dtype": "float32"} if exact else {}),
            )
    except Exception as error:  # of torch, transformers, safetensors and the hub, all unlike
        message = " ".join(str(error).split())[:200]
        raise BadEmbedder(
            f"{SENTENCE}{model}: cannot be opened ({type(error).__name__}: {message}); {_HINT}"
        ) from error
    _require_weights(model, folder, opened)
    return OpenedModel(opened, folder, prompts)


def make_sentence_base_name(base: str) -> str:
    """`sentence-transformers:<folder or hub id>@<16 hex>`. Raises BadEmbedder without a
    transformer."""
    where, expected = split_reference(base.removeprefix(SENTENCE))
    folder, _ = _find_model(where)
    first = list_modules(folder)[0].kind
    if first != "Transformer":
        raise BadEmbedder(
            f"{SENTENCE}{where}: its first module is {first}, expected Transformer: an adapter is"
            " trained on a transformer's layers"
        )
    digest_found = digest_sentence_base(where)[:16]
    require_same_files(f"{SENTENCE}{where}", digest_found, expected)
    return f"{SENTENCE}{resolve_model(where)}@{digest_found}"


def digest_sentence_base(base: str) -> str:
    """SHA-256 over the files that make an encoder of a base. Raises BadEmbedder."""
    where, _ = split_reference(base.removeprefix(SENTENCE))
    folder, _ = _find_model(where)
    folders = dict.fromkeys([folder, *(module.folder for module in list_modules(folder))])
    files = {file for each in folders for pattern in _FILES for file in each.glob(pattern)}
    named_files = [
        (str(file.relative_to(folder)), file) for file in sorted(files) if file.is_file()
    ]
    stamps = tuple((file.stat().st_mtime_ns, file.stat().st_size) for _, file in named_files)
    return _digest_files(tuple(named_files), stamps)


def clean_text(text: str) -> str:
    """What a tokenizer is given of a text."""
    return drop_surrogates(text)[:_CUT]


def count_prompt_tokens(tokenizer: Any, prompt: str) -> int:
    """Tokens of a prompt by a tokenizer of transformers, without the special ones."""
    return len(tokenizer(prompt, add_special_tokens=False)["input_ids"])


def require_prompt_room(model: Any, prompts: Prompts) -> None:
    """Raises BadEmbedder for prompts that leave no tokens for the text."""
    if model.max_seq_length:
        prompts.require_room(
            lambda text: count_prompt_tokens(model.tokenizer, text), model.max_seq_length
        )


def digest_model(model: Any) -> str:
    """SHA-256 over the names and bytes of all parameters, and over how tokens are pooled."""
    hasher = hashlib.sha256(repr([type(module).__name__ for module in model]).encode())
    hasher.update(repr((model.default_prompt_name, model.prompts)).encode())
    for module in model:
        hasher.update(repr(sorted(getattr(module, "get_config_dict", dict)().items())).encode())
    for name, tensor in sorted(model.state_dict().items()):
        hasher.update(name.encode())
        hasher.update(tensor.detach().cpu().contiguous().float().numpy().tobytes())
    return hasher.hexdigest()


@lru_cache(maxsize=8)
def _digest_files(files: tuple[tuple[str, Path], ...], _: tuple[tuple[int, int], ...]) -> str:
    each = []
    for name, path in files:
        with path.open("rb") as file:
            each.append([name, hashlib.file_digest(file, "sha256").hexdigest()])
    return digest(each)


def _find_model(model: str) -> tuple[Path, Prompts]:
    """Where the model's files are, and its prompts. Raises BadEmbedder."""
    try:
        folder = fetch_model(model, _FILES)
        require_safetensors(folder, list_modules(folder))
        return folder, read_model_prompts(folder)
    except (UnpinnedModel, NotFetched) as error:
        raise BadEmbedder(f"{SENTENCE}{error}; {_HINT}") from error
    except BadEmbedder as error:
        raise BadEmbedder(f"{SENTENCE}{model}: {error}; {_HINT}") from error


def _require_weights(model: str, folder: Path, modules: Any) -> None:
    """Raises BadEmbedder where a file lacks weights: the library leaves them random."""
    for module_files, module in zip(list_modules(folder), modules, strict=False):
        inner = getattr(module, "auto_model", None)
        if inner is None or _hold_all_weights(module_files.folder, inner):
            continue
        _, loading = type(inner).from_pretrained(
            str(module_files.folder),
            config=inner.config,
            local_files_only=True,
            trust_remote_code=False,
            use_safetensors=True,
            output_loading_info=True,
        )
        lost = sorted(name for name in loading["missing_keys"] if not name.startswith(_UNUSED))
        if lost:
            raise BadEmbedder(
                f"{SENTENCE}{model}: its weights have no {', '.join(lost[:3])}"
                f" ({len(lost)} missing), which would be random; {_HINT}"
            )


def _hold_all_weights(folder: Path, inner: Any) -> bool:
    """Whether the files hold each weight under its own name: then nothing is read twice."""
    from safetensors import safe_open

    names: set[str] = set()
    for file in folder.glob("*.safetensors"):
        with safe_open(str(file), "pt") as tensors:
            names |= set(tensors.keys())
    before = f"{inner.base_model_prefix}."
    return all(
        name in names or f"{before}{name}" in names or name.startswith(_UNUSED)
        for name in inner.state_dict()
    )


def merge_adapter(model: Any, adapter: Path | None) -> str | None:
    """Merges an adapter in place; returns the SHA-256 of its files. Raises BadAdapter."""
    if adapter is None:
        return None
    import torch

    inner = getattr(model[0], "auto_model", None)
    if inner is None:
        raise BadAdapter(f"{adapter}: its base has no transformer to adapt; name another base")
    matrices = {name: weight for name, weight in inner.state_dict().items() if weight.ndim == 2}
    views = {name: weight.detach().cpu().float().numpy() for name, weight in matrices.items()}
    adapted: dict[str, np.ndarray] = {}
    merge_matrices(ChainMap(adapted, views), adapter)
    with torch.no_grad():
        for name, matrix in adapted.items():
            matrices[name].copy_(torch.from_numpy(matrix))
    return sha256(b"".join((adapter / name).read_bytes() for name in ADAPTER_FILES))


_CHUNK = 512  # texts between two reports of progress


class SentenceEncoder:
    """Unit vectors by the model in a folder or at a hub's commit (`name@commit`). adapter: LoRA,
    merged into float32 weights; prompts: in place of the model's own. Its id holds a digest of the
    weights. Raises BadEmbedder, BadAdapter."""

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
            require_own_base(
                adapter, lambda: f"{SENTENCE}{where}@{digest_sentence_base(where)[:16]}"
            )
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

    def saved(self) -> EncoderFiles:
        """Where the model lies, and its adapter. Raises BadAdapter where that changed."""
        facts: dict[str, Any] = {"kind": "sentence-transformers", "model": self.source}
        if self._prompts.given:
            facts["prompts"] = self._prompts.as_dict()
        if self._adapter is None:
            return EncoderFiles(facts)
        files = {name: (self._adapter / name).read_bytes() for name in ADAPTER_FILES}
        if sha256(b"".join(files.values())) != self._merged:
            raise BadAdapter(f"{self._adapter}: changed since {self.id} was opened; open it again")
        return EncoderFiles(facts, files)

    def embed(self, texts: Sequence[str], *, on_done: Progress | None = None) -> np.ndarray:
        """Unit vectors [len(texts), dim] of tools' texts, each computed once."""
        return self._encode_texts(self._model.encode_document, texts, on_done)

    def embed_queries(self, texts: Sequence[str]) -> np.ndarray:
        """Unit vectors [len(texts), dim] of questions, after the words that the model wants."""
        return self._encode_texts(self._model.encode_query, texts, None)

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray:
        """How much of each text its tokenizer knows, float32 [len(texts)], 0..1."""
        if self._reading is None:
            return np.ones(len(texts), np.float32)
        with self._lock:
            return self._reading.measure([clean_text(text) for text in texts])

    @cached_property
    def _reading(self) -> TokenizerCoverage | None:
        fast = getattr(getattr(self._model, "tokenizer", None), "backend_tokenizer", None)
        return None if fast is None else TokenizerCoverage(fast)

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
                vectors = encode(
                    [clean_text(text) for text in part],
                    convert_to_numpy=True,
                    show_progress_bar=False,
                )
            out[[places[text] for text in part]] = normalise_rows(vectors, self.id)
            if on_done:
                on_done(start + len(part), len(due))
        return out[[places[text] for text in texts]]


def reopen_sentence(
    card: dict[str, Any], threads: int | None, adapter: Path | None = None
) -> SentenceEncoder:
    """The model of a saved encoder, if the user's settings name it. Raises BadEmbedder."""
    model = card["model"]
    if not is_named(model):
        raise BadEmbedder(
            f"{card['id']!r:.120}: its encoder.json asks for the sentence-transformers model"
            f" {model!r:.120}, which you did not name; nothing of it was opened. If you trust that"
            f" model, set TOOLMILL_EMBEDDER__MODEL to {SENTENCE}MODEL"
        )
    return SentenceEncoder(model, threads=threads, prompts=read_prompts(card), adapter=adapter)
