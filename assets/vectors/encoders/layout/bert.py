"""What makes a BERT that the graph is right for: its configuration, weights and tokenizer."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.layout.modules import read_model_json

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
_FLOATS = ("F32", "F16", "F64")  # as NumPy reads them


def check_config(path: Path) -> dict[str, Any]:
    """The configuration of a BERT that the graph is right for. Raises BadEmbedder."""
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


def check_weights(file: Path, config: Mapping[str, Any]) -> None:
    """Raises BadEmbedder for the first matrix that is missing, has another shape or no floats."""
    from safetensors import safe_open

    try:
        with safe_open(str(file), "np") as held:
            slices = {n.removeprefix("bert."): held.get_slice(n) for n in held.keys()}  # noqa: SIM118
            found = {name: (one.get_shape(), one.get_dtype()) for name, one in slices.items()}
    except Exception as error:  # of safetensors, of no common kind
        raise BadEmbedder(f"{file}: not readable as safetensors ({str(error)[:120]})") from error
    for name, shape in _iterate_shapes(config):
        known, kind = found.get(name, ("missing", "F32"))
        if known != shape:
            raise BadEmbedder(f"{file}: {name} is {known}, expected {shape}")
        if kind not in _FLOATS:
            raise BadEmbedder(f"{file}: {name} holds {kind}, expected {', '.join(_FLOATS)}")


def check_tokenizer(file: Path, size: int) -> None:
    """Raises BadEmbedder where the tokenizer knows tokens beyond the `size` that have vectors."""
    stat = file.stat()
    _check_tokens(file, size, (stat.st_ino, stat.st_size, stat.st_mtime_ns, stat.st_ctime_ns))


@lru_cache(maxsize=8)
def _check_tokens(file: Path, size: int, _: tuple[int, ...]) -> None:
    from tokenizers import Tokenizer

    try:
        tokenizer = Tokenizer.from_file(str(file))
        vocabulary = tokenizer.get_vocab(with_added_tokens=True)
        read = tokenizer.encode("a").ids  # with what it puts around every text
    except Exception as error:  # of the tokenizers' own kind, none of its own
        raise BadEmbedder(f"{file}: not readable as a tokenizer ({str(error)[:120]})") from error
    token, last = max(vocabulary.items(), key=lambda one: one[1], default=("", -1))
    if last >= size:
        raise BadEmbedder(f"{file}: token {token[:40]!r} is {last}, and vectors are {size}")
    if odd := [one for one in read if one >= size]:
        raise BadEmbedder(f"{file}: puts token {odd[0]} around a text, and vectors are {size}")


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
