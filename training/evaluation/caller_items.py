"""How many items of which sort callers are asked."""

from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from training.caller.shipped import KEPT
from training.evaluation.caller_table import (
    ASK_BACK,
    NOT_OFFERED,
    PERTURBATIONS,
    RENAMED_HERE,
    UNPERTURBED,
)
from training.evaluation.phantom import DeadRequest
from training.evaluation.renaming import rename_one_tool
from training.prompts.render import ChatTurn, list_turns, read_calls, read_messages
from training.sets.pool import HARD, RANDOM, ToolPool, draw_candidates, select_split_pool
from training.sets.split import TEST_SPLITS, UNSEEN_SERVER
from training.settings import EvaluationOptions
from warehouse.extensions import PERTURBATIONS as PERTURBATIONS_GROUP
from warehouse.extensions import load_extensions
from warehouse.json_types import Row


@dataclass(frozen=True)
class TestPlan:
    """How many items of each sort. The defaults are a run's.

    `per_split` items a split at the smallest number of candidates, `per_large` at each larger one;
    `perturbations` of each kind of change; `irrelevance` requests whose right tool is left out, and
    as many no-tool rows at most; `phantom` requests of each kind.
    """

    __test__ = False  # not a test case, whatever its name

    splits: tuple[str, ...] = TEST_SPLITS
    candidates: tuple[int, ...] = (10, 100)
    distractors: tuple[str, ...] = (RANDOM, HARD)
    per_split: int = EvaluationOptions.items
    per_large: int = 8
    perturbations: int = 20
    irrelevance: int = 30
    phantom: int = 30
    fresh: int = 32  # requests of contracts that the caller in service has not learnt
    seeds: tuple[int, ...] = (0,)

    def limit_items(self, n: int) -> "TestPlan":
        """`n` items a split, and no more of any other sort."""
        sorts = ("per_large", "perturbations", "irrelevance", "phantom")
        return replace(self, per_split=n, **{name: min(getattr(self, name), n) for name in sorts})


FRESH = "fresh"  # the cell of new and changed contracts
NO_TOOL = "no_tool"


@dataclass(frozen=True)
class CallerItem:
    """One question with its right answer: `expected` calls, [] where none is right. `row`: the
    training-set row it was made of; `dead`: a name the tool no longer has; `before`: the
    conversation that is to be gone on with, () where the request stands alone."""

    item_id: str
    split: str
    task: str
    candidates: int
    distractors: str
    seed: int
    row: Row
    tools: list[dict[str, Any]]
    expected: list[dict[str, Any]]
    perturbation: str = UNPERTURBED
    phantom: str = ""
    dead: str = ""
    before: tuple[Any, ...] = field(default=(), repr=False)

    @property
    def instruction(self) -> str:
        return str(self.row["instruction"])


def make_items(
    rows: Sequence[Row],
    pool: Mapping[str, Any],
    plan: TestPlan | None = None,
    phantom: Sequence[DeadRequest] = (),
) -> list[CallerItem]:
    """All items of a plan over the rows of a training set. `pool`: as `offers.load_pool` gives it;
    `phantom`: requests whose tool is gone or renamed. The same rows make the same items."""
    plan = plan or TestPlan()
    split_pool = select_split_pool(pool, TEST_SPLITS[0])
    rows_of = {
        split: _interleave_tools(row for row in rows if row["split"] == split)
        for split in plan.splits
    }
    base = [item for seed in plan.seeds for item in _make_cells(rows_of, split_pool, plan, seed)]
    item_of = {item.item_id: item for item in base}
    for item in (
        *_make_perturbed_items(base, plan),
        *_make_renamed_items(base, plan),
        *_make_irrelevant_items(rows_of, split_pool, plan),
        *_make_asking_items(rows_of, split_pool, plan),
        *_make_phantom_items(phantom, split_pool, plan),
    ):
        item_of.setdefault(item.item_id, item)
    return list(item_of.values())


def make_fresh_items(
    rows: Sequence[Row], pool: Mapping[str, Any], plan: TestPlan, fresh: Collection[str]
) -> list[CallerItem]:
    """A cell of held-out requests of new and changed contracts, by digest. Only of servers that
    are learnt from: no update can gain on the others."""
    split_pool, n = select_split_pool(pool, TEST_SPLITS[0]), min(plan.candidates)
    splits = set(plan.splits) - {UNSEEN_SERVER}
    fresh_rows = [row for row in rows if row["split"] in splits and _is_served(row)]
    chosen = _interleave_tools(row for row in fresh_rows if row["contract_digest"] in fresh)
    return [
        _make_item(row, split_pool, row["split"], n, HARD, plan.seeds[0], named=FRESH)
        for row in chosen[: plan.fresh]
    ]


def make_kept_items(rows: Sequence[Row]) -> list[CallerItem]:
    """Requests that ship, each with its tool alone. Templates of a home hold nothing of how people
    write: an update that gained on them made these .52 nats less likely [.12, .95]."""
    items = []
    for row in rows:
        names = {"tool": row["contract"]["name"], "text_digest": row["contract_digest"]}
        asked = {**row, **names, "server_id": KEPT, "kind": KEPT}
        facts = f"{row['pair_id']}|{KEPT}", UNSEEN_SERVER, "single", 1, KEPT, 0, asked
        items.append(CallerItem(*facts, [row["contract"]], read_calls(row)))
    return items


def _make_cells(
    rows_of: Mapping[str, Sequence[Row]], pool: ToolPool, plan: TestPlan, seed: int
) -> Iterator[CallerItem]:
    least, most = min(plan.candidates), len({pool[name]["name"] for name in pool})
    before = 0
    for n in sorted(plan.candidates):
        if before >= most:  # a larger number would offer the same tools again
            return
        before = n
        limit = plan.per_split if n == least else plan.per_large
        for split, rows in rows_of.items():
            turns = [(row, turn) for row in rows for turn in list_turns(row) if turn.calls]
            for distractors in plan.distractors:
                for row, turn in turns[:limit]:
                    yield _make_item(row, pool, split, n, distractors, seed, turn=turn)


def _make_item(
    row: Row,
    pool: ToolPool,
    split: str,
    n: int,
    distractors: str,
    seed: int,
    *,
    named: str = "",
    turn: ChatTurn | None = None,
) -> CallerItem:
    """`turn`: the one that is asked for; None: the answer of a row that has only one."""
    tools = draw_candidates(row, pool, n, distractors=distractors, seed=seed)
    kind = named or distractors
    name = _make_item_name(row, split, n, kind, seed)
    offered = [dict(tool) for tool in tools]
    turn = turn or ChatTurn((), read_calls(row))
    if turn.before:
        name += f"|turn{len(turn.before)}"
    task = str(row.get("task") or ("single" if read_calls(row) else NO_TOOL))
    return CallerItem(
        name, split, task, n, kind, seed, row, offered, turn.calls, before=turn.before
    )


def _make_perturbed_items(base: Sequence[CallerItem], plan: TestPlan) -> Iterator[CallerItem]:
    """The first cells with changed schemas, by the extensions that know how to change them."""
    for perturb_tools in load_extensions(PERTURBATIONS_GROUP).values():
        for kind in PERTURBATIONS:
            count = 0
            for item in _select_first_cells(base, plan):
                if count == plan.perturbations:
                    break
                changed = perturb_tools(kind, item.tools, item.expected, item.seed)
                if {call["name"] for call in changed.expected} <= changed.changed:
                    count += 1
                    yield replace(
                        item,
                        item_id=f"{item.item_id}|{kind}",
                        tools=changed.tools,
                        expected=changed.expected,
                        perturbation=kind,
                    )


def _make_renamed_items(base: Sequence[CallerItem], plan: TestPlan) -> Iterator[CallerItem]:
    """The right tool under another name, as after an update: is the old one called?"""
    singles = [item for item in _select_first_cells(base, plan) if len(item.expected) == 1]
    for item in singles[: plan.phantom]:
        old = item.expected[0]["name"]
        changed = rename_one_tool(item.tools, item.expected, old, item.seed)
        yield replace(
            item,
            item_id=f"{item.item_id}|{RENAMED_HERE}",
            tools=changed.tools,
            expected=changed.expected,
            phantom=RENAMED_HERE,
            dead=old,
        )


def _make_irrelevant_items(
    rows_of: Mapping[str, Sequence[Row]], pool: ToolPool, plan: TestPlan
) -> Iterator[CallerItem]:
    """Requests that no tool serves, and requests whose right tool is not offered."""
    n, seed = min(plan.candidates), plan.seeds[0]
    every = _interleave_lists(list(rows_of.values()))
    without = [r for r in every if not read_calls(r) and not read_messages(r)][: plan.irrelevance]
    served = [row for row in every if _is_served(row)][: plan.irrelevance]
    for place, row in enumerate(without):
        distractors = plan.distractors[place % len(plan.distractors)]
        yield replace(_make_item(row, pool, row["split"], n, distractors, seed), task=NO_TOOL)
    for place, row in enumerate(served):
        kind = plan.distractors[place % len(plan.distractors)]
        tools = draw_candidates(row, pool, n, distractors=kind, seed=seed, gold=False)
        name = f"{_make_item_name(row, row['split'], n, kind, seed)}|{NOT_OFFERED}"
        copies = [dict(tool) for tool in tools]
        yield CallerItem(name, row["split"], NOT_OFFERED, n, kind, seed, row, copies, [])


def _make_asking_items(
    rows_of: Mapping[str, Sequence[Row]], pool: ToolPool, plan: TestPlan
) -> Iterator[CallerItem]:
    """Requests that lack a value, with the tool that needs it."""
    n, seed = min(plan.candidates), plan.seeds[0]
    every = _interleave_lists(list(rows_of.values()))
    turns = [(row, turn) for row in every for turn in list_turns(row) if turn.asks]
    for place, (row, turn) in enumerate(turns[: plan.irrelevance]):
        kind = plan.distractors[place % len(plan.distractors)]
        yield replace(_make_item(row, pool, row["split"], n, kind, seed, turn=turn), task=ASK_BACK)


def _make_phantom_items(
    phantom: Sequence[DeadRequest], pool: ToolPool, plan: TestPlan
) -> Iterator[CallerItem]:
    n, seed = min(plan.candidates), plan.seeds[0]
    counts: dict[str, int] = {}
    item_of_row = {id(item.row): item for item in phantom}
    for case in (item_of_row[id(row)] for row in _interleave_tools(item.row for item in phantom)):
        if counts.get(case.phantom, 0) >= plan.phantom:
            continue
        counts[case.phantom] = counts.get(case.phantom, 0) + 1
        item = _make_item(case.row, pool, case.row["split"], n, HARD, seed)
        tools = [tool for tool in item.tools if tool["name"] != case.dead]
        name = f"{item.item_id}|{case.phantom}"
        yield replace(item, item_id=name, tools=tools, phantom=case.phantom, dead=case.dead)


def _select_first_cells(base: Sequence[CallerItem], plan: TestPlan) -> list[CallerItem]:
    """Items of the first cell of each split, a split in turn: what changes are compared with. None
    of a conversation, which names its tools in earlier turns too."""
    n, kind, seed = min(plan.candidates), plan.distractors[0], plan.seeds[0]
    cell = (n, kind, seed)
    fit = [i for i in base if (i.candidates, i.distractors, i.seed) == cell and not i.before]
    return _interleave_lists(
        [[item for item in fit if item.split == split] for split in plan.splits]
    )


def _interleave_lists(lists: Sequence[Sequence[Any]]) -> list[Any]:
    """One of each list in turn."""
    longest = max((len(each) for each in lists), default=0)
    return [each[place] for place in range(longest) for each in lists if place < len(each)]


def _interleave_tools(rows: Any) -> list[Row]:
    """Rows by id (a digest), a tool's second pair after every tool's first."""
    by_tool: dict[tuple[str, str], list[Row]] = {}
    for row in sorted(rows, key=lambda row: row["pair_id"]):
        by_tool.setdefault((row["server_id"], row["tool"]), []).append(row)
    return _interleave_lists(list(by_tool.values()))


def _make_item_name(row: Row, split: str, n: int, distractors: str, seed: int) -> str:
    return f"{row['pair_id']}|{split}|{n}|{distractors}|{seed}"


def _is_served(row: Row) -> bool:
    """Whether a row is a request that its calls answer at once."""
    return bool(read_calls(row)) and not read_messages(row)
