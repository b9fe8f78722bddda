"""MiniLM, the shipped adapter of it, and other BERT bases with mean pooling, run without torch."""

from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder, Prompts, require_same_files
from assets.vectors.encoders.graph import build_onnx_graph
from assets.vectors.encoders.hub import (
    SENTENCE,
    NotFetched,
    UnpinnedModel,
    fetch_model,
    split_reference,
)
from assets.vectors.encoders.model_layout import (
    check_config,
    check_tokenizer,
    check_weights,
    list_modules,
    read_model_json,
    read_model_prompts,
    require_mean_pooling,
)
from assets.vectors.encoders.sentence_model import digest_sentence_base, make_sentence_base_name
from assets.vectors.encoders.session import OnnxEncoder
from assets.vectors.encoders.weights import (
    BASE,
    BadAdapter,
    EncoderWeights,
    find_base_path,
    read_weights,
    require_own_base,
)
from warehouse.storage.digest import sha256
from warehouse.storage.files import find_file_flaw, read_recipe_file

DEFAULT = ("minilm", BASE)
BASE_WEIGHTS, BASE_TOKENIZER, BASE_CONFIG = "model.safetensors", "tokenizer.json", "config.json"
_BASE_FILES = (BASE_CONFIG, BASE_TOKENIZER, BASE_WEIGHTS)
_FILES = ("*.json", "*.txt", BASE_WEIGHTS, f"*/{BASE_WEIGHTS}")
_HINT = "expected a BERT with mean pooling, such as all-MiniLM-L12-v2, or minilm for the default"
_OTHERS = f"{_HINT}; any other model is {SENTENCE}MODEL"


@dataclass(frozen=True)
class EncoderBase:
    """A checked base: the folder of its transformer, and its prompts."""

    folder: Path
    prompts: Prompts = field(default_factory=Prompts)


def name_base(base: str) -> str:
    """`minilm-l6-v2`, or `<folder or hub id>@<16 hex of its files>`, in jobs and cards. Raises
    BadEmbedder when it is not there or cannot be served."""
    if base.startswith(SENTENCE):
        return make_sentence_base_name(base)
    if base.strip() in ("", *DEFAULT):
        return BASE
    where, expected = split_reference(base)
    digest_found = digest_base(where)[:16]
    require_same_files(f"base {where}", digest_found, expected)
    return f"{where}@{digest_found}"


def find_base(base: str) -> EncoderBase:
    """A base, checked against what can be served. Raises BadEmbedder."""
    where = BASE if base.strip() in ("", *DEFAULT) else split_reference(base)[0]
    if where == BASE:
        return EncoderBase(find_base_path())
    try:
        folder = fetch_model(where, _FILES)
    except (UnpinnedModel, NotFetched) as error:
        raise BadEmbedder(f"base {error}; {_HINT}") from error
    try:
        return _check_base(folder)
    except BadEmbedder as error:
        raise BadEmbedder(f"base {where}: {error}; {_OTHERS}") from error


def find_base_folder(base: str) -> Path:
    """The folder of a base's transformer. Raises BadEmbedder."""
    return find_base(base).folder


def resolve_prompts(base: str, explicit: Prompts) -> Prompts:
    """A base's prompts: those given, else those of its files. Raises BadEmbedder."""
    return explicit.fill(find_base(base).prompts)


def digest_base(base: str) -> str:
    """SHA-256 over the files that make an encoder of it. Raises BadEmbedder."""
    if base.startswith(SENTENCE):
        return digest_sentence_base(base)
    folder = find_base(base).folder
    return _digest_folder(folder, tuple((folder / name).stat().st_mtime_ns for name in _BASE_FILES))


@lru_cache(maxsize=8)
def _digest_folder(folder: Path, _: tuple[int, ...]) -> str:
    each = [sha256((folder / name).read_bytes()) for name in _BASE_FILES]
    return sha256("".join(each).encode())


def _check_base(model: Path) -> EncoderBase:
    """The base in a model's folder. Raises BadEmbedder for one that the graph is not right for."""
    modules = list_modules(model)
    require_mean_pooling(modules)
    folder = modules[0].folder
    lost = [name for name in _BASE_FILES if not (folder / name).is_file()]
    if lost:
        raise BadEmbedder(f"{folder}: has no {', '.join(lost)}")
    config = check_config(folder / BASE_CONFIG)
    check_weights(folder / BASE_WEIGHTS, config)
    check_tokenizer(folder / BASE_TOKENIZER, config["vocab_size"])
    path = folder / "sentence_bert_config.json"
    settings = read_model_json(path) if path.is_file() else {}
    if isinstance(settings, dict) and settings.get("do_lower_case"):
        tokenizer = read_model_json(folder / BASE_TOKENIZER)
        normalizer = tokenizer.get("normalizer") if isinstance(tokenizer, dict) else None
        if not isinstance(normalizer, dict) or normalizer.get("lowercase") is not True:
            raise BadEmbedder(f"{path}: do_lower_case, which its tokenizer does not do")
    return EncoderBase(folder, read_model_prompts(model))


MOST_TOKENS = 128  # where a text is cut


class MiniLM(OnnxEncoder):
    """all-MiniLM-L6-v2 or another BERT `base`, optionally with a LoRA adapter merged; a text is cut
    after `max_tokens`. Raises BadAdapter, BadEmbedder."""

    def __init__(
        self,
        adapter: Path | None = None,
        *,
        max_tokens: int = MOST_TOKENS,
        threads: int | None = None,
        base: str = BASE,
    ) -> None:
        self._adapter, self._base = adapter, name_base(base)
        # MiniLM's own files are known to be whole: to name the encoder, they need not be read.
        adapted_alone = self._base == BASE
        name, weights = _read_model(adapter, max_tokens, self._base, adapted_alone=adapted_alone)
        super().__init__(
            self.model,
            (find_base_folder(self._base) / BASE_TOKENIZER).read_bytes(),
            name=name,
            max_tokens=max_tokens,
            threads=threads,
            dim=weights.config["hidden_size"],
        )

    def model(self) -> bytes:
        """The ONNX file, made again. Raises BadEmbedder where the adapter is another by now."""
        name, model = _build_session(self._adapter, self.max_tokens, self._base)
        if name != self.id:
            raise BadEmbedder(
                f"{self._adapter}: changed since {self.id} was opened (now {name}); open it again"
            )
        return model


def _build_session(adapter: Path | None, max_tokens: int, base: str) -> tuple[str, bytes]:
    """(id, ONNX file)"""
    name, weights = _read_model(adapter, max_tokens, base)
    return name, build_onnx_graph(weights)


def _read_model(
    adapter: Path | None, max_tokens: int, base: str, *, adapted_alone: bool = False
) -> tuple[str, EncoderWeights]:
    """(id, weights); adapted_alone: see `read_weights`."""
    if adapter:
        require_own_base(adapter, lambda: base)
    weights = read_weights(adapter, find_base_folder(base), adapted_alone=adapted_alone)
    most = weights.config["max_position_embeddings"]
    if not 3 <= max_tokens <= most:
        raise BadEmbedder(f"max_tokens {max_tokens}: {base} takes 3 to {most}")
    name = f"{base.rpartition('/')[2]}/{max_tokens}"  # a folder's place is not its identity
    return f"{name}+{weights.adapter[:16]}" if weights.adapter else name, weights


GENERAL = "general"
GENERAL_FOLDER = Path(__file__).parent / "general" / "weights"
GENERAL_RECIPE, GENERAL_WEIGHTS, GENERAL_CONFIG = (
    "recipe.json",
    "adapter_model.safetensors",
    "adapter_config.json",
)
_FIX = "install the package again, or run `make retriever`"


def open_general(*, threads: int | None = None) -> MiniLM:
    """The encoder with the shipped adapter. Raises BadAdapter, BadEmbedder."""
    return MiniLM(find_general_folder(), threads=threads)


def make_general_name() -> str:
    """What names the shipped adapter: `general@<16 hex of its weights>`. Raises BadAdapter."""
    return f"{GENERAL}@{read_recipe()['files'][GENERAL_WEIGHTS][:16]}"


@cache
def find_general_folder(folder: Path = GENERAL_FOLDER) -> Path:
    """The folder of the adapter, its files checked. Raises BadAdapter."""
    flaw = find_file_flaw(folder, read_recipe(folder)["files"])
    if flaw:
        raise BadAdapter(f"general retriever: {flaw}; {_FIX}")
    return folder


def read_recipe(folder: Path = GENERAL_FOLDER) -> dict[str, Any]:
    """`recipe.json`: {recipe, sets, data, files: {name: SHA-256}, libraries, training, measured}.
    Raises BadAdapter."""
    try:
        return read_recipe_file(folder / GENERAL_RECIPE, GENERAL_WEIGHTS)
    except ValueError as error:
        raise BadAdapter(f"general retriever: {error}; {_FIX}") from error
