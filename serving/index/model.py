"""What an index holds, as plain data, and the errors of reading it."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

import numpy as np

from assets.contracts.history.moves import HISTORY_FILE, ContractHistory, Move, read_history
from assets.vectors.lexical import BM25
from assets.vectors.texts import FULL, SERVER_FIELD, SERVER_VIEWS
from serving.index.coarse_search import SMALL, Moments, Sketch
from serving.index.errors import IndexBroken

if TYPE_CHECKING:
    from serving.index.fusion import Fusion

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
    moves: Sequence[Move] = ()  # how tools and parameters were renamed


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
        from serving.index.fusion import load_built_in

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
