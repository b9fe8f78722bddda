"""What signals are measured of: tables as they were when a model was trained, and as they are."""

import json
from collections import Counter, defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

import numpy as np
import polars as pl

from assets.contracts.quarantined_tools import read_clear
from assets.contracts.tool_id import ToolId
from assets.outcomes.reliability.observations import read_log_lines
from assets.servers.calls.log import STATUSES
from assets.synthesis.tables import JUDGEMENTS
from assets.vectors.encoders.embedder import Embedder, Prompts, embed_queries
from assets.vectors.index import TOOL, VECTORS, read_contract
from training.drift.shifts import SampleMember
from training.sets.set_audit import load_manifest
from training.sets.training_set import TRAINING_SET
from warehouse.json_types import Row
from warehouse.store import Warehouse

_SEARCHES = {
    "at": pl.Float64,
    "status": pl.String,
    "tool_id": pl.String,
    "query": pl.String,
    "words": pl.String,
    "vector": pl.String,
    "embedder": pl.String,
}
_CALLED = frozenset(STATUSES) - {"reported", "searched", "declined", "cancelled", "refused"}


@dataclass(frozen=True)
class DriftSources:
    """What was there at the last training, and what is now. Read when asked for, once.

    trained_on: the set of the last training. trained_at: its end (epoch seconds), where known.
    embedder: opens the embedder in use. start, prompts: what the untrained retriever is.
    """

    warehouse: Warehouse
    trained_on: str | None
    trained_at: float | None
    embedder: Callable[[], Embedder]
    start: str
    prompts: Prompts = field(default_factory=Prompts)

    @cached_property
    def clear(self) -> list[dict[str, Any]]:
        return read_clear(self.warehouse)

    @cached_property
    def now(self) -> dict[str, str]:
        """Tool id -> contract digest."""
        return {str(ToolId.of_row(row)): row["contract_digest"] for row in self.clear}

    @cached_property
    def contracts(self) -> dict[str, dict[str, Any]]:
        """Tool id -> contract."""
        return {str(ToolId.of_row(row)): read_contract(row) for row in self.clear}

    @cached_property
    def then(self) -> dict[str, str]:
        """Tool id -> contract digest, when the set of the last training was made."""
        known = load_manifest(self.warehouse.home, self.trained_on) if self.trained_on else None
        return known["contracts"] if known else {}

    @cached_property
    def log(self) -> pl.DataFrame:
        return read_log_lines(self.warehouse.home, _SEARCHES)

    def find_set_time(self, name: str) -> float | None:
        """When a training set was published (epoch seconds); None where it never was."""
        heads = self.warehouse.tables.history(TRAINING_SET.name)
        return next((head.at for head in reversed(heads) if head.digest == name), None)

    def read_set(self, name: str) -> Sequence[Row]:
        """The rows of a training set that was published once; [] of any other."""
        at = self.find_set_time(name)
        return self.warehouse.tables.read(TRAINING_SET, as_of=at).to_dicts() if at else []

    def read_members(self, as_of: float | None) -> tuple[dict[str, SampleMember], set[str]]:
        """(tool id -> Member, embedders of their texts) now, or as of a time."""
        frame = self.warehouse.tables.read(VECTORS, as_of=as_of).filter(pl.col("kind") == TOOL)
        rows = frame.unique(["server_id", "tool"], keep="first", maintain_order=True).to_dicts()
        members = {
            str(ToolId.of_row(row)): SampleMember(
                row["server_id"], row["contract_digest"], row["text_digest"]
            )
            for row in rows
        }
        return members, set(frame["embedder"])

    def read_judged(self, as_of: float) -> tuple[set[str], list[Row]]:
        """(ids of the pairs that were judged then, verdicts of then and of pairs that came)."""
        columns = ["pair_id", "server_id", "verdict"]
        then, now = (
            self.warehouse.tables.read(JUDGEMENTS, as_of=at).select(columns).unique("pair_id")
            for at in (as_of, None)
        )
        came = now.join(then, on="pair_id", how="anti")
        return set(then["pair_id"]), [*then.to_dicts(), *came.to_dicts()]

    def count_calls(self) -> dict[str, int]:
        """Tool id -> calls that were sent to it, by the log."""
        called = self.log.filter(pl.col("status").is_in(_CALLED) & pl.col("tool_id").is_not_null())
        return dict(Counter(called["tool_id"]))

    def read_searches(self, most: int) -> tuple[np.ndarray, np.ndarray]:
        """Vectors of the latest distinct searches of tokens that opted in: (before the last
        training, since). Words are embedded here and kept nowhere: deleting a token's lines from
        the log leaves nothing of them behind."""
        kept = self.log.filter(
            (pl.col("status") == "searched")
            & (pl.col("words").is_not_null() | pl.col("vector").is_not_null())
        ).sort("at")
        split = self.trained_at or 0.0
        sides = [
            frame.unique("query", keep="last", maintain_order=True).tail(most).to_dicts()
            for frame in (kept.filter(pl.col("at") < split), kept.filter(pl.col("at") >= split))
        ]
        spaces = Counter(row["embedder"] for side in sides for row in side)
        if not spaces:
            return np.zeros((0, 0)), np.zeros((0, 0))
        [(space, _)] = spaces.most_common(1)  # vectors of two embedders are not comparable
        before, after = ([row for row in side if row["embedder"] == space] for side in sides)
        return self._embed_searches(before, space), self._embed_searches(after, space)

    def _embed_searches(self, rows: Sequence[Row], space: str | None) -> np.ndarray:
        if not rows:
            return np.zeros((0, 0))
        if space is None:
            return embed_queries(self.embedder(), [row["words"] for row in rows])
        return np.stack([_read_vector(row["vector"]) for row in rows])


def map_owners(manifest: Mapping[str, Any] | None) -> dict[str, list[str]]:
    """Contract digest -> ids of the tools that had it when a set was made."""
    owners: dict[str, list[str]] = defaultdict(list)
    for tool, name in ((manifest or {}).get("contracts") or {}).items():
        owners[name].append(tool)
    return owners


def read_called(row: Row) -> list[dict[str, Any]]:
    """The calls of a row of an evaluation."""
    return json.loads(row["called"] or "[]")


def _read_vector(packed: str) -> np.ndarray:
    """A unit vector out of the log's float16 in base64."""
    import base64

    vector = np.frombuffer(base64.b64decode(packed), "<f2").astype(np.float32)
    return vector / (float(np.linalg.norm(vector)) or 1.0)
