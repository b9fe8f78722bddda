"""A loaded router index: plain data, fitted weights, and products. The product with 12,600 vectors
is most of a query's cost: a third of the dimensions find the same candidates (`VectorSketch`), and
all cosines' mean and spread follow from `VectorMoments`. LanceDB searches a large index."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np

from assets.contracts.rename_history import (
    HISTORY_FILE,
    ContractHistory,
    ContractMove,
    read_history,
)
from assets.vectors.lexical import BM25
from assets.vectors.texts import FULL, SERVER_FIELD, SERVER_VIEWS
from serving.index.search_table import SearchTables
from warehouse.errors import UnusableInput

FORMAT = 2
RERANKER_FILE = "reranker.npz"
DESCRIPTION = 400  # characters of a description that a hit carries
TOOL, SERVER = "tool", "server"  # levels of a view
UNVERIFIED = "unverified"  # flag of a tool that a marketplace lists and nobody launched
MERGED = "+"  # in an embedder's id, before the digest of a trained adapter
# The views that every query reads, in one array: one product of 15,600 rows takes half as long as
# three on two cores, because threads wait for each other after each.
BLOCK = (FULL, *SERVER_VIEWS)
DIMENSIONS = 128  # of a sketch
SMALL = 4_000  # rows up to which the whole product is as quick as a sketch
BUILT_IN = Path(__file__).with_name("fusion.json")
TRAINED = Path(__file__).with_name("fusion_trained.json")
RELIABILITY = 0.6  # score of a tool that always works above one that never does: half a word
_GROUPS = 4  # groups of scores for each of the best that are looked for


class IndexMissing(UnusableInput):
    """There is no router index to search."""


class IndexBroken(RuntimeError):
    """An index folder is incomplete, or was made by another format or embedder."""


@dataclass(frozen=True, slots=True)
class IndexedTool:
    """One tool of the index. `tool_id` is `<server_id>::<tool>`, `server` the server's place."""

    tool_id: str
    server_id: str
    tool: str
    description: str
    contract_digest: str
    marketplaces: tuple[str, ...]
    flags: tuple[str, ...] = ()
    read_only: bool | None = None
    server: int = 0

    @property
    def unverified(self) -> bool:
        """Whether nobody launched its server: it is shown with that mark and never called."""
        return UNVERIFIED in self.flags


@dataclass(frozen=True)
class IndexedServer:
    server_id: str
    name: str
    description: str
    summary: str


@dataclass(frozen=True)
class VectorView:
    """Vectors of one kind of text: float32 [rows, dim] of unit rows; the place of the tool or
    server that each row describes, int32 [rows]; the level, TOOL or SERVER."""

    vectors: np.ndarray
    owners: np.ndarray
    level: str


@dataclass(frozen=True)
class IndexSource:
    """What an index is built from: snapshot `rows` (server_id, tool, contract_digest, contract as
    JSON, marketplace, optionally flags), and optionally renames in `moves` and more."""

    rows: Sequence[Mapping[str, Any]]
    servers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    instructions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    moves: Sequence[ContractMove] = ()


@dataclass(frozen=True)
class VectorMoments:
    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray) -> "VectorMoments":
        mean = vectors.mean(0, dtype=np.float64)
        second = (vectors.T @ vectors).astype(np.float64) / max(len(vectors), 1)
        covariance = second - np.outer(mean, mean)
        return cls(mean.astype(np.float32), covariance.astype(np.float32))

    def measure_along(self, vector: np.ndarray) -> tuple[float, float]:
        spread = float(vector @ compute_products(self.covariance, vector))
        return float(self.mean @ vector), max(spread, 0.0) ** 0.5


@dataclass(frozen=True)
class VectorSketch:
    """The rows of some views in fewer dimensions, float32 [rows, dimensions], one view after the
    other; `basis` is float32 [dim, dimensions], `ends` the rows of each view."""

    basis: np.ndarray
    rows: np.ndarray
    ends: dict[str, tuple[int, int]]

    @classmethod
    def of(cls, views: Mapping[str, np.ndarray], order: Sequence[str]) -> "VectorSketch":
        first = views[order[0]]
        _, directions = np.linalg.eigh((first.T @ first).astype(np.float64))
        basis = np.ascontiguousarray(directions[:, ::-1][:, :DIMENSIONS], dtype=np.float32)
        rows = np.concatenate([views[name] @ basis for name in order])
        stops = np.cumsum([len(views[name]) for name in order]).tolist()
        ends = dict(zip(order, zip([0, *stops[:-1]], stops, strict=True), strict=True))
        return cls(basis, rows, ends)

    def products(self, vector: np.ndarray) -> dict[str, np.ndarray]:
        """About what each row's product with `vector` is, by view."""
        product = compute_products(self.rows, vector @ self.basis)
        return {name: product[start:end] for name, (start, end) in self.ends.items()}


@dataclass(frozen=True)
class FusionWeights:
    """Linear score of features, logistic of evidence: below `threshold` no tool is suitable."""

    weights: dict[str, float]
    evidence: dict[str, float]
    bias: float
    threshold: float

    def score(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """One number a candidate; a feature without a weight counts nothing."""
        total = np.zeros(next(iter(features.values())).shape, np.float32)
        for name, weight in self.weights.items():
            if name in features:
                total += np.float32(weight) * features[name]
        return total

    def suitable(self, evidence: Mapping[str, float]) -> float:
        """How likely it is that the pool holds a suitable tool, 0..1."""
        terms = (weight * evidence.get(name, 0.0) for name, weight in self.evidence.items())
        margin = min(max(self.bias + sum(terms), -30.0), 30.0)
        return round(1 / (1 + math.exp(-margin)), 6)


@dataclass(frozen=True)
class RouterIndex:
    """A loaded version. `block`: float32 [rows of BLOCK's views, dim], which are slices of it; a
    large index has `search` and mapped views instead. `twins`: int32 [tools], first tool with the
    same text; `recipes` by server id; `contracts` stays open, so that a removed folder still
    answers; `contract_starts`: int64 [tools + 1], byte offsets; `reranker`: model of
    reranker.npz."""

    version: str
    release: str
    embedder: str
    adapter: str | None
    tools: list[IndexedTool]
    servers: list[IndexedServer]
    views: dict[str, VectorView]
    block: np.ndarray | None
    fields: dict[str, BM25]
    twins: np.ndarray
    recipes: dict[str, dict[str, Any]]
    contracts: BinaryIO
    contract_starts: np.ndarray
    reranker: str | None = None
    folder: Path | None = None
    search: SearchTables | None = None

    @property
    def dim(self) -> int:
        return self.views[FULL].vectors.shape[1]

    @cached_property
    def moments(self) -> dict[str, VectorMoments]:
        return {name: VectorMoments.of(self.views[name].vectors) for name in BLOCK}

    @cached_property
    def sketch(self) -> VectorSketch | None:
        """The block in fewer dimensions; None for a small one, which is read whole."""
        if self.block is None or len(self.block) <= SMALL:
            return None
        return VectorSketch.of({name: self.views[name].vectors for name in BLOCK}, BLOCK)

    @cached_property
    def fusion(self) -> FusionWeights:
        return load_built_in(trained=MERGED in self.embedder)

    @cached_property
    def described(self) -> np.ndarray:
        """Whether each server has a description of its own, bool [servers]."""
        return np.array([bool(server.description.strip()) for server in self.servers])

    @cached_property
    def credit(self) -> dict[str, np.ndarray]:
        """What a match in each tool's text is worth, float32 [tools], by field."""
        fields = {name: words for name, words in self.fields.items() if name != SERVER_FIELD}
        return {name: words.measure_credit(self.server_of) for name, words in fields.items()}

    @cached_property
    def history(self) -> ContractHistory:
        """How its tools and parameters were renamed. Raises UnusableInput."""
        path = self.folder / HISTORY_FILE if self.folder else None
        return read_history(path) if path and path.exists() else ContractHistory()

    @cached_property
    def places(self) -> dict[str, int]:
        return {tool.tool_id: place for place, tool in enumerate(self.tools)}

    @cached_property
    def server_of(self) -> np.ndarray:
        """The server's place of each tool, intp [tools], which NumPy takes without a copy."""
        return np.array([tool.server for tool in self.tools], np.intp)

    def warm(self) -> None:
        """Computes what every query needs, so that the first one need not wait."""
        _ = self.sketch, self.moments, self.server_of, self.places, self.fusion, self.credit

    def find_tools_of(self, servers: Sequence[int]) -> np.ndarray:
        """Places of the tools of servers, intp; the tools of a server are neighbours."""
        edges = [np.searchsorted(self.server_of, [at, at + 1]) for at in servers]
        return np.concatenate([np.arange(0), *(np.arange(*edge) for edge in edges)])

    @cached_property
    def server_places(self) -> dict[str, int]:
        return {server.server_id: place for place, server in enumerate(self.servers)}

    def place_of(self, tool_id: str) -> int | None:
        """The place of a tool, None if it is not in the index."""
        return self.places.get(tool_id)

    def contract(self, place: int) -> dict[str, Any]:
        """The whole contract of one tool, read from the version's folder. Raises IndexBroken."""
        start, end = (int(offset) for offset in self.contract_starts[place : place + 2])
        try:
            return json.loads(os.pread(self.contracts.fileno(), end - start, start))
        except (ValueError, RecursionError) as error:
            tool, why = self.tools[place].tool_id, f"{type(error).__name__}: {error}"[:120]
            raise IndexBroken(f"contracts.jsonl: {tool!r:.120}: {why}; build it again") from error

    def recipe(self, server_id: str) -> dict[str, Any] | None:
        """How the server is launched, None when the index was built without it."""
        return self.recipes.get(server_id)


def compute_products(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """`vector` times each row, float32 [rows], on the caller's thread: BLAS threads (`rows @
    vector`) spin for 27 ms more, which slows the next query's encoder 1.4 times."""
    return np.einsum("ij,j->i", rows, vector)


def list_nearly_best(scores: np.ndarray, most: int) -> np.ndarray:
    """Places of the `most` best scores and a few more, rising: groups' best scores bound them from
    below. Partitioning all 100,000 took ten times as long."""
    groups = most * _GROUPS
    size = len(scores) // groups
    if size < 2:
        return np.arange(len(scores))
    best = scores[: groups * size].reshape(size, groups).max(0)
    return np.flatnonzero(scores >= np.partition(best, -most)[-most])


@lru_cache(maxsize=4)
def load_built_in(trained: bool = False) -> FusionWeights:
    """The weights that ship with the program; the files say what they were fitted on. trained: for
    the vectors of a trained adapter, which deserve more trust than the base model's."""
    content = json.loads((TRAINED if trained else BUILT_IN).read_bytes())
    evidence = content["suitable"]
    return FusionWeights(
        content["weights"], evidence["weights"], evidence["bias"], evidence["threshold"]
    )
