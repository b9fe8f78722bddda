"""A needle among tools: a request for one tool, in nested pools from one tool to all."""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest
from pathlib import Path

from assets.contracts.tool_id import ToolId
from assets.synthesis.tables import ONE_CALL
from extensions.bench.benchmark_items import (
    BenchmarkPlan,
    BenchmarkSet,
    judge_first_tool,
    make_item,
)
from serving.adhoc import read_source
from serving.index.model import IndexSource
from training.evaluation.caller_items import CallerItem
from training.releases.index_source import build_published_source
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.errors import UnusableInput
from warehouse.home import require_home
from warehouse.json_types import Contract
from warehouse.store import Warehouse
from warehouse.user_files import read_json_lines


def read_needles(plan: BenchmarkPlan) -> BenchmarkSet:
    """Options: requests (a file of rows `tool_id` and `instruction`, beside --data, a file of
    servers), sizes (pool sizes, 8), positions (3), seeds (1). Without --data the needles are the
    accepted requests of the home's test splits. Raises UnusableInput."""
    requests = plan.options.get("requests")
    if (plan.data is None) != (requests is None):
        raise UnusableInput(
            "needle: give --data SERVERS.jsonl and --option requests=FILE together, or neither"
        )
    if plan.data is None or requests is None:
        assert plan.warehouse is not None
        require_home(plan.warehouse.home)
        source, asked = read_home(plan.warehouse)
        if not source.rows or not asked:
            raise UnusableInput(
                f"{plan.warehouse.home}: {len(source.rows)} clear tools and {len(asked)} accepted"
                " requests in the test splits of its training set; run `make run` first, or give"
                " --data SERVERS.jsonl --option requests=FILE"
            )
        files = ()
    else:
        source, asked = read_files(plan.data, Path(requests))
        files = (plan.data, Path(requests))
    seeds = range(plan.seed, plan.seed + plan.read_number("seeds", 1))
    grid = NeedlePlan(plan.read_number("sizes", 8), plan.read_number("positions", 3), tuple(seeds))
    items, other = make_needles(source, asked, grid)
    left_out = {"other_tools": other} if other else {}
    return BenchmarkSet(
        "needle", items, judge_first_tool, ("tool_ok",), files, left_out, narrows=False,
        servers=source.servers,
    )  # fmt: skip


@dataclass(frozen=True)
class NeedlePlan:
    """sizes: how many pool sizes. positions: places of the needle in a pool, from first to last.
    seeds: a drawing of pools and needles each."""

    sizes: int = 8
    positions: int = 3
    seeds: tuple[int, ...] = (0,)


def space_sizes(most: int, count: int) -> list[int]:
    """`count` sizes from 1 to `most`, log-spaced, each once."""
    if count < 2 or most < 2:
        return [most]
    return sorted({round(most ** (at / (count - 1))) for at in range(count)})


def make_needles(
    source: IndexSource, requests: Sequence[Mapping[str, str]], plan: NeedlePlan | None = None
) -> tuple[list[CallerItem], int]:
    """(the grid over the tools of a source, how many requests are for other tools).

    requests: {tool_id, instruction}, written for a tool and never shown to what is measured. Pools
    of one seed are nested; same-named tools of other servers stay in. Raises UnusableInput where no
    request is for a tool of the source.
    """
    plan = plan or NeedlePlan()
    tools = list(dict.fromkeys(str(ToolId.of_row(row)) for row in source.rows if row["contract"]))
    asked = [request for request in requests if request["tool_id"] in set(tools)]
    if not asked:
        raise UnusableInput(
            f"{len(requests)} requests, none for one of {len(tools)} tools; expected rows with"
            " `instruction` and the `tool_id` (server::tool) that it was written for"
        )
    contracts = {
        name: {**json.loads(row["contract"]), "name": name}
        for row in source.rows
        if row["contract"] and (name := str(ToolId.of_row(row)))
    }
    items = []
    for seed in plan.seeds:
        drawn = random.Random(seed)
        needed = dict.fromkeys(item["tool_id"] for item in drawn.sample(asked, len(asked)))
        others = [name for name in drawn.sample(tools, len(tools)) if name not in needed]
        # A needle first, and every second one while there are any: small pools hold several.
        mixed = zip_longest(needed, others)
        order = [name for pair in mixed for name in pair if name is not None]
        for size in space_sizes(len(tools), plan.sizes):
            items += _make_cell(order[:size], contracts, asked, plan, seed, drawn)
    return items, len(requests) - len(asked)


def _make_cell(
    pool: Sequence[str],
    contracts: Mapping[str, Contract],
    asked: Sequence[Mapping[str, str]],
    plan: NeedlePlan,
    seed: int,
    drawn: random.Random,
) -> list[CallerItem]:
    inside = set(pool)
    here = [item for item in asked if item["tool_id"] in inside]
    size = len(pool)
    places = sorted(
        {round(at * (size - 1) / max(plan.positions - 1, 1)) for at in range(plan.positions)}
    )
    items = []
    for place in places:
        needle = drawn.choice(here)
        name, text = needle["tool_id"], needle["instruction"]
        others = [other for other in pool if other != name]
        tools = [contracts[shown] for shown in (*others[:place], name, *others[place:])]
        item_id, group = f"needle:{seed}:{size}:{place}", ToolId.parse(name).server_id
        calls = [{"name": name, "arguments": {}}]
        items.append(make_item(item_id, f"size {size}", group, text, tools, calls))
    return items


def read_home(warehouse: Warehouse) -> tuple[IndexSource, list[dict[str, str]]]:
    """(source, {tool_id, instruction} of the accepted requests for one call in the test splits)."""
    source, _ = build_published_source(warehouse)
    rows = warehouse.tables.read(TRAINING_SET).to_dicts()
    asked = [
        {"tool_id": str(ToolId.of_row(row)), "instruction": row["instruction"]}
        for row in rows
        if row["split"] != TRAIN and (row.get("task") or ONE_CALL[0]) in ONE_CALL
    ]
    return source, asked


def read_files(servers: Path, requests: Path) -> tuple[IndexSource, Sequence[dict[str, str]]]:
    """The same of a file of servers, and one of rows {tool_id, instruction}. Raises
    UnusableInput."""
    source, _ = read_source(servers)
    asked = []
    for number, row in read_json_lines(requests):
        texts = {name: row.get(name) for name in ("tool_id", "instruction")}
        if not all(isinstance(text, str) and text.strip() for text in texts.values()):
            raise UnusableInput(
                f"{requests}, line {number}: expected texts in `tool_id` (server::tool) and"
                " `instruction`"
            )
        asked.append({name: str(text) for name, text in texts.items()})
    return source, asked
