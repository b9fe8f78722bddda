"""MiniLM, alone or with an adapter of it, run without torch."""

from functools import cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.graph import build_onnx_graph
from assets.vectors.encoders.hub import SENTENCE
from assets.vectors.encoders.sentence_model import digest_sentence_base, make_sentence_base_name
from assets.vectors.encoders.session import OnnxEncoder
from assets.vectors.encoders.weights import (
    BASE,
    BASE_DIGEST,
    BadAdapter,
    EncoderWeights,
    find_base_path,
    read_weights,
    require_own_base,
)
from warehouse.storage.files import find_file_flaw, read_recipe_file

DEFAULT = ("minilm", BASE)
MOST_TOKENS = 128  # where a text is cut


def name_base(base: str) -> str:
    """`minilm-l6-v2`, or `sentence-transformers:<folder or hub id>@<16 hex of its files>`, in jobs
    and cards. Raises BadEmbedder when it is not there or cannot be trained."""
    if base.startswith(SENTENCE):
        return make_sentence_base_name(base)
    if base.strip() not in ("", *DEFAULT):
        raise BadEmbedder(f"base {base:.120}: expected minilm or {SENTENCE}MODEL")
    return BASE


def digest_base(base: str) -> str:
    """SHA-256 over the files that make an encoder of it. Raises BadEmbedder."""
    if name_base(base) == BASE:
        return BASE_DIGEST
    return digest_sentence_base(base)


class MiniLM(OnnxEncoder):
    """all-MiniLM-L6-v2, optionally with a LoRA adapter merged; a text is cut after `max_tokens`.
    Raises BadAdapter, BadEmbedder."""

    def __init__(
        self,
        adapter: Path | None = None,
        *,
        max_tokens: int = MOST_TOKENS,
        threads: int | None = None,
    ) -> None:
        self._adapter = adapter
        # The base's own files are known to be whole: to name the encoder, they need not be read.
        name, weights = _read_model(adapter, max_tokens, adapted_alone=True)
        super().__init__(
            self.model,
            (find_base_path() / "tokenizer.json").read_bytes(),
            name=name,
            max_tokens=max_tokens,
            threads=threads,
            dim=weights.config["hidden_size"],
        )

    def model(self) -> bytes:
        """The ONNX file, made again. Raises BadEmbedder where the adapter is another by now."""
        name, model = _build_session(self._adapter, self.max_tokens)
        if name != self.id:
            raise BadEmbedder(
                f"{self._adapter}: changed since {self.id} was opened (now {name}); open it again"
            )
        return model


def _build_session(adapter: Path | None, max_tokens: int) -> tuple[str, bytes]:
    """(id, ONNX file)"""
    name, weights = _read_model(adapter, max_tokens)
    return name, build_onnx_graph(weights)


def _read_model(
    adapter: Path | None, max_tokens: int, *, adapted_alone: bool = False
) -> tuple[str, EncoderWeights]:
    """(id, weights); adapted_alone: see `read_weights`."""
    if adapter:
        require_own_base(adapter, lambda: BASE)
    weights = read_weights(adapter, adapted_alone=adapted_alone)
    most = weights.config["max_position_embeddings"]
    if not 3 <= max_tokens <= most:
        raise BadEmbedder(f"max_tokens {max_tokens}: {BASE} takes 3 to {most}")
    name = f"{BASE}/{max_tokens}"
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
