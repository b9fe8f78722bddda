"""Needle grids: one tool to be found among ever more, at every place among them.

MCP-Zero (arXiv 2506.01056) asks with the tool's own description, which measures echo; here it is
asked with a request that was written for the tool. Sizes are log-spaced from 1 to the whole pool.
"""

import random
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import zip_longest

from assets.contracts.tool_id import ToolId
from extensions.bench.active.cases import Case, CaseSet
from serving.index.model import IndexSource
from warehouse.errors import UnusableInput

NAME = "needle"


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
) -> CaseSet:
    """The grid over the tools of a source. requests: {tool_id, instruction}, written for a tool and
    never shown to what is measured. Pools of one seed are nested; same-named tools of other servers
    stay in. Raises UnusableInput where no request is for a tool of the source."""
    plan = plan or NeedlePlan()
    tools = list(dict.fromkeys(str(ToolId.of_row(row)) for row in source.rows))
    asked = [request for request in requests if request["tool_id"] in set(tools)]
    if not asked:
        raise UnusableInput(
            f"{len(requests)} requests, none for one of {len(tools)} tools; expected rows with"
            " `instruction` and the `tool_id` (server::tool) that it was written for"
        )
    cases = []
    for seed in plan.seeds:
        drawn = random.Random(seed)
        needed = dict.fromkeys(one["tool_id"] for one in drawn.sample(asked, len(asked)))
        others = [name for name in drawn.sample(tools, len(tools)) if name not in needed]
        # A needle first, and every second one while there are any: small pools hold several.
        mixed = zip_longest(needed, others)
        order = [name for pair in mixed for name in pair if name is not None]
        for size in space_sizes(len(tools), plan.sizes):
            cases += _make_cell(order[:size], asked, plan, seed, drawn)
    return CaseSet(NAME, source, cases, {"other_tools": len(requests) - len(asked)})


def _make_cell(
    pool: Sequence[str],
    asked: Sequence[Mapping[str, str]],
    plan: NeedlePlan,
    seed: int,
    drawn: random.Random,
) -> list[Case]:
    inside = set(pool)
    here = [one for one in asked if one["tool_id"] in inside]
    size = len(pool)
    places = sorted(
        {round(at * (size - 1) / max(plan.positions - 1, 1)) for at in range(plan.positions)}
    )
    made = []
    for place in places:
        one = drawn.choice(here)
        others = [name for name in pool if name != one["tool_id"]]
        shown = (*others[:place], one["tool_id"], *others[place:])
        made.append(
            Case(
                f"needle:{seed}:{size}:{place}",
                ({"role": "user", "content": one["instruction"]},),
                one["tool_id"],
                shown,
                (("size", size), ("position", place)),
                ToolId.parse(one["tool_id"]).server_id,
            )
        )
    return made
