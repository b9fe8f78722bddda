"""All signals of a home, measured once for the same inputs: the asset publishes them, the sensor
and the run decide on them."""

from collections.abc import Callable
from dataclasses import asdict
from functools import partial
from typing import Any

from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import CLEAR, HELD
from assets.servers.calls.log import CallLog
from assets.synthesis.tables import JUDGEMENTS
from assets.vectors.index import VECTORS
from training.drift.champion_signals import (
    measure_callers_champion,
    measure_champions_phantoms,
    measure_retrievers_champion,
)
from training.drift.contract_moves import count_moves, find_change_classes, make_contract_signal
from training.drift.decide import (
    ACCEPT_RATE,
    CALLER_DECAY,
    CONTRACTS,
    EMBEDDINGS,
    PHANTOM_CALLS,
    QUERIES,
    RETRIEVER_DECAY,
    DriftSignal,
    RetrainPolicy,
    judge_signals,
    make_unmeasured,
)
from training.drift.shifts import (
    measure_accept_shift,
    measure_embedding_shift,
    measure_query_shift,
)
from training.drift.sources import DriftSources
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.retriever import RETRIEVER_EVALUATION
from training.releases.in_service import find_model_in_service
from training.sets.training_set import TRAINING_SET
from warehouse.item_failure import try_item
from warehouse.storage.digest import digest
from warehouse.storage.lance import LanceStore, make_vector_key

_VERSION = 1  # of what is kept in the memo
_MOST = 500  # servers, or searches, a side of a test of vectors: some .5 s
_NOTHING = "nothing was trained yet"
_TABLES = (
    *(CLEAR, HELD, VECTORS, CHANGES, JUDGEMENTS),
    *(TRAINING_SET, RETRIEVER_EVALUATION, CALLER_EVALUATION),
)


def measure_drift(sources: DriftSources, policy: RetrainPolicy) -> list[DriftSignal]:
    """Judged signals, one of each of SIGNALS; from the memo where nothing that they are of has
    changed since. A signal that cannot be measured says why and costs no other."""
    memo, key = sources.warehouse.memo, digest(_list_inputs(sources, policy))
    known = memo.get("drift", "measured")
    if known and known["key"] == key:
        return [DriftSignal(**row) for row in known["signals"]]
    result = judge_signals(
        [_measure_one(name, *how) for name, how in _list_signals(sources, policy).items()],
        policy.alpha,
    )
    memo.put("drift", "measured", {"key": key, "signals": [asdict(item) for item in result]})
    return result


def _list_inputs(sources: DriftSources, policy: RetrainPolicy) -> dict[str, Any]:
    """What decides the figures, by name and size, without reading it."""
    tables, home = sources.warehouse.tables, sources.warehouse.home
    heads = {
        f"{spec.name}/{part}": head.digest
        for spec in _TABLES
        for part in tables.partitions(spec.name)
        if (head := tables.head(spec.name, part))
    }
    sizes = [(path.name, path.stat().st_size) for path in CallLog(home).list_files()]
    models = {role: find_model_in_service(home, role).model for role in ("retriever", "caller")}
    return {
        "version": _VERSION,
        "heads": heads,
        "log": sizes,
        "models": models,
        "trained_on": sources.trained_on,
        "trained_at": sources.trained_at,
        "policy": asdict(policy),
    }


def _list_signals(
    sources: DriftSources, policy: RetrainPolicy
) -> dict[str, tuple[float, Callable[[float], DriftSignal]]]:
    """Signal -> (threshold, how it is measured)."""
    return {
        CONTRACTS: (policy.min_share, partial(_measure_contracts, sources)),
        EMBEDDINGS: (policy.min_shift, partial(_measure_embeddings, sources)),
        QUERIES: (policy.min_shift, partial(_measure_queries, sources)),
        ACCEPT_RATE: (policy.min_accept_shift, partial(_measure_accept_rate, sources)),
        RETRIEVER_DECAY: (policy.min_decay, partial(measure_retrievers_champion, sources)),
        CALLER_DECAY: (policy.min_decay, partial(measure_callers_champion, sources)),
        PHANTOM_CALLS: (policy.min_phantom, partial(measure_champions_phantoms, sources)),
    }


def _measure_one(
    name: str, threshold: float, measure: Callable[[float], DriftSignal]
) -> DriftSignal:
    return try_item(
        lambda: measure(threshold),
        lambda hint: make_unmeasured(name, threshold, f"it could not be measured: {hint}"),
    )


def _measure_contracts(sources: DriftSources, threshold: float) -> DriftSignal:
    if not sources.then:
        return make_unmeasured(CONTRACTS, threshold, _NOTHING)
    changes = sources.warehouse.tables.read(CHANGES).to_dicts()
    classes = find_change_classes(changes, sources.then)
    moves = count_moves(sources.then, sources.now, classes, sources.count_calls())
    return make_contract_signal(moves, threshold)


def _measure_embeddings(sources: DriftSources, threshold: float) -> DriftSignal:
    at = sources.find_set_time(sources.trained_on or "")
    if at is None:
        return make_unmeasured(EMBEDDINGS, threshold, _NOTHING)
    (then, before), (now, after) = sources.read_members(at), sources.read_members(None)
    if len(before | after) != 1:
        return make_unmeasured(EMBEDDINGS, threshold, "the embedder was changed since")
    [embedder], store = before, LanceStore(sources.warehouse.home / "lance")
    return measure_embedding_shift(
        then,
        now,
        lambda names: store.vectors([make_vector_key(name, embedder) for name in names]),
        threshold,
        most=_MOST,
    )


def _measure_queries(sources: DriftSources, threshold: float) -> DriftSignal:
    if sources.trained_at is None:
        return make_unmeasured(QUERIES, threshold, _NOTHING)
    return measure_query_shift(*sources.read_searches(_MOST), threshold)


def _measure_accept_rate(sources: DriftSources, threshold: float) -> DriftSignal:
    at = sources.find_set_time(sources.trained_on or "")
    if at is None:
        return make_unmeasured(ACCEPT_RATE, threshold, _NOTHING)
    return measure_accept_shift(*sources.read_judged(at), threshold)
