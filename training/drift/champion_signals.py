"""The state of the models in service: each held against the contracts that are there now."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any

from assets.contracts.canonical import tool_text
from assets.contracts.tool_id import ToolId
from assets.contracts.validate import validate_call
from assets.vectors.index import digest_text
from training.drift.contract_moves import measure_phantom_calls
from training.drift.decide import (
    CALLER_DECAY,
    PHANTOM_CALLS,
    RETRIEVER_DECAY,
    DriftSignal,
    make_unmeasured,
)
from training.drift.shifts import compare_hits
from training.drift.sources import DriftSources, map_owners, read_called
from training.evaluation.caller_table import CALLER_EVALUATION, UNPERTURBED
from training.evaluation.retriever import (
    RETRIEVER_EVALUATION,
    evaluate_retriever,
    make_encoder,
    open_in_service,
)
from training.releases.in_service import find_model_in_service
from training.runtime.model_store import read_model_card
from training.sets.set_audit import load_manifest
from training.sets.split import TRAIN
from warehouse.json_types import Row
from warehouse.statistics import wilson_interval
from warehouse.storage.digest import sha256
from warehouse.storage.lance import LanceStore, make_vector_key

FOUND_WITHIN = 5  # what `find_tools` shows
Rank = Callable[[Sequence[Row]], Mapping[str, int]]  # rows to ask -> rank by pair


def measure_retriever_decay(
    frozen: Iterable[Row], rank: Rank, current: Mapping[tuple[str, str], str], threshold: float,
    most: int = 200,
) -> DriftSignal:  # fmt: skip
    """The share of frozen items whose right tool was among the first five and is not now, less
    those that came in. An item whose tool is gone is in no share: no training brings it back.

    frozen: rows of RETRIEVER_EVALUATION of one model, with their `instruction`. rank: the rank now
    of each item's `positive` among all current tools. current: (server, tool) -> its text now.
    """
    chosen = sorted(frozen, key=lambda row: sha256(row["pair_id"].encode()))[:most]
    asked = [
        {**row, "positive": current[key]}
        for row in chosen
        if (key := (row["server_id"], row["tool"])) in current
    ]
    if not asked:
        why = "none of the items that it was measured on has a tool that is still there"
        return make_unmeasured(RETRIEVER_DECAY, threshold, why if chosen else _NEVER)
    ranks = rank(asked)
    before = [row["rank"] <= FOUND_WITHIN for row in asked]
    after = [ranks[row["pair_id"]] <= FOUND_WITHIN for row in asked]
    found = compare_hits(before, after)
    why = (
        f"of {len(chosen)} frozen items {len(chosen) - len(asked)} lost their tool;"
        f" {sum(before)} of the others were among the first {FOUND_WITHIN}, {sum(after)} are now"
    )
    return DriftSignal(
        RETRIEVER_DECAY, found.value, len(asked), threshold, why,
        found.low, found.high, found.p_value,
    )  # fmt: skip


def measure_caller_decay(
    right: Iterable[Row], fits: Callable[[Row, Mapping[str, Any]], bool], threshold: float
) -> DriftSignal:
    """The share of calls that were right and fit no contract now. right: rows of CALLER_EVALUATION
    of one model that answered rightly, each with its `calls` read as a list. fits: whether a call
    of a row still does."""
    listed = list(right)
    if not listed:
        return make_unmeasured(CALLER_DECAY, threshold, "no call of its evaluation was right")
    lost = sum(not all(fits(row, call) for call in row["calls"]) for row in listed)
    low, high = wilson_interval(lost, len(listed))
    why = f"of {len(listed)} calls that it got right {lost} fit no current contract"
    return DriftSignal(CALLER_DECAY, lost / len(listed), len(listed), threshold, why, low, high)


_NEVER = "it was never measured"


_MOST_TEXTS = 2000  # that a champion has no vectors of yet: some 20 s on one core


def measure_retrievers_champion(sources: DriftSources, threshold: float) -> DriftSignal:
    """Whether the retriever in service still finds what it found when it was last measured."""
    home = sources.warehouse.home
    model = find_model_in_service(home, "retriever").model
    frozen = _read_frozen_items(sources, model)
    texts = {
        (row["server_id"], row["tool"]): tool_text(sources.contracts[str(ToolId.of_row(row))])
        for row in sources.clear
    }
    store, pool = LanceStore(home / "lance"), sorted(set(texts.values()))
    if frozen and (due := _count_due_texts(sources, model, pool, store)) > _MOST_TEXTS:
        why = f"{due:,} texts have no vector by {model[:12]} yet: the next index makes them"
        return make_unmeasured(RETRIEVER_DECAY, threshold, why)

    def rank(items: Sequence[Row]) -> Mapping[str, int]:
        encode = make_encoder(
            home, model, store, sources.start, sources.embedder(), sources.prompts
        )
        ranked = evaluate_retriever(items, pool, {model: encode}, "")
        return {row["pair_id"]: row["rank"] for row in ranked}

    return measure_retriever_decay(frozen, rank, texts, threshold)


def _read_frozen_items(sources: DriftSources, model: str) -> list[Row]:
    """Rows of the model's last evaluation, each with the words of its request."""
    measured = sources.warehouse.tables.read(RETRIEVER_EVALUATION).to_dicts()
    rows = [row for row in measured if row["model"] == model]
    asked = {
        row["pair_id"]: row
        for name in {row["training_set"] for row in rows}
        for row in sources.read_set(name)
    }
    return [{**asked[row["pair_id"]], **row} for row in rows if row["pair_id"] in asked]


def _count_due_texts(
    sources: DriftSources, model: str, pool: Sequence[str], store: LanceStore
) -> int:
    encoder = open_in_service(
        sources.warehouse.home, model, sources.start, sources.prompts, sources.embedder()
    )
    return len(store.find_missing(make_vector_key(digest_text(text), encoder.id) for text in pool))


def measure_callers_champion(sources: DriftSources, threshold: float) -> DriftSignal:
    """Whether the calls that the caller in service got right still fit; nothing is asked of it."""
    model = find_model_in_service(sources.warehouse.home, "caller").model
    right = (
        {**row, "calls": read_called(row)}
        for row in sources.warehouse.tables.read(CALLER_EVALUATION).to_dicts()
        if row["model"] == model
        and row["ast_ok"]
        and not row["phantom"]
        and row["perturbation"] == UNPERTURBED
    )

    def fits(row: Row, call: Mapping[str, Any]) -> bool:
        contract = sources.contracts.get(str(ToolId(row["server_id"], call["name"])))
        return contract is not None and not validate_call(contract, call["arguments"])

    return measure_caller_decay((row for row in right if row["calls"]), fits, threshold)


def measure_champions_phantoms(sources: DriftSources, threshold: float) -> DriftSignal:
    """How much of what a model in service learnt is of tools and parameters that are no more."""
    home = sources.warehouse.home
    learnt = next(_list_champion_sets(sources), None)
    if learnt is None:
        return make_unmeasured(PHANTOM_CALLS, threshold, "no champion was trained")
    rows = [row for row in sources.read_set(learnt) if row["split"] == TRAIN]
    owners = map_owners(load_manifest(home, learnt))
    return measure_phantom_calls(rows, owners, sources.contracts, threshold)


def _list_champion_sets(sources: DriftSources) -> Iterator[str]:
    """The sets that the models in service learnt from; the caller's first, for it writes calls."""
    home = sources.warehouse.home
    for role in ("caller", "retriever"):
        card = read_model_card(home, find_model_in_service(home, role).model)
        if card and card.get("training_set"):
            yield card["training_set"]
