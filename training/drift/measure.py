"""All signals of a home, measured once for the same inputs: the asset publishes them, the sensor
and the run decide on them."""

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from functools import cached_property
from typing import Any

import polars as pl

from assets.contracts.canonical import tool_text
from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import CLEAR, HELD, read_clear
from assets.contracts.tool_id import ToolId
from assets.outcomes.reliability.observations import read_log_lines
from assets.servers.calls.log import STATUSES, CallLog
from assets.synthesis.tables import ONE_CALL
from assets.vectors.encoders.embedder import Embedder
from assets.vectors.index import digest_text, read_contract
from training.drift.evidence import read_set_contracts
from training.drift.signals import (
    CONTRACTS,
    NEW_TOOLS,
    RETRIEVER_DECAY,
    DriftSignal,
    count_moves,
    find_change_classes,
    judge_signal,
    make_contract_signal,
    make_unmeasured,
    measure_new_tool_gap,
    measure_retriever_decay,
)
from training.evaluation.retriever import (
    RETRIEVER_EVALUATION,
    evaluate_retriever,
    make_encoder,
    open_in_service,
)
from training.releases.in_service import find_model_in_service
from training.role import RETRIEVER
from training.sets.training_set import TRAINING_SET
from training.settings import RetrainPolicy
from warehouse.item_failure import try_item
from warehouse.json_types import Row
from warehouse.storage.digest import digest
from warehouse.storage.lance import LanceStore, make_vector_key
from warehouse.store import Warehouse

_VERSION = 4  # of what the memo holds
_MOST_TEXTS = 2000  # that a champion has no vectors of yet: some 20 s on one core
_MOST_ITEMS = 200  # requests of new contracts, and as many of others
_NOTHING = "nothing was trained yet"
_LACKING = "texts have no vector by this retriever yet: the next index makes them"
_PASSES = "; it is measured again"  # ends what passes without another input
_TABLES = (CLEAR, HELD, CHANGES, TRAINING_SET, RETRIEVER_EVALUATION)
# Statuses of lines of the log that no call was sent for.
_NOT_SENT = frozenset({"reported", "searched", "declined", "cancelled", "refused"})
_LOG = {"at": pl.Float64, "status": pl.String, "tool_id": pl.String}


@dataclass(frozen=True)
class DriftSources:
    """What was there when a training set was made, and what is now. Read when asked for, once.

    trained_on: the set. embedder: opens the embedder in use. start: what the untrained retriever
    is.
    """

    warehouse: Warehouse
    trained_on: str
    embedder: Callable[[], Embedder]
    start: str

    @cached_property
    def clear(self) -> list[dict[str, Any]]:
        return read_clear(self.warehouse)

    @cached_property
    def now(self) -> dict[str, str]:
        """Tool id -> contract digest."""
        return {str(ToolId.of_row(row)): row["contract_digest"] for row in self.clear}

    @cached_property
    def then(self) -> dict[str, str]:
        """Tool id -> contract digest, when the set was made."""
        return read_set_contracts(self.warehouse.home, self.trained_on)

    @cached_property
    def retriever(self) -> str:
        """The one in service."""
        return find_model_in_service(self.warehouse.home, RETRIEVER).model

    @cached_property
    def pool(self) -> list[str]:
        """Texts of all tools now."""
        return sorted({tool_text(read_contract(row)) for row in self.clear})

    def rank(self, items: Sequence[Row]) -> Mapping[str, int]:
        """Pair -> the rank of its `positive` among all tools, by the retriever in service."""
        home = self.warehouse.home
        store = LanceStore(home / "lance")
        encode = make_encoder(home, self.retriever, store, self.start, self.embedder())
        ranked = evaluate_retriever(items, self.pool, {self.retriever: encode}, "")
        return {row["pair_id"]: row["rank"] for row in ranked}

    def read_set(self, name: str) -> Sequence[Row]:
        """The rows of a training set that was published once; [] of any other."""
        tables = self.warehouse.tables
        heads = reversed(tables.history(TRAINING_SET.name))
        at = next((head.at for head in heads if head.digest == name), None)
        return tables.read(TRAINING_SET, as_of=at).to_dicts() if at else []


Measure = Callable[[DriftSources, float], DriftSignal]


def measure_drift(sources: DriftSources, policy: RetrainPolicy) -> list[DriftSignal]:
    """Judged signals, one of each of SIGNALS; from the memo where nothing that they are of has
    changed since. A signal that cannot be measured says why and costs no other."""
    memo, key = sources.warehouse.memo, digest(_list_inputs(sources, policy))
    place = f"measured since {sources.trained_on[:16]}"
    measured = memo.get("drift", place)
    if measured and measured["key"] == key:
        return [DriftSignal(**row) for row in measured["signals"]]
    signals: list[tuple[str, float, Measure]] = [
        (CONTRACTS, policy.min_share, _measure_contracts),
        (RETRIEVER_DECAY, policy.min_decay, _measure_retriever),
        (NEW_TOOLS, policy.min_decay, _measure_new_tools),
    ]
    judged = [judge_signal(_measure_one(sources, *signal), policy.alpha) for signal in signals]
    if not any(signal.why.endswith(_PASSES) for signal in judged):
        memo.put("drift", place, {"key": key, "signals": [asdict(signal) for signal in judged]})
    return judged


def _measure_one(
    sources: DriftSources, name: str, threshold: float, measure: Measure
) -> DriftSignal:
    return try_item(
        lambda: measure(sources, threshold),
        lambda hint: make_unmeasured(name, threshold, f"it could not be measured: {hint}{_PASSES}"),
    )


def _list_inputs(sources: DriftSources, policy: RetrainPolicy) -> dict[str, Any]:
    """What decides the figures, by name and size, without reading it."""
    tables, home = sources.warehouse.tables, sources.warehouse.home
    heads = {
        f"{spec.name}/{part}": head.digest
        for spec in _TABLES
        for part in tables.partitions(spec.name)
        if (head := tables.head(spec.name, part))
    }
    return {
        "version": _VERSION,
        "heads": heads,
        "log": [(path.name, path.stat().st_size) for path in CallLog(home).list_files()],
        "retriever": sources.retriever,
        "trained_on": sources.trained_on,
        "policy": asdict(policy),
    }


def _measure_contracts(sources: DriftSources, threshold: float) -> DriftSignal:
    if not sources.then:
        return make_unmeasured(CONTRACTS, threshold, _NOTHING)
    changes = sources.warehouse.tables.read(CHANGES).to_dicts()
    classes = find_change_classes(changes, sources.then)
    sent = pl.col("status").is_in(set(STATUSES) - _NOT_SENT) & pl.col("tool_id").is_not_null()
    log = read_log_lines(sources.warehouse.home, _LOG).filter(sent)
    moves = count_moves(sources.then, sources.now, classes, Counter(log["tool_id"]))
    return make_contract_signal(moves, threshold)


def _measure_retriever(sources: DriftSources, threshold: float) -> DriftSignal:
    """Whether the retriever in service still finds what it found when it was last measured."""
    # Rows of the model's last evaluation, each with the words of its request.
    measured = sources.warehouse.tables.read(RETRIEVER_EVALUATION).to_dicts()
    rows = [row for row in measured if row["model"] == sources.retriever]
    requests = {
        row["pair_id"]: row
        for name in {row["training_set"] for row in rows}
        for row in sources.read_set(name)
    }
    frozen = [{**requests[row["pair_id"]], **row} for row in rows if row["pair_id"] in requests]
    if frozen and (due := _count_missing_vectors(sources)) > _MOST_TEXTS:
        return make_unmeasured(RETRIEVER_DECAY, threshold, f"{due:,} {_LACKING}{_PASSES}")
    texts = {
        (row["server_id"], row["tool"]): tool_text(read_contract(row)) for row in sources.clear
    }
    return measure_retriever_decay(frozen, sources.rank, texts, threshold)


def _measure_new_tools(sources: DriftSources, threshold: float) -> DriftSignal:
    """Whether the retriever in service finds new and changed contracts as well as the others."""
    new, old = [], []
    known = set(sources.then.values())
    requests = sources.warehouse.tables.read(TRAINING_SET).to_dicts() if known else []
    for row in sorted(requests, key=lambda row: digest([row["pair_id"]])):
        if row["task"] in ONE_CALL:
            (old if row["contract_digest"] in known else new).append({**row, "split": NEW_TOOLS})
    if new and old and (due := _count_missing_vectors(sources)) > _MOST_TEXTS:
        return make_unmeasured(NEW_TOOLS, threshold, f"{due:,} {_LACKING}{_PASSES}")
    if not new or not old:
        return measure_new_tool_gap([], [], threshold)
    ranks = sources.rank([*new[:_MOST_ITEMS], *old[:_MOST_ITEMS]])
    new_ranks, old_ranks = (
        [ranks[row["pair_id"]] for row in rows[:_MOST_ITEMS]] for rows in (new, old)
    )
    return measure_new_tool_gap(new_ranks, old_ranks, threshold)


def _count_missing_vectors(sources: DriftSources) -> int:
    """Texts of tools of which the retriever in service has made no vector yet."""
    home, start = sources.warehouse.home, sources.start
    encoder = open_in_service(home, sources.retriever, start, sources.embedder())
    keys = (make_vector_key(digest_text(text), encoder.id) for text in sources.pool)
    return len(LanceStore(sources.warehouse.home / "lance").find_missing(keys))
