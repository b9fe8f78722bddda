"""The tensors of a GGUF file: which there are, under which names, and their values one by one."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from extensions.publishing.weights.gguf_vocabulary import NoGguf

_ATTENTION, _OUTPUT = ".self_attn.", "o_proj"


@dataclass(frozen=True)
class Planned:
    """One tensor: its file and name there, its name in GGUF, its shape and precision. folded: the
    layer of a value bias that takes up the bias of its attention's output, else ""."""

    path: Path
    key: str
    to: str
    shape: tuple[int, ...]
    precision: Any
    folded: str = ""

    @property
    def storage(self) -> tuple[Any, int, Any]:
        """(kind, bytes, precision), as `add_tensor_info` takes them."""
        size = 4 if self.precision.name == "F32" else 2
        return np.dtype(f"f{size}"), prod(self.shape) * size, self.precision


def plan_tensors(folder: Path, architecture: str, layers: int) -> list[Planned]:
    """Every tensor of a model's safetensors. Raises NoGguf for one that has no name in GGUF: an
    engine would run the model without it."""
    import gguf

    kinds = {name: kind for kind, name in gguf.MODEL_ARCH_NAMES.items()}
    names = gguf.get_tensor_name_map(kinds[architecture], layers)
    found = {
        key: (path, kind, shape)
        for path in _list_parts(folder)
        for key, kind, shape in _list_tensors(path)
    }
    planned = []
    for key, (path, kind, shape) in found.items():
        to = names.get_name(key, try_suffixes=(".weight", ".bias"))
        if to is None:
            raise NoGguf(f"{key[:80]!r}: GGUF has no name for it in a {architecture}")
        layer, _, part = key.partition(_ATTENTION)
        biased = architecture == "qwen3" and f"{layer}{_ATTENTION}{_OUTPUT}.bias" in found
        if biased and part == f"{_OUTPUT}.bias":
            continue
        folded = layer + _ATTENTION if biased and part == "v_proj.bias" else ""
        precision = _choose_precision(kind, len(shape))
        planned.append(Planned(path, key, to, shape, precision, folded))
    return planned


def read_tensors(planned: Sequence[Planned], heads: Mapping[str, int]) -> Iterator[np.ndarray]:
    """The values of each planned tensor, in order, one in memory at a time. heads: ending of a name
    -> heads whose rows are to be in llama.cpp's rotary order."""
    import gguf
    from safetensors import safe_open

    for one in planned:
        with safe_open(str(one.path), "pt") as file:
            values = file.get_tensor(one.key).float().numpy()
        for ending, count in heads.items():
            if one.key.endswith(ending):
                values = _order_rotary_rows(values, count)
        if one.folded:
            values = values + _fold_output_bias(one.path.parent, one.folded)
        yield gguf.quants.quantize(values, one.precision)


def _list_tensors(path: Path) -> list[tuple[str, str, tuple[int, ...]]]:
    from safetensors import safe_open

    with safe_open(str(path), "pt") as file:
        slices = [(key, file.get_slice(key)) for key in sorted(file.keys())]
        return [(key, one.get_dtype(), tuple(one.get_shape())) for key, one in slices]


def _list_parts(folder: Path) -> list[Path]:
    return sorted(folder.glob("*.safetensors"))


def _fold_output_bias(folder: Path, attention: str) -> np.ndarray:
    """What the value bias is raised by in the place of the output's bias, for which llama.cpp has
    no tensor in a qwen3: attention weighs values with numbers that sum to 1, so a constant in all
    values is that constant in the output. Raises NoGguf where heads share values."""
    from safetensors import safe_open

    held = {}
    for path in _list_parts(folder):
        with safe_open(str(path), "pt") as file:
            names = {f"{attention}{_OUTPUT}.{kind}": kind for kind in ("weight", "bias")}
            for key in names.keys() & set(file.keys()):
                held[names[key]] = file.get_tensor(key).double().numpy()
    try:
        return np.linalg.solve(held["weight"], held["bias"]).astype(np.float32)
    except np.linalg.LinAlgError as error:
        raise NoGguf(
            f"{attention}{_OUTPUT}.bias: llama.cpp has no such tensor in a qwen3, and it cannot be"
            f" folded into the value bias ({error}); serve the safetensors"
        ) from None


def _choose_precision(kind: str, dimensions: int) -> Any:
    """As llama.cpp's converter: vectors (norms, biases) in float32, matrices as they are."""
    from gguf import GGMLQuantizationType

    return GGMLQuantizationType[kind if kind in ("BF16", "F16") and dimensions > 1 else "F32"]


def _order_rotary_rows(values: np.ndarray, heads: int) -> np.ndarray:
    """Rows of each head from two halves to pairs: what Llama's conversion does to them."""
    halves = values.reshape(heads, 2, values.shape[0] // heads // 2, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))
