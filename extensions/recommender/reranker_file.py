"""A reranker as one file: arrays beside one JSON, read without believing what it says of itself."""

import io
import json
import logging
import zipfile
from collections.abc import Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.texts import FULL
from extensions.recommender.posterior import BlockLevel, PosteriorBlock, SharedPosterior
from extensions.recommender.question_features import (
    SHARED_FEATURES,
    FeatureShape,
    RequestSpace,
    ToolFamilies,
    ToolMemory,
    VectorProjection,
)
from extensions.recommender.reranker import (
    BayesianReranker,
    RerankerWeights,
    count_local,
    count_shared,
)
from extensions.recommender.tool_pool import ToolFacts, ToolPool
from serving.index.folder import check_finite, read_arrays
from serving.index.model import RERANKER_FILE, IndexBroken, RouterIndex
from warehouse.storage.files import write_atomically

FORMAT = 3
_EARLIER = (1, 2)
_MOST = 512  # dimensions of any part
_ARRAYS: tuple[str, ...] = (
    "basis",
    "query_mean",
    "tool_mean",
    "request_mean",
    "request_basis",
    "families",
    "centre",
    "scale",
    "mean",
    "covariance",
)


class BadReranker(ValueError):
    """A file that is no reranker, or one of another version of this program."""


class OldReranker(BadReranker):
    """A reranker of an earlier version of this program: whole, and not read any more."""


def write_reranker(weights: RerankerWeights, path: Path) -> None:
    arrays: dict[str, np.ndarray] = {
        "basis": weights.projection.basis,
        "query_mean": weights.projection.query_mean,
        "tool_mean": weights.projection.tool_mean,
        "request_mean": weights.requests.mean,
        "request_basis": weights.requests.basis,
        "families": weights.families.vectors,
        "centre": weights.centre,
        "scale": weights.scale,
        "mean": weights.shared.mean,
        "covariance": weights.shared.covariance,
    }
    about: dict[str, Any] = {
        "format": FORMAT,
        "features": list(SHARED_FEATURES),
        "shape": asdict(weights.shape),
        "embedder": weights.embedder,
        "hardness": weights.hardness,
        "facts": dict(weights.facts),
        "memory": list(weights.memory),
        "families": list(weights.families.names),
        "levels": {name: list(level.blocks) for name, level in weights.levels.items()},
    }
    for name, level in weights.levels.items():
        width, blocks = len(level.variance), list(level.blocks.values())
        state = [[block.n, block.surprise, block.surprise_variance] for block in blocks]
        means = np.array([block.mean for block in blocks], np.float32)
        covariances = np.array([block.covariance for block in blocks], np.float32)
        arrays |= {
            f"{name}-variance": level.variance,
            f"{name}-means": means.reshape(len(blocks), width),
            f"{name}-covariances": covariances.reshape(len(blocks), width, width),
            f"{name}-state": np.array(state, float).reshape(len(blocks), 3),
        }
    dim = weights.projection.basis.shape[0]
    held = list(weights.memory.values())
    counts = np.array([[item.wins, item.losses] for item in held], float)
    arrays |= {
        "memory-won": np.array([item.won for item in held], np.float32).reshape(len(held), dim),
        "memory-lost": np.array([item.lost for item in held], np.float32).reshape(len(held), dim),
        "memory-counts": counts.reshape(len(held), 2),
    }
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    bytes_i_o = io.BytesIO()
    named: dict[str, Any] = {name: np.ascontiguousarray(one) for name, one in arrays.items()}
    np.savez(bytes_i_o, **named)
    write_atomically(path, bytes_i_o.getvalue())


def read_reranker(path: Path) -> RerankerWeights:
    """The weights that a file holds. Raises BadReranker (OldReranker), FileNotFoundError."""
    try:
        return _read_weights(path)
    except (FileNotFoundError, OldReranker):
        raise
    except (OSError, ValueError, KeyError, TypeError, AttributeError, zipfile.BadZipFile) as error:
        why = f"{type(error).__name__}: {error}"[:200]
        raise BadReranker(
            f"{path}: {why}; expected a reranker of format {FORMAT}: fit it again, or delete it to"
            " serve without"
        ) from error


def open_reranker(path: Path, pool: ToolPool, embedder: str) -> BayesianReranker:
    """A file's reranker over a pool by `embedder`. Raises BadReranker, FileNotFoundError."""
    weights = read_reranker(path)
    dim, made = weights.projection.basis.shape[0], pool.vectors.shape[1]
    if weights.embedder != embedder or dim != made:
        raise BadReranker(
            f"{path}: was fitted to vectors of {weights.embedder or 'no named embedder'} ({dim}),"
            f" the index has those of {embedder} ({made}): fit it again"
        )
    return BayesianReranker(weights, pool)


def _read_weights(path: Path) -> RerankerWeights:
    [packed] = read_arrays(path, ["about"])
    about = json.loads(packed.tobytes())
    if about["format"] in _EARLIER:
        raise OldReranker(
            f"{path}: a reranker of format {about['format']}, read is {FORMAT}; fit it again"
        )
    if about["format"] != FORMAT or about["features"] != list(SHARED_FEATURES):
        raise ValueError(f"it is of format {about['format']!r:.20} or reads other features")
    shape = FeatureShape(**{name: _read_count(size) for name, size in about["shape"].items()})
    held: dict[str, np.ndarray] = dict(zip(_ARRAYS, read_arrays(path, _ARRAYS), strict=True))
    families = tuple(map(str, about["families"]))
    _check_shapes(held, shape, len(families))
    levels = {
        name: _read_level(path, name, keys, count_local(shape, name))
        for name, keys in about["levels"].items()
    }
    value = about["hardness"]
    if not isinstance(value, int | float) or not 0 <= value < 1e12:
        raise ValueError(f"{value!r:.20} is no number of 0 or more")
    return RerankerWeights(
        shape,
        VectorProjection(held["basis"], held["query_mean"], held["tool_mean"]),
        RequestSpace(held["request_mean"], held["request_basis"]),
        ToolFamilies(families, held["families"]),
        held["centre"],
        held["scale"],
        SharedPosterior(held["mean"], held["covariance"]),
        levels,
        float(value),
        str(about["embedder"]),
        _read_memory(path, about["memory"], held["basis"].shape[0]),
        dict(about["facts"]),
    )


def _check_shapes(held: Mapping[str, np.ndarray], shape: FeatureShape, families: int) -> None:
    dims, hand = count_shared(shape), len(SHARED_FEATURES)
    dim = held["basis"].shape[0]
    widest = max(shape.query, shape.tool, shape.cross)
    expected = {
        "basis": (dim, widest), "query_mean": (dim,), "tool_mean": (dim,), "request_mean": (dim,),
        "request_basis": (dim, shape.block), "families": (families, dim), "centre": (hand,),
        "scale": (hand,), "mean": (dims,), "covariance": (dims, dims),
    }  # fmt: skip
    for name, wanted in expected.items():
        if check_finite(held[name], name).shape != wanted:
            raise ValueError(f"{name} is {held[name].shape}, expected {wanted}")
    if (held["scale"] <= 0).any():
        raise ValueError("scale holds what is not above 0")


def _read_level(path: Path, name: str, keys: list[str], width: int) -> BlockLevel:
    parts = ("variance", "means", "covariances", "state")
    arrays = read_arrays(path, [f"{name}-{part}" for part in parts])
    shapes = ((width,), (len(keys), width), (len(keys), width, width), (len(keys), 3))
    for part, array, wanted in zip(parts, arrays, shapes, strict=True):
        if check_finite(array, f"{name}-{part}").shape != wanted:
            raise ValueError(f"{name}-{part} is {array.shape}, expected {wanted}")
    variance, means, covariances, state = (array.astype(float) for array in arrays)
    blocks = {
        str(key): PosteriorBlock(means[row], covariances[row], *state[row].tolist())
        for row, key in enumerate(keys)
    }
    return BlockLevel(variance, blocks)


def _read_memory(path: Path, names: list[str], dim: int) -> dict[str, ToolMemory]:
    arrays = read_arrays(path, [f"memory-{part}" for part in ("won", "lost", "counts")])
    for array, width in zip(arrays, (dim, dim, 2), strict=True):
        if check_finite(array, "memory").shape != (len(names), width):
            raise ValueError(f"memory is {array.shape}, expected {(len(names), width)}")
    won, lost, counts = (array.astype(float) for array in arrays)
    if (counts < 0).any():
        raise ValueError("memory holds counts below 0")
    rows = zip(names, won, lost, counts.tolist(), strict=True)
    return {str(name): ToolMemory(one, other, *both) for name, one, other, both in rows}


def _read_count(value: Any) -> int:
    if type(value) is not int or not 1 <= value <= _MOST:
        raise ValueError(f"a part of the shape is {value!r:.20}, expected 1 to {_MOST}")
    return value


def open_ranker(index: RouterIndex) -> BayesianReranker | None:
    """An index's reranker; None if deleted or of an earlier version. Raises IndexBroken."""
    assert index.folder is not None
    try:
        return open_reranker(index.folder / RERANKER_FILE, open_pool(index), index.embedder)
    except (OldReranker, FileNotFoundError) as error:
        logging.getLogger(__name__).warning("%s; searches keep the router's order", error)
        return None
    except BadReranker as error:
        raise IndexBroken(f"router index {index.version[:12]}: {error}") from error


def open_pool(index: RouterIndex) -> ToolPool:
    facts = [
        ToolFacts(tool.tool_id, tool.server_id, index.contract(place), tool.contract_digest)
        for place, tool in enumerate(index.tools)
    ]
    pool = ToolPool(facts, index.views[FULL].vectors)
    _ = pool.features, pool.words  # computed now, so that the first question need not wait
    return pool
