"""Other bases than MiniLM: folders or pinned hub ids of sentence encoders that `graph.py` can make.

The graph is BERT's: learnt absolute positions, exact GELU; then what modules.json names: one
pooling, Dense layers, unit norm. A model that is anything else would be served as another model
than it is, without a word: so it is refused.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.hub import NotFetched, UnpinnedModel, fetch_model
from assets.vectors.encoders.layout.head import Head, read_head, require_order
from assets.vectors.encoders.layout.modules import (
    list_modules,
    read_model_json,
    read_model_prompts,
)
from assets.vectors.encoders.prompts import Prompts
from assets.vectors.encoders.weights import BASE, find_base_path
from warehouse.storage.digest import sha256

DEFAULT = ("minilm", BASE)
WEIGHTS, TOKENIZER, CONFIG = "model.safetensors", "tokenizer.json", "config.json"
_FILES = ("*.json", "*.txt", WEIGHTS, f"*/{WEIGHTS}")
_NEEDED = {
    "model_type": ("bert", None),
    "hidden_act": ("gelu", None),
    "position_embedding_type": ("absolute", "absolute"),
    "is_decoder": (False, False),
}
_SIZES = (
    *("hidden_size", "num_attention_heads", "num_hidden_layers", "intermediate_size"),
    *("vocab_size", "max_position_embeddings", "type_vocab_size"),
)
_HINT = "expected a BERT with mean pooling, such as all-MiniLM-L12-v2, or minilm for the default"


@dataclass(frozen=True)
class Base:
    """A checked base: the folder of its transformer, what stands behind it, its prompts."""

    folder: Path
    head: Head = field(default_factory=Head)
    prompts: Prompts = field(default_factory=Prompts)


def name_base(base: str) -> str:
    """What names a base in jobs and cards: BASE, or `<folder or hub id>@<16 hex of its files>`.

    Raises BadEmbedder when it is not there or cannot be served.
    """
    if base.strip() in ("", *DEFAULT):
        return BASE
    where, _, known = _split_reference(base)
    found = digest_base(where)[:16]
    if known and known != found:
        raise BadEmbedder(
            f"base {where}: its files are {found}, expected {known}: the model changed since it was"
            " named; name it again without the part after @, or put the old files back"
        )
    return f"{where}@{found}"


def find_base(base: str) -> Base:
    """A base, checked against what can be served. Raises BadEmbedder."""
    where = BASE if base.strip() in ("", *DEFAULT) else _split_reference(base)[0]
    if where == BASE:
        return Base(find_base_path())
    try:
        folder = fetch_model(where, _FILES)
    except (UnpinnedModel, NotFetched) as error:
        raise BadEmbedder(f"base {error}; {_HINT}") from error
    try:
        return _check_base(folder)
    except BadEmbedder as error:
        raise BadEmbedder(f"base {where}: {error}; {_HINT}") from error


def find_base_folder(base: str) -> Path:
    """The folder of a base's transformer. Raises BadEmbedder."""
    return find_base(base).folder


def require_plain_mean(base: str) -> None:
    """Raises BadEmbedder for a base that a training, which pools by the mean, would change."""
    head = find_base(base).head
    if head.digest:
        layers = f" and has {len(head.layers)} Dense layers" if head.layers else ""
        raise BadEmbedder(
            f"base {base}: pools by {head.pooling}{layers}, and is not trained; {_HINT}"
        )


def digest_base(base: str) -> str:
    """SHA-256 over the files that make an encoder of it."""
    found = find_base(base)
    folder = found.folder
    stamps = tuple((folder / name).stat().st_mtime_ns for name in (CONFIG, TOKENIZER, WEIGHTS))
    return _digest_folder(folder, found.head.digest, stamps)


@lru_cache(maxsize=8)
def _digest_folder(folder: Path, head: str, _: tuple[int, ...]) -> str:
    each = [sha256((folder / name).read_bytes()) for name in (CONFIG, TOKENIZER, WEIGHTS)]
    return sha256("".join([*each, head]).encode())


def _check_base(model: Path) -> Base:
    """The base in a model's folder. Raises BadEmbedder for one that the graph is not right for."""
    modules = list_modules(model)
    require_order(modules)
    folder = modules[0].folder
    lost = [name for name in (CONFIG, TOKENIZER, WEIGHTS) if not (folder / name).is_file()]
    if lost:
        raise BadEmbedder(f"{folder}: has no {', '.join(lost)}")
    config = _check_config(folder / CONFIG)
    head = read_head(modules, config["hidden_size"])
    _check_weights(folder / WEIGHTS, config)
    _check_case(folder)
    return Base(folder, head, read_model_prompts(model))


def _check_case(folder: Path) -> None:
    """Raises BadEmbedder for a model that is lower-cased before its tokenizer reads."""
    path = folder / "sentence_bert_config.json"
    said = read_model_json(path) if path.is_file() else {}
    if isinstance(said, dict) and said.get("do_lower_case"):
        told = read_model_json(folder / TOKENIZER)
        normalizer = told.get("normalizer") if isinstance(told, dict) else None
        if not isinstance(normalizer, dict) or normalizer.get("lowercase") is not True:
            raise BadEmbedder(f"{path}: do_lower_case, which its tokenizer does not do")


def _check_config(path: Path) -> dict[str, Any]:
    config = read_model_json(path)
    if not isinstance(config, dict):
        raise BadEmbedder(f"{path}: no object")
    for name, (needed, usual) in _NEEDED.items():
        if (found := config.get(name, usual)) != needed:
            raise BadEmbedder(f"{name} is {found!r:.60}, not {needed!r}")
    for name in _SIZES:
        if not isinstance(config.get(name), int) or not 0 < config[name] < 2**31:
            raise BadEmbedder(f"{path}: {name} is {str(config.get(name))[:60]!r}, no size")
    if config["hidden_size"] % config["num_attention_heads"]:
        raise BadEmbedder(f"{path}: hidden_size is no multiple of num_attention_heads")
    near_zero = config.get("layer_norm_eps")
    if not isinstance(near_zero, float) or not 0 < near_zero < 1:
        raise BadEmbedder(f"{path}: layer_norm_eps is {str(near_zero)[:60]!r}, no small number")
    return config


def _check_weights(file: Path, config: Mapping[str, Any]) -> None:
    """Raises BadEmbedder for the first matrix that is missing or has another shape."""
    from safetensors import safe_open

    try:
        with safe_open(str(file), "np") as held:
            shapes = {n.removeprefix("bert."): held.get_slice(n).get_shape() for n in held.keys()}  # noqa: SIM118
    except Exception as error:  # of safetensors, of no common kind
        raise BadEmbedder(f"{file}: not readable as safetensors ({str(error)[:120]})") from error
    for name, shape in _iterate_shapes(config):
        if shapes.get(name) != shape:
            raise BadEmbedder(f"{file}: {name} is {shapes.get(name, 'missing')}, expected {shape}")


def _iterate_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
    """Name and shape of each matrix of a BERT, as its configuration has it."""
    dim, inner = config["hidden_size"], config["intermediate_size"]
    norm = (("LayerNorm.weight", [dim]), ("LayerNorm.bias", [dim]))
    for kind, count in (("word", "vocab_size"), ("position", "max_position_embeddings"),
                        ("token_type", "type_vocab_size")):  # fmt: skip
        yield f"embeddings.{kind}_embeddings.weight", [config[count], dim]
    yield from ((f"embeddings.{end}", shape) for end, shape in norm)
    for layer in range(config["num_hidden_layers"]):
        at = f"encoder.layer.{layer}"
        for name, out, into in (
            *((f"attention.self.{which}", dim, dim) for which in ("query", "key", "value")),
            ("attention.output.dense", dim, dim),
            ("intermediate.dense", inner, dim),
            ("output.dense", dim, inner),
        ):
            yield f"{at}.{name}.weight", [out, into]
            yield f"{at}.{name}.bias", [out]
        for place in ("attention.output", "output"):
            yield from ((f"{at}.{place}.{end}", shape) for end, shape in norm)


def _split_reference(base: str) -> tuple[str, str, str]:
    head, at, tail = base.rpartition("@")
    known = len(tail) == 16 and all(char in "0123456789abcdef" for char in tail)
    return (head, at, tail) if known else (base, "", "")
