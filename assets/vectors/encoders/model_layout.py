"""Files of a sentence-transformers model: its modules, pooling, Dense layers and prompts, checked.

The files are third-party: what they hold is read, or one BadEmbedder names the file.
"""

import json
from collections.abc import Container, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from pathlib import Path, PurePosixPath
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import BadEmbedder, Prompts
from warehouse.storage.digest import sha256

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
    """What the model wants before a question and before a tool's text; None where it names nothing.
    Raises BadEmbedder."""
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


MEAN, FIRST, LAST = "mean", "cls", "lasttoken"
_POOLINGS = (MEAN, FIRST, LAST)
_FLAGS = {
    "pooling_mode_cls_token": FIRST,
    "pooling_mode_mean_tokens": MEAN,
    "pooling_mode_lasttoken": LAST,
    "pooling_mode_max_tokens": "max",
    "pooling_mode_mean_sqrt_len_tokens": "mean_sqrt_len_tokens",
    "pooling_mode_weightedmean_tokens": "weightedmean",
}
_ACTIVATIONS = {"Tanh": "Tanh", "Identity": None, "ReLU": "Relu", "Sigmoid": "Sigmoid"}
_SENTENCE = "sentence_embedding"


@dataclass(frozen=True)
class DenseLayer:
    """One layer: weight [out, in], bias [out] or None, the ONNX operator of its activation."""

    weight: np.ndarray
    bias: np.ndarray | None
    activation: str | None


@dataclass(frozen=True)
class PoolingHead:
    """How tokens are pooled and what turns the vector. Its norm is 1 at the end in any case.
    digest: "" for the plain mean, which needs none."""

    pooling: str = MEAN
    layers: tuple[DenseLayer, ...] = ()
    digest: str = ""
    reads_prompt: bool = True  # whether the tokens of a prompt are pooled too


def require_order(modules: Sequence[ModelModule]) -> None:
    """Raises BadEmbedder unless they are Transformer, Pooling, Dense (any number), Normalize (or
    none)."""
    kinds = [module.kind for module in modules]
    ends = kinds[2:-1] if kinds[-1] == "Normalize" else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind in ends):
        raise BadEmbedder(
            f"its modules are {', '.join(kinds)}, expected Transformer, Pooling, then Dense and"
            " Normalize where it has them"
        )


def read_head(modules: Sequence[ModelModule], dim: int) -> PoolingHead:
    """The head of a model in order, for a transformer of `dim` numbers a token. Raises
    BadEmbedder."""
    path = modules[1].folder / "config.json"
    pooling = _read_object(path)
    poolings = _find_poolings(pooling)
    if len(poolings) != 1 or poolings[0] not in _POOLINGS:
        raise BadEmbedder(
            f"{path}: pools by {' and '.join(map(str, poolings)) or 'nothing'}, expected one of"
            f" {', '.join(_POOLINGS)}"
        )
    layers, stamps = [], [poolings[0]]
    for module in (module_entry for module_entry in modules if module_entry.kind == "Dense"):
        layer, digest = _read_dense(module.folder, dim)
        dim = len(layer.weight)
        layers.append(layer)
        stamps.append(digest)
    plain = stamps == [MEAN]
    return PoolingHead(
        poolings[0],
        tuple(layers),
        "" if plain else sha256(" ".join(stamps).encode()),
        pooling.get("include_prompt", True) is not False,
    )


def _find_poolings(config: Mapping[str, Any]) -> list[Any]:
    modes = config.get("pooling_mode")
    if modes is not None:
        return modes if isinstance(modes, list) else [modes]
    if not any(flag in config for flag in _FLAGS):
        return [MEAN]  # as the library has it
    return [mode for flag, mode in _FLAGS.items() if config.get(flag)]


def _read_dense(folder: Path, dim: int) -> tuple[DenseLayer, str]:
    """A Dense layer and the digest of its files. Raises BadEmbedder."""
    config, file = _read_object(folder / "config.json"), folder / "model.safetensors"
    for name, usual in (("use_residual", False), ("module_input_name", _SENTENCE),
                        ("module_output_name", _SENTENCE)):  # fmt: skip
        if config.get(name) not in (None, usual):
            raise BadEmbedder(f"{folder / 'config.json'}: {name} is {str(config[name])[:60]!r}")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.") or name not in _ACTIVATIONS:
        activations = ", ".join(_ACTIVATIONS)
        raise BadEmbedder(
            f"{folder / 'config.json'}: activation {activation[:60]!r}, expected {activations}"
        )
    if not file.is_file():
        raise BadEmbedder(f"{folder}: its Dense layer has no model.safetensors")
    tensors = read_tensors(file)
    weight, bias = tensors.pop("linear.weight", None), tensors.pop("linear.bias", None)
    shape = [config.get("out_features"), dim]
    if weight is None or list(weight.shape) != shape or tensors:
        raise BadEmbedder(
            f"{file}: holds {_describe(weight)} as linear.weight, expected {shape} and no more"
            " than its bias"
        )
    for part, tensor in (("linear.weight", weight), ("linear.bias", bias)):
        if tensor is not None and tensor.dtype.kind != "f":
            raise BadEmbedder(f"{file}: {part} holds {tensor.dtype}, expected floats")
    if (bias is not None) != bool(config.get("bias", True)) or (
        bias is not None and bias.shape != weight.shape[:1]
    ):
        raise BadEmbedder(f"{file}: holds {_describe(bias)} as linear.bias, unlike its config.json")
    digest = sha256(f"{name} {sha256(file.read_bytes())}".encode())
    return DenseLayer(weight, bias, _ACTIVATIONS[name]), digest


def read_tensors(file: Path, names: Container[str] | None = None) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, all or those named, in float32 where they are floats.
    Raises BadEmbedder."""
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


def _describe(tensor: np.ndarray | None) -> str:
    return "nothing" if tensor is None else str(list(tensor.shape))


def _read_object(path: Path) -> dict[str, Any]:
    config_found = read_model_json(path)
    if not isinstance(config_found, dict):
        raise BadEmbedder(f"{path}: {type(config_found).__name__}, expected an object")
    return config_found


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
