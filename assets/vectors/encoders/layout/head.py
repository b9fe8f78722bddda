"""What stands behind a BERT: how its tokens become one vector, and the layers that turn it."""

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.layout.modules import Module, read_model_json
from warehouse.storage.digest import sha256

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
class Dense:
    """One layer: weight [out, in], bias [out] or None, the ONNX operator of its activation."""

    weight: np.ndarray
    bias: np.ndarray | None
    activation: str | None


@dataclass(frozen=True)
class Head:
    """How tokens are pooled and what turns the vector. Its norm is 1 at the end in any case.
    digest: "" for the plain mean, which needs none."""

    pooling: str = MEAN
    layers: tuple[Dense, ...] = ()
    digest: str = ""
    reads_prompt: bool = True  # whether the tokens of a prompt are pooled too


def require_order(modules: Sequence[Module]) -> None:
    """Raises BadEmbedder unless they are Transformer, Pooling, Dense (any number), Normalize (or
    none)."""
    kinds = [module.kind for module in modules]
    ends = kinds[2:-1] if kinds[-1] == "Normalize" else kinds[2:]
    if kinds[:2] != ["Transformer", "Pooling"] or any(kind != "Dense" for kind in ends):
        raise BadEmbedder(
            f"its modules are {', '.join(kinds)}, expected Transformer, Pooling, then Dense and"
            " Normalize where it has them"
        )


def read_head(modules: Sequence[Module], dim: int) -> Head:
    """The head of a model in order, for a transformer of `dim` numbers a token. Raises
    BadEmbedder."""
    path = modules[1].folder / "config.json"
    pooling = _read_object(path)
    named = _find_poolings(pooling)
    if len(named) != 1 or named[0] not in _POOLINGS:
        raise BadEmbedder(
            f"{path}: pools by {' and '.join(map(str, named)) or 'nothing'}, expected one of"
            f" {', '.join(_POOLINGS)}"
        )
    layers, stamps = [], [named[0]]
    for module in (one for one in modules if one.kind == "Dense"):
        layer, digest = _read_dense(module.folder, dim)
        dim = len(layer.weight)
        layers.append(layer)
        stamps.append(digest)
    plain = stamps == [MEAN]
    return Head(
        named[0],
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


def _read_dense(folder: Path, dim: int) -> tuple[Dense, str]:
    """A Dense layer and the digest of its files. Raises BadEmbedder."""
    config, file = _read_object(folder / "config.json"), folder / "model.safetensors"
    for name, usual in (("use_residual", False), ("module_input_name", _SENTENCE),
                        ("module_output_name", _SENTENCE)):  # fmt: skip
        if config.get(name) not in (None, usual):
            raise BadEmbedder(f"{folder / 'config.json'}: {name} is {str(config[name])[:60]!r}")
    activation = str(config.get("activation_function", "torch.nn.modules.activation.Tanh"))
    name = activation.rpartition(".")[2]
    if not activation.startswith("torch.nn.") or name not in _ACTIVATIONS:
        known = ", ".join(_ACTIVATIONS)
        raise BadEmbedder(
            f"{folder / 'config.json'}: activation {activation[:60]!r}, expected {known}"
        )
    if not file.is_file():
        raise BadEmbedder(f"{folder}: its Dense layer has no model.safetensors")
    tensors = read_tensors(file)
    weight, bias = tensors.pop("linear.weight", None), tensors.pop("linear.bias", None)
    wanted = [config.get("out_features"), dim]
    if weight is None or list(weight.shape) != wanted or tensors:
        raise BadEmbedder(
            f"{file}: holds {_describe(weight)} as linear.weight, expected {wanted} and no more"
            " than its bias"
        )
    for part, one in (("linear.weight", weight), ("linear.bias", bias)):
        if one is not None and one.dtype.kind != "f":
            raise BadEmbedder(f"{file}: {part} holds {one.dtype}, expected floats")
    if (bias is not None) != bool(config.get("bias", True)) or (
        bias is not None and bias.shape != weight.shape[:1]
    ):
        raise BadEmbedder(f"{file}: holds {_describe(bias)} as linear.bias, unlike its config.json")
    digest = sha256(f"{name} {sha256(file.read_bytes())}".encode())
    return Dense(weight, bias, _ACTIVATIONS[name]), digest


def read_tensors(file: Path, names: Container[str] | None = None) -> dict[str, np.ndarray]:
    """The tensors of a safetensors file, all or those named, in float32 where they are floats.
    Raises BadEmbedder."""
    from safetensors import safe_open
    from safetensors.numpy import load_file

    try:
        if names is None:
            found = load_file(str(file))
        else:
            with safe_open(str(file), "np") as held:
                found = {n: held.get_tensor(n) for n in held.keys() if n in names}  # noqa: SIM118
    except Exception as error:  # of safetensors and numpy, each of its own kind
        message = " ".join(str(error).split())[:120]
        raise BadEmbedder(f"{file}: not readable as safetensors ({message})") from error
    made = {name: one.astype(np.float32, copy=False) if one.dtype.kind == "f" else one
            for name, one in found.items()}  # fmt: skip
    odd = next((n for n, one in made.items() if not np.isfinite(one).all()), None)
    if odd is not None:
        raise BadEmbedder(f"{file}: {odd} holds what is no finite number")
    return made


def _describe(tensor: np.ndarray | None) -> str:
    return "nothing" if tensor is None else str(list(tensor.shape))


def _read_object(path: Path) -> dict[str, Any]:
    found = read_model_json(path)
    if not isinstance(found, dict):
        raise BadEmbedder(f"{path}: {type(found).__name__}, expected an object")
    return found
