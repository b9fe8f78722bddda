"""Builds a table: draws tasks, lists servers, makes variants, retrieves, executes."""

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assets.servers.deploy.policy import DeployPolicy
from benchmarks.outcomes.noise.endpoints import AFTER, BEFORE, ToolEndpoint, list_real
from benchmarks.outcomes.noise.execute import execute_all, list_servers, list_wishes
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN, BenchTask, draw_tasks, load_intents
from benchmarks.outcomes.noise.play import NoiseStage
from benchmarks.outcomes.noise.table import (
    OutcomeTable,
    choose_candidates,
    embed_endpoints,
    embed_requests,
    load_table,
)
from benchmarks.outcomes.noise.variants import (
    NEWCOMERS,
    change_endpoints,
    make_newcomers,
    make_variants,
)
from warehouse.ledger.ledger import Ledger

TRAIN_SEEDS, HELD_OUT_SEEDS = (11, 12, 13), (21,)  # of the worlds that tasks are drawn in
VECTORS = "vectors.npz"


@dataclass(frozen=True)
class TableSize:
    """How much is built."""

    tasks: int = 2000
    held_out: int = 400
    variants: int = 150
    seed: int = 1


def build_table(
    size: TableSize,
    policy: DeployPolicy,
    ledger: Ledger,
    run_date: str,
    tell: Callable[[str], None],
) -> NoiseStage:
    """Everything that learners play against, executed once."""
    intents = load_intents()
    train = draw_tasks(intents, size.tasks, TRAIN, TRAIN_SEEDS)
    held = draw_tasks(intents, size.held_out, HELD_OUT, HELD_OUT_SEEDS)
    launches = asyncio.run(list_servers(policy, ledger, run_date, TRAIN_SEEDS[0], tell))
    real = list_real({name: one.contracts for name, one in launches.items()})
    endpoints = make_pool(real, size)
    tell(f"{len(launches)} servers, {len(real)} real endpoints, {len(endpoints)} in all")
    stage = retrieve_tasks([*train, *held], endpoints)
    late = [item.id for item in (*train[len(train) // 2 :], *held)]
    candidates = {task.id: (*task.candidates, *task.curated) for task in stage.table.tasks}
    wishes = list_wishes([*train, *held], candidates, stage.table.endpoints, late)
    tell(f"{len(wishes)} pairs of a task and a candidate")
    made = asyncio.run(execute_all(wishes, launches, policy, tell, size.seed))
    stage.table.outcomes.update(made)
    return stage


def make_pool(real: Sequence[ToolEndpoint], size: TableSize) -> list[ToolEndpoint]:
    """Real endpoints, variants and newcomers, with what changes later."""
    variants = make_variants(real, size.variants, size.seed)
    newcomers = make_newcomers(real, NEWCOMERS, size.seed)
    return change_endpoints([*real, *variants, *newcomers], size.seed)


def retrieve_tasks(tasks: Sequence[BenchTask], endpoints: Sequence[ToolEndpoint]) -> NoiseStage:
    """The tasks with their candidates; no outcome yet."""
    queries = embed_requests([task.query for task in tasks])
    vectors = embed_endpoints(endpoints, BEFORE), embed_endpoints(endpoints, AFTER)
    facts = choose_candidates(tasks, endpoints, queries, vectors[BEFORE])
    return NoiseStage(
        OutcomeTable(facts, {endpoint.id: endpoint for endpoint in endpoints}), queries, vectors
    )


def save_stage(stage: NoiseStage, folder: Path) -> None:
    """The table and its vectors."""
    stage.table.save(folder)
    before, after = stage.vectors
    np.savez_compressed(folder / VECTORS, queries=stage.queries, before=before, after=after)


def load_stage(folder: Path) -> NoiseStage:
    """What `save_stage` left in a folder. Raises OSError and ValueError."""
    with np.load(folder / VECTORS, allow_pickle=False) as held:
        vectors = held["before"], held["after"]
        return NoiseStage(load_table(folder), held["queries"], vectors)
