"""What an index holds, as plain data, and the errors of reading it."""

import json
import math
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property, lru_cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from assets.contracts.rename_history import (
    HISTORY_FILE,
    ContractHistory,
    ContractMove,
    read_history,
)
from assets.vectors.lexical import BM25
from assets.vectors.texts import FULL, SERVER_FIELD, SERVER_VIEWS
from warehouse.errors import UnusableInput

if TYPE_CHECKING:
    pass


class IndexMissing(UnusableInput):
    """There is no router index to search."""


class IndexBroken(RuntimeError):
    """An index folder is incomplete, or was made by another format or embedder."""


DIMENSIONS = 128
SMALL = 4_000  # rows up to which the whole product is as quick
_GROUPS = 4  # of scores, for each of the best that are looked for


@dataclass(frozen=True)
class Moments:
    """Of one view's vectors: their mean [dim] and covariance [dim, dim]."""

    mean: np.ndarray
    covariance: np.ndarray

    @classmethod
    def of(cls, vectors: np.ndarray) -> "Moments":
        mean = vectors.mean(0, dtype=np.float64)
        second = (vectors.T @ vectors).astype(np.float64) / max(len(vectors), 1)
        covariance = second - np.outer(mean, mean)
        return cls(mean.astype(np.float32), covariance.astype(np.float32))

    def measure_along(self, vector: np.ndarray) -> tuple[float, float]:
        """Mean and standard deviation of all products with `vector`."""
        spread = float(vector @ compute_products(self.covariance, vector))
        return float(self.mean @ vector), max(spread, 0.0) ** 0.5


@dataclass(frozen=True)
class Sketch:
    """Shadows of some views' rows, one block below the other."""

    basis: np.ndarray  # float32 [dim, dimensions], columns of unit length
    rows: np.ndarray  # float32 [rows, dimensions]
    ends: dict[str, tuple[int, int]]  # where each view's rows are

    @classmethod
    def of(cls, views: Mapping[str, np.ndarray], order: Sequence[str]) -> "Sketch":
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


def compute_products(rows: np.ndarray, vector: np.ndarray) -> np.ndarray:
    """The product of each row with `vector`, float32 [rows], on the caller's thread alone.

    `rows @ vector` is BLAS's, whose threads wait actively for 27 ms after each product and take
    the cores from the encoder of the next query: 1.4 times its median time beside other work.
    """
    return np.einsum("ij,j->i", rows, vector)


def list_nearly_best(scores: np.ndarray, most: int) -> np.ndarray:
    """Places of the `most` best scores and of a few more, in rising order.

    Of groups of scores the best are told first: the `most`-th of these is a bound that at least
    `most` scores reach. A partition of all 100,000 took ten times as long.
    """
    groups = most * _GROUPS
    together = len(scores) // groups
    if together < 2:
        return np.arange(len(scores))
    best = scores[: groups * together].reshape(together, groups).max(0)
    return np.flatnonzero(scores >= np.partition(best, -most)[-most])


# joined

FORMAT = 2
RERANKER_FILE = "reranker.npz"
DESCRIPTION = 400  # characters of a description that a hit carries
TOOL, SERVER = "tool", "server"  # levels of a view
UNVERIFIED = "unverified"  # flag of a tool that a marketplace lists and nobody launched
MERGED = "+"  # in an embedder's id: what follows is the digest of a trained adapter
# The views that every query is held against, in one array: one product of 15,600 rows takes half
# as long as three on two cores, where threads wait for each other after each.
BLOCK = (FULL, *SERVER_VIEWS)


@dataclass(frozen=True)
class Tool:
    """One tool of the index."""

    tool_id: str  # "<server_id>::<tool>"
    server_id: str
    tool: str
    description: str
    contract_digest: str
    marketplaces: tuple[str, ...]
    flags: tuple[str, ...] = ()
    read_only: bool | None = None
    server: int = 0  # its place among the servers

    @property
    def unverified(self) -> bool:
        """Whether nobody launched its server: it is shown with that mark, and never called."""
        return UNVERIFIED in self.flags


@dataclass(frozen=True)
class Server:
    """One server of the index."""

    server_id: str
    name: str
    description: str
    summary: str


@dataclass(frozen=True)
class View:
    """Vectors of one sort of text; `owners[row]` is the place of the tool or server it is of."""

    vectors: np.ndarray  # float32 [rows, dim], unit rows
    owners: np.ndarray  # int32 [rows]
    level: str  # TOOL or SERVER

    @cached_property
    def own(self) -> bool:
        """Whether row i is of place i: one row each, in order."""
        return bool(np.array_equal(self.owners, np.arange(len(self.owners))))


@dataclass(frozen=True)
class Source:
    """What an index is built from; only `rows` is needed.

    `rows` are snapshot rows: server_id, tool, contract_digest, contract (JSON), marketplace, and
    optionally flags.
    """

    rows: Sequence[Mapping[str, Any]]
    servers: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    instructions: Mapping[str, Sequence[str]] = field(default_factory=dict)
    recipes: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)
    moves: Sequence[ContractMove] = ()  # how tools and parameters were renamed


@dataclass(frozen=True)
class Index:
    """A loaded version: everything a query needs except the encoder."""

    version: str
    release: str
    embedder: str
    adapter: str | None
    tools: list[Tool]
    servers: list[Server]
    views: dict[str, View]
    block: np.ndarray  # float32 [rows of BLOCK's views, dim]: those views are slices of it
    fields: dict[str, BM25]
    twins: np.ndarray  # int32 [tools]: the place of the first tool that says the same
    recipes: dict[str, dict[str, Any]]  # by server id
    contracts: BinaryIO  # held open: a folder cleaned away under a query still answers
    contract_starts: np.ndarray  # int64 [tools + 1], bytes in contracts.jsonl
    reranker: str | None = None  # the model in reranker.npz
    folder: Path | None = None  # where it was read from

    @cached_property
    def moments(self) -> dict[str, Moments]:
        """Mean and covariance of each view of the block."""
        return {name: Moments.of(self.views[name].vectors) for name in BLOCK}

    @cached_property
    def sketch(self) -> Sketch | None:
        """The block in fewer dimensions; None where it is small enough to be looked at whole."""
        if len(self.block) <= SMALL:
            return None
        return Sketch.of({name: self.views[name].vectors for name in BLOCK}, BLOCK)

    @cached_property
    def fusion(self) -> "Fusion":
        """The weights that order this index."""

        return load_built_in(trained=MERGED in self.embedder)

    @cached_property
    def described(self) -> np.ndarray:
        """Whether each server has a description of its own, bool [servers]."""
        return np.array([bool(server.description.strip()) for server in self.servers])

    @cached_property
    def credit(self) -> dict[str, np.ndarray]:
        """What a match in each tool's text is worth, float32 [tools], by field."""
        owners = self.server_of
        return {
            name: words.measure_credit(owners)
            for name, words in self.fields.items()
            if name != SERVER_FIELD
        }

    @cached_property
    def history(self) -> ContractHistory:
        """How its tools and parameters were renamed; nothing in an index made without it. Raises
        UnusableInput."""
        path = self.folder / HISTORY_FILE if self.folder else None
        return read_history(path) if path and path.exists() else ContractHistory()

    def warm(self) -> None:
        """Works out what every question needs, before the first one waits for it."""
        _ = (self.sketch, self.moments, self.server_of, self.places, self.fusion)
        _ = self.credit

    @cached_property
    def places(self) -> dict[str, int]:
        """Where each tool id is."""
        return {tool.tool_id: place for place, tool in enumerate(self.tools)}

    @cached_property
    def server_of(self) -> np.ndarray:
        """The server's place of each tool, intp [tools]: as NumPy takes places without a copy."""
        return np.array([tool.server for tool in self.tools], np.intp)

    def place_of(self, tool_id: str) -> int | None:
        """The place of a tool, None when the index does not hold it."""
        return self.places.get(tool_id)

    def contract(self, place: int) -> dict[str, Any]:
        """The whole contract of one tool, read from the version's folder. Raises IndexBroken."""
        start, end = (int(at) for at in self.contract_starts[place : place + 2])
        try:
            return json.loads(os.pread(self.contracts.fileno(), end - start, start))
        except (ValueError, RecursionError) as error:
            tool, why = self.tools[place].tool_id, f"{type(error).__name__}: {error}"[:120]
            raise IndexBroken(f"contracts.jsonl: {tool!r:.120}: {why}; build it again") from error

    def recipe(self, server_id: str) -> dict[str, Any] | None:
        """How the server is launched, None when the index was built without it."""
        return self.recipes.get(server_id)


BUILT_IN = Path(__file__).with_name("fusion.json")
TRAINED = Path(__file__).with_name("fusion_trained.json")
RELIABILITY = 0.6  # what all calls or none working moves a score by: half a word's worth
_PLACES = 6  # decimals kept of a probability


@dataclass(frozen=True)
class Fusion:
    """A linear score over named features, and a logistic one over named evidence."""

    weights: dict[str, float]
    evidence: dict[str, float]
    bias: float
    threshold: float  # of suitability: below it the answer says that there is no tool

    def score(self, features: Mapping[str, np.ndarray]) -> np.ndarray:
        """One number a candidate; a feature without a weight counts nothing."""
        shape = next(iter(features.values())).shape
        total = np.zeros(shape, np.float32)
        for name, weight in self.weights.items():
            if name in features:
                total += np.float32(weight) * features[name]
        return total

    def suitable(self, evidence: Mapping[str, float]) -> float:
        """How likely it is that the pool holds a suitable tool, 0..1."""
        parts = (weight * evidence.get(name, 0.0) for name, weight in self.evidence.items())
        margin = min(max(self.bias + sum(parts), -30.0), 30.0)
        return round(1 / (1 + math.exp(-margin)), _PLACES)


def read_fusion(held: Mapping[str, Any], where: str) -> Fusion:
    """Raises IndexBroken where `held` is not {weights, suitable: {weights, bias, threshold}}."""
    try:
        suitable = held["suitable"]
        fusion = Fusion(
            weights={str(name): float(value) for name, value in held["weights"].items()},
            evidence={str(name): float(value) for name, value in suitable["weights"].items()},
            bias=float(suitable["bias"]),
            threshold=float(suitable["threshold"]),
        )
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise IndexBroken(
            f"{where}: {type(error).__name__}: {error}; expected"
            " {weights: {feature: number}, suitable: {weights, bias, threshold}}"
        ) from error
    numbers = [*fusion.weights.values(), *fusion.evidence.values(), fusion.bias, fusion.threshold]
    if not all(map(math.isfinite, numbers)):
        raise IndexBroken(f"{where}: a weight is not a finite number")
    return fusion


@lru_cache(maxsize=4)
def load_built_in(trained: bool = False) -> Fusion:
    """The weights that ship with the program; the files say what they were fitted on. `trained`:
    for the vectors of a trained adapter, which deserve more trust than the base model's."""
    path = TRAINED if trained else BUILT_IN
    return read_fusion(json.loads(path.read_bytes()), str(path))
