"""Builds the training set of a run out of the tables."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import polars as pl

from assets.catalogue.catalogue import CATALOGUE, map_same_servers
from assets.contracts.quarantined_tools import key_contract, read_contracts
from assets.marketplaces.listing_table import LISTINGS
from assets.outcomes.table import may_keep, read_tried
from assets.outcomes.trace_pairs import list_traced
from assets.outcomes.trajectory import make_pair_row, read_kept
from assets.synthesis.tables import JUDGEMENTS, PAIRS, select_trainable
from assets.vectors.confusable_table import CONFUSABLES, TWINS, list_hard_negatives
from assets.vectors.encoders.embedder import Embedder
from assets.vectors.index import INSTRUCTIONS, embed_texts
from training.sets.pool import BadOffer, get_pool_path, load_pool, save_pool
from training.sets.set_audit import load_manifest, save_manifest, set_flaws
from training.sets.split import SEEN_TOOL, UNSEEN_TOOL, Key, SetPolicy, make_cached_embed
from training.sets.training_set import (
    TRAINING_SET,
    TrainingSet,
    build_training_set,
    make_set_manifest,
)
from warehouse.storage.lance import LanceStore
from warehouse.store import Warehouse

VECTOR_TAG = "training-set-"

Row = dict[str, Any]
Choose = Callable[[list[Row], list[Row]], list[Row]]


@dataclass(frozen=True)
class BuiltSet:
    """A set that was made and audited; nothing points to it yet."""

    made: TrainingSet
    frame: pl.DataFrame
    name: str
    flaws: list[str]
    held: frozenset[str]  # contract digests that are kept out

    def get_figures(self) -> dict[str, Any]:
        counted = dict(self.frame.group_by("split").len().sort("split").iter_rows())
        leaks = {why: len(found) for why, found in self.made.leaks.items()}
        empty = [split for split in (SEEN_TOOL, UNSEEN_TOOL) if split not in counted]
        figures = {
            "empty": empty,
            "dropped": self.made.dropped,
            "leaks": leaks,
            "pool": len(self.made.pool),
        }
        return {**counted, **figures}


def make_set(
    warehouse: Warehouse,
    embedder: Embedder,
    policy: SetPolicy | None = None,
    choose: Choose = select_trainable,
) -> BuiltSet:
    """The audited set of the current tables. `choose`: which of all pairs, by all judgements."""
    policy = policy or SetPolicy()
    tables, store = warehouse.tables, LanceStore(warehouse.home / "lance")
    tools = make_cached_embed(lambda texts: embed_texts(texts, embedder, store))
    cached_embed = make_cached_embed(
        lambda texts: embed_texts(texts, embedder, store, table=INSTRUCTIONS)
    )
    accepted = choose(tables.read(PAIRS).to_dicts(), tables.read(JUDGEMENTS).to_dicts())
    tried = read_tried(tables)
    chosen = [row for row in accepted if may_keep(tried.get(row["pair_id"]), policy.executed)]
    played = list(map(make_pair_row, read_kept(tables))) if policy.trajectories else []
    played += [added.row for added in list_traced(tables)]
    clear, kept_out = read_contracts(warehouse)
    contracts: dict[tuple[str, str], Row] = {}
    for row in clear:  # of a server that two marketplaces list, the first counts
        contracts.setdefault((row["server_id"], row["tool"]), row)
    held: set[Key] = set(map(key_contract, kept_out))
    alike = tables.read(CONFUSABLES).to_dicts()
    same = map_same_servers(tables.read(CATALOGUE).to_dicts())
    training_set = build_training_set(
        [*chosen, *played],
        contracts.values(),
        tools,
        policy,
        held,
        list_hard_negatives(alike),
        embed_requests=cached_embed,
        twins=[(r["contract_digest"], r["other_digest"]) for r in alike if r["kind"] == TWINS],
        same=same,
    )
    if lost := len(accepted) - len(chosen):
        training_set.dropped[f"not {policy.executed} when executed"] = lost
    frame = TRAINING_SET.frame(training_set.rows)
    flaws = set_flaws(
        training_set.rows,
        training_set.pool,
        embed=tools,
        embed_requests=cached_embed,
        policy=policy,
        same=same,
    )
    return BuiltSet(
        training_set, frame, TRAINING_SET.digest(frame), flaws, frozenset(key[2] for key in held)
    )


def read_known_contracts(warehouse: Warehouse, learnt_set: str | None) -> set[str]:
    """Contracts of the set that a caller learnt from, or of the home's first: what a refused
    candidate learnt is learnt again."""
    heads = warehouse.tables.history(TRAINING_SET.name)
    learnt = (head for head in reversed(heads) if head.digest == learnt_set)
    head = next(learnt, heads[0] if heads else None)
    if head is None:
        return set()
    return set(warehouse.tables.read(TRAINING_SET, as_of=head.at)["contract_digest"])


def find_too_few_servers(warehouse: Warehouse) -> str | None:
    """Why a home is no place to train in: one server is all that was ever listed, as of one's own,
    so that there is nothing to choose between. None where it is one, or once had a set."""
    tables = warehouse.tables
    if tables.head(TRAINING_SET.name) is not None or len(tables.read(LISTINGS)) != 1:
        return None
    return "no training set: one server is listed, expected two or more to learn to choose between"


def save_built_set(warehouse: Warehouse, built: BuiltSet, embedder: Embedder) -> None:
    """Keeps manifest and pool of a flawless set before the pointer moves, for comparison and
    prompts. A set made again keeps both, less what is held since."""
    home = warehouse.home
    if load_manifest(home, built.name) is None or not get_pool_path(home, built.name).exists():
        tag = make_vector_tag(built.name)
        version = LanceStore(home / "lance").tag(tag)
        save_pool(home, built.name, built.made.pool)
        facts = {"embedder": embedder.id, "lance_version": version, "lance_tag": tag}
        save_manifest(home, make_set_manifest(built.made, built.name, **facts))
        return
    try:
        pool: Mapping[str, Any] = load_pool(home, built.name)
    except BadOffer:
        pool = {}
    left = {name: entry for name, entry in pool.items() if name not in built.held}
    if not pool or len(left) < len(pool):
        save_pool(home, built.name, left or built.made.pool)


def make_vector_tag(training_set: str) -> str:
    return f"{VECTOR_TAG}{training_set[:16]}"
