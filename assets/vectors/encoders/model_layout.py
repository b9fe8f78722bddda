"""Files of a sentence-transformers model, which are third-party, checked."""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import BadEmbedder, Prompts

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


_FLAGS = {
    "pooling_mode_cls_token": "cls",
    "pooling_mode_mean_tokens": "mean",
    "pooling_mode_lasttoken": "lasttoken",
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}


def require_mean_pooling(modules: Sequence[ModelModule]) -> None:
    """Raises BadEmbedder unless the modules are Transformer, mean Pooling, Normalize or nothing."""
    kinds = [module.kind for module in modules]
    if kinds not in (["Transformer", "Pooling"], ["Transformer", "Pooling", "Normalize"]):
        raise BadEmbedder(
            f"its modules are {', '.join(kinds)}, expected Transformer, Pooling and Normalize"
        )
    path = modules[1].folder / "config.json"
    config = _read_object(path)
    modes = config.get("pooling_mode")
    if modes is None and any(flag in config for flag in _FLAGS):
        modes = [mode for flag, mode in _FLAGS.items() if config.get(flag)]
    if modes not in (None, "mean", ["mean"]):  # as the library has it, none is the mean
        names = modes if isinstance(modes, list) else [modes]
        text = " and ".join(map(str, names)) or "nothing"
        raise BadEmbedder(f"{path}: pools by {text}, expected the mean")
    if config.get("include_prompt", True) is False:
        raise BadEmbedder(f"{path}: include_prompt is false, expected prompts to be pooled too")


def read_tensors(file: Path, names: Container[str] | None = None) -> dict[str, np.ndarray]:
    """A safetensors file's tensors, all or those named, floats as float32. Raises BadEmbedder."""
    from safetensors import safe_open
    from safetensors.numpy import load_file

    try:
        if names is None:
            tensors_found = load_file(str(file))
        else:
            with safe_open(str(file), "np") as file_tensors:
                chosen = [name for name in file_tensors.keys() if name in names]  # noqa: SIM118
                tensors_found = {name: file_tensors.get_tensor(name) for name in chosen}
    except Exception as error:  # of safetensors and numpy, each of its own kind
        message = " ".join(str(error).split())[:120]
        raise BadEmbedder(f"{file}: not readable as safetensors ({message})") from error
    tensors = {name: tensor.astype(np.float32, copy=False) if tensor.dtype.kind == "f" else tensor
            for name, tensor in tensors_found.items()}  # fmt: skip
    odd = next((n for n, tensor in tensors.items() if not np.isfinite(tensor).all()), None)
    if odd is not None:
        raise BadEmbedder(f"{file}: {odd} holds what is no finite number")
    return tensors


def _read_object(path: Path) -> dict[str, Any]:
    config = read_model_json(path)
    if not isinstance(config, dict):
        raise BadEmbedder(f"{path}: {type(config).__name__}, expected an object")
    return config


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
    config = _read_object(path)
    for name, (needed, usual) in _NEEDED.items():
        if (value := config.get(name, usual)) != needed:
            raise BadEmbedder(f"{name} is {value!r:.60}, not {needed!r}")
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
        with safe_open(str(file), "np") as file_tensors:
            names = list(file_tensors.keys())
            slices = {name.removeprefix("bert."): file_tensors.get_slice(name) for name in names}
            tensors_found = {
                name: (tensor.get_shape(), tensor.get_dtype()) for name, tensor in slices.items()
            }
    except Exception as error:  # of safetensors, of no common kind
        raise BadEmbedder(f"{file}: not readable as safetensors ({str(error)[:120]})") from error
    for name, shape in _iterate_shapes(config):
        shape_found, kind = tensors_found.get(name, ("missing", "F32"))
        if shape_found != shape:
            raise BadEmbedder(f"{file}: {name} is {shape_found}, expected {shape}")
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
    token, last = max(vocabulary.items(), key=lambda token_id: token_id[1], default=("", -1))
    if last >= size:
        raise BadEmbedder(f"{file}: token {token[:40]!r} is {last}, and vectors are {size}")
    if odd := [token_id for token_id in read if token_id >= size]:
        raise BadEmbedder(f"{file}: puts token {odd[0]} around a text, and vectors are {size}")


def _iterate_shapes(config: Mapping[str, Any]) -> Iterator[tuple[str, list[int]]]:
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
