"""MiniLM, the default encoder, the shipped adapter of it, and other BERT bases run without torch.

A base is a folder or a pinned hub id. The ONNX graph is BERT's: learnt absolute positions, exact
GELU, one pooling, Dense layers, unit norm. Any other model is refused.
"""

from dataclasses import dataclass, field
from functools import cache, lru_cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder, Prompts, require_same_files
from assets.vectors.encoders.graph import build_onnx_graph, quantise_graph
from assets.vectors.encoders.hub import (
    SENTENCE,
    NotFetched,
    UnpinnedModel,
    fetch_model,
    split_reference,
)
from assets.vectors.encoders.model_layout import (
    PoolingHead,
    check_config,
    check_tokenizer,
    check_weights,
    list_modules,
    read_head,
    read_model_json,
    read_model_prompts,
    require_order,
)
from assets.vectors.encoders.sentence_model import digest_sentence_base, make_sentence_base_name
from assets.vectors.encoders.session import FP32, INT8, PRECISIONS, OnnxEncoder
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
_FILES = ("*.json", "*.txt", BASE_WEIGHTS, f"*/{BASE_WEIGHTS}")
_HINT = "expected a BERT with mean pooling, such as all-MiniLM-L12-v2, or minilm for the default"
_OTHERS = f"{_HINT}; any other model is {SENTENCE}MODEL"


@dataclass(frozen=True)
class EncoderBase:
    """A checked base: the folder of its transformer, what stands behind it, its prompts."""

    folder: Path
    head: PoolingHead = field(default_factory=PoolingHead)
    prompts: Prompts = field(default_factory=Prompts)


def name_base(base: str) -> str:
    """What names a base in jobs and cards: BASE, or `<folder or hub id>@<16 hex of its files>`,
    after `sentence-transformers:` where it is run by that library.

    Raises BadEmbedder when it is not there or cannot be served.
    """
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
    """The prompts of a base that is run here: those given, and where one is not that of its own
    files. Raises BadEmbedder where its pooling leaves them out."""
    base_found = find_base(base)
    prompts = explicit.fill(base_found.prompts)
    if prompts.given and not base_found.head.reads_prompt:
        raise BadEmbedder(
            f"base {base}: its prompts are left out of the pooling (include_prompt), which"
            f" `{SENTENCE}` does"
        )
    return prompts


def require_plain_mean(base: str) -> None:
    """Raises BadEmbedder for a base that its training, which pools by the mean, would change."""
    if base.startswith(SENTENCE):  # trained as its own modules pool
        return
    head = find_base(base).head
    if head.digest:
        layers = f" and has {len(head.layers)} Dense layers" if head.layers else ""
        raise BadEmbedder(
            f"base {base}: pools by {head.pooling}{layers}, and is not trained; {_HINT}, or"
            f" {SENTENCE}MODEL, which is trained as its own modules pool"
        )


def digest_base(base: str) -> str:
    """SHA-256 over the files that make an encoder of it. Raises BadEmbedder."""
    if base.startswith(SENTENCE):
        return digest_sentence_base(base)
    base_found = find_base(base)
    folder = base_found.folder
    stamps = tuple(
        (folder / name).stat().st_mtime_ns for name in (BASE_CONFIG, BASE_TOKENIZER, BASE_WEIGHTS)
    )
    return _digest_folder(folder, base_found.head.digest, stamps)


@lru_cache(maxsize=8)
def _digest_folder(folder: Path, head: str, _: tuple[int, ...]) -> str:
    each = [
        sha256((folder / name).read_bytes()) for name in (BASE_CONFIG, BASE_TOKENIZER, BASE_WEIGHTS)
    ]
    return sha256("".join([*each, head]).encode())


def _check_base(model: Path) -> EncoderBase:
    """The base in a model's folder. Raises BadEmbedder for one that the graph is not right for."""
    modules = list_modules(model)
    require_order(modules)
    folder = modules[0].folder
    lost = [
        name
        for name in (BASE_CONFIG, BASE_TOKENIZER, BASE_WEIGHTS)
        if not (folder / name).is_file()
    ]
    if lost:
        raise BadEmbedder(f"{folder}: has no {', '.join(lost)}")
    config = check_config(folder / BASE_CONFIG)
    head = read_head(modules, config["hidden_size"])
    check_weights(folder / BASE_WEIGHTS, config)
    check_tokenizer(folder / BASE_TOKENIZER, config["vocab_size"])
    _check_case(folder)
    return EncoderBase(folder, head, read_model_prompts(model))


def _check_case(folder: Path) -> None:
    """Raises BadEmbedder for a model that is lower-cased before its tokenizer reads."""
    path = folder / "sentence_bert_config.json"
    config = read_model_json(path) if path.is_file() else {}
    if isinstance(config, dict) and config.get("do_lower_case"):
        tokenizer = read_model_json(folder / BASE_TOKENIZER)
        normalizer = tokenizer.get("normalizer") if isinstance(tokenizer, dict) else None
        if not isinstance(normalizer, dict) or normalizer.get("lowercase") is not True:
            raise BadEmbedder(f"{path}: do_lower_case, which its tokenizer does not do")


MOST_TOKENS = 128  # where a text is cut


class MiniLM(OnnxEncoder):
    """all-MiniLM-L6-v2 with mean pooling, optionally with a LoRA adapter merged into its weights.

    A text longer than `max_tokens` word pieces is cut there. `precision` "int8" takes half the time
    and a quarter of the space, and loses: it keeps 8.7 of the ten tools nearest to a request, and
    Recall@1 differed by -0.003 [-0.013, 0.007] on 1,219 requests. So it is another encoder, with
    an id of its own, and not the default. `base`: another BERT (`minilm.py`).
    Raises BadAdapter, BadEmbedder.
    """

    def __init__(
        self,
        adapter: Path | None = None,
        *,
        max_tokens: int = MOST_TOKENS,
        threads: int | None = None,
        precision: str = FP32,
        base: str = BASE,
    ) -> None:
        if precision not in PRECISIONS:
            raise BadEmbedder(f"precision {precision!r}: expected one of {', '.join(PRECISIONS)}")
        self._adapter, self._base = adapter, name_base(base)
        # MiniLM's own files are known to be whole: to name the encoder, they need not be read.
        identity = (adapter, max_tokens, precision, self._base)
        name, weights, head = _read_model(*identity, adapted_alone=self._base == BASE)
        super().__init__(
            self.model,
            (find_base_folder(self._base) / "tokenizer.json").read_bytes(),
            name=name,
            max_tokens=max_tokens,
            precision=precision,
            threads=threads,
            dim=len(head.layers[-1].weight) if head.layers else weights.config["hidden_size"],
        )

    def model(self) -> bytes:
        """The ONNX file, made again. Raises BadEmbedder where the adapter is another by now."""
        name, model = _build_session(self._adapter, self.max_tokens, self.precision, self._base)
        if name != self.id:
            raise BadEmbedder(
                f"{self._adapter}: changed since {self.id} was opened (now {name}); open it again"
            )
        return model


def _build_session(
    adapter: Path | None, max_tokens: int, precision: str, base: str
) -> tuple[str, bytes]:
    """(id, ONNX file)"""
    name, weights, head = _read_model(adapter, max_tokens, precision, base)
    model = build_onnx_graph(weights, head)
    return name, quantise_graph(model) if precision == INT8 else model


def _read_model(
    adapter: Path | None,
    max_tokens: int,
    precision: str,
    base: str,
    *,
    adapted_alone: bool = False,
) -> tuple[str, EncoderWeights, PoolingHead]:
    """(id, weights, what pools their tokens); adapted_alone: see `read_weights`."""
    if adapter:
        require_own_base(adapter, lambda: base)
    base_found = find_base(base)
    weights = read_weights(adapter, base_found.folder, adapted_alone=adapted_alone)
    most = weights.config["max_position_embeddings"]
    if not 3 <= max_tokens <= most:
        raise BadEmbedder(f"max_tokens {max_tokens}: {base} takes 3 to {most}")
    name = f"{base.rpartition('/')[2]}/{max_tokens}"  # a folder's place is not its identity
    if weights.adapter:
        name += f"+{weights.adapter[:16]}"
    return f"{name}/{INT8}" if precision == INT8 else name, weights, base_found.head


GENERAL = "general"
GENERAL_FOLDER = Path(__file__).parent / "general" / "weights"
GENERAL_RECIPE, GENERAL_WEIGHTS, GENERAL_CONFIG = (
    "recipe.json",
    "adapter_model.safetensors",
    "adapter_config.json",
)
_FIX = "install the package again, or run `make retriever`"


def open_general(*, threads: int | None = None, precision: str = FP32) -> MiniLM:
    """The encoder with the shipped adapter. Raises BadAdapter, BadEmbedder."""
    return MiniLM(find_general_folder(), threads=threads, precision=precision)


def make_general_name() -> str:
    """What names the shipped adapter: `general@<16 hex of its weights>`. Raises BadAdapter."""
    return f"{GENERAL}@{read_recipe()['files'][GENERAL_WEIGHTS][:16]}"


@cache
def find_general_folder(folder: Path = GENERAL_FOLDER) -> Path:
    """The folder of the adapter. Raises BadAdapter naming the file that is missing or is not as it
    was built."""
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
