"""The arms of a comparison: a model that is shown every tool, and one that asks for them.

retrieval        no model: the user's last words go to the router, its first hit counts
standard         every tool of the pool among the functions; the first call counts
active           MCP-Zero: the model asks, the router answers, until it calls
active_example   the same with one worked example in the prompt
"""

import asyncio
import json
import time
from collections import Counter, OrderedDict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import Embedder
from extensions.bench.active_cases import (
    ACTIVE_EXAMPLE,
    ARMS,
    RETRIEVAL,
    STANDARD,
    ActiveCase,
    CaseSet,
    select_source,
)
from serving.adhoc import VectorCache
from serving.agent_loop import DATA, AgentLimits, AgentModel, AgentRun, ReadCalls, run_agent
from serving.discovery.functions import OfferedFunction, write_functions
from serving.discovery.session import estimate_tokens
from serving.index.build import build_index
from serving.index.folder import load_index
from serving.ranking.query import ToolQuery
from serving.router import Router
from training.evaluation.metrics import MetricFigure, bootstrap_difference, bootstrap_mean
from training.figures import format_interval, format_table
from warehouse.json_types import Row
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.roles import LLMError
from warehouse.progress import Progress, SilentProgress
from warehouse.sanitize.markdown import Markdown
from warehouse.storage.files import write_atomically

RULES = {
    "right": "the first tool that was called is the expected one, or one that says the same; of"
    " retrieval, the router's first hit for the user's last words",
    "first": "the router's first hit for the model's first request is right (MCP-Zero's measure)",
    "tool_tokens": "what showing tools puts into the prompt, once, by our estimate",
    "failed": "no answer came (an endpoint's error, a prompt beyond the context): counts as wrong",
}
_FEW = 5
_ANSWERED = ("planned", "answered", "empty", "turn_limit")


def summarise_arms(rows: Sequence[Row], cell: Sequence[str]) -> dict[str, Any]:
    """Per cell (the values of these fields; "all" for every row) and arm: figures with 95%
    intervals that resample whole groups, and the paired difference of each two arms."""
    cells = {"all": list(rows)}
    for row in rows:
        named = ", ".join(f"{name} {row[name]}" for name in cell)
        cells.setdefault(named, []).append(row)
    return {
        "groups": len({row["group"] for row in rows}),
        "cells": {name: _summarise_cell(held) for name, held in cells.items()},
        "rules": RULES,
    }


def write_page(about: Mapping[str, Any], summary: Mapping[str, Any]) -> Iterator[str]:
    """Who answered what, then the table; an interval of few groups says that it means little."""
    left = ", ".join(f"{why} {count}" for why, count in about["left_out"].items()) or "nothing"
    yield (
        f"provider={about['provider']}, model={about['model']}; {about['cases']} of"
        f" {about['of_cases']} cases of {about['set']} over {about['tools']} tools; left out:"
        f" {left}; encoder {about['embedder']}"
    )
    few = " (too few for an interval)" if summary["groups"] < _FEW else ""
    yield f"Intervals: 95%, whole groups drawn; {summary['groups']} groups{few}."
    yield ""
    yield from write_table(summary)


def write_table(summary: Mapping[str, Any]) -> list[Markdown]:
    """The lines of a Markdown table, a row for each cell and arm."""
    head = ("cell", "arm", "n", "right", "first hit right", "tool tokens", "failed")
    rows = [
        (
            name,
            arm,
            figures["right"]["n"],
            format_interval(figures["right"]),
            format_interval(figures["first"]) if figures["first"] else "",
            f"{figures['tool_tokens']:,.0f}",
            sum(figures["failed"].values()),
        )
        for name, cell in summary["cells"].items()
        for arm, figures in cell["arms"].items()
    ]
    return format_table(head, rows)


def _summarise_cell(rows: Sequence[Row]) -> dict[str, Any]:
    by_arm = {arm: {row["case_id"]: row for row in rows if row["arm"] == arm} for arm in ARMS}
    held = {arm: found for arm, found in by_arm.items() if found}
    return {
        "arms": {arm: _summarise_arm(list(found.values())) for arm, found in held.items()},
        "differences": {
            f"{second} - {first}": _compare_arms(held[second], held[first]).as_dict()
            for first, second in combinations(held, 2)
        },
    }


def _summarise_arm(rows: Sequence[Row]) -> dict[str, Any]:
    groups = [row["group"] for row in rows]
    first = [float(row["first"]) for row in rows if row["first"] is not None]
    of_first = [row["group"] for row in rows if row["first"] is not None]
    ended = Counter(row["ended"] for row in rows)
    means = ("tool_tokens", "prompt_tokens", "completion_tokens", "turns", "searches", "seconds")
    return {
        "right": bootstrap_mean([float(row["right"]) for row in rows], groups).as_dict(),
        "first": bootstrap_mean(first, of_first).as_dict() if first else None,
        **{name: round(sum(row[name] for row in rows) / len(rows), 3) for name in means},
        "ended": dict(sorted(ended.items())),
        "failed": {kind: n for kind, n in sorted(ended.items()) if kind not in _ANSWERED},
    }


def _compare_arms(better: Mapping[str, Row], worse: Mapping[str, Row]) -> MetricFigure:
    both = [name for name in better if name in worse]
    return bootstrap_difference(
        [float(better[name]["right"]) for name in both],
        [float(worse[name]["right"]) for name in both],
        [better[name]["group"] for name in both],
    )


SYSTEM = (
    "You carry out the user's request with the tools you are given. Call the one tool that the next"
    f" step needs. If none fits, say so. {DATA}"
)
ArmRow = dict[str, Any]  # of one case in one arm
Pools = Callable[[ActiveCase], Router]


@dataclass(frozen=True)
class ActiveContest:
    """Who is asked, and how. at_once: cases under way together."""

    speaker: AgentModel
    read_calls: ReadCalls
    limits: AgentLimits = field(default_factory=AgentLimits)
    strategy: str = "ours"
    at_once: int = 1


async def run_arms(
    cases: Sequence[ActiveCase],
    arms: Sequence[str],
    pools: Pools,
    contest: ActiveContest,
    on_done: Callable[[int, int], None] | None = None,
) -> list[ArmRow]:
    """A row for every case and arm, in order. Whatever a model or endpoint does is a row."""
    turns, done = asyncio.Semaphore(contest.at_once), 0

    async def one(case: ActiveCase, arm: str) -> ArmRow:
        nonlocal done
        async with turns:
            row = await _run_arm(case, arm, pools(case), contest)
        done += 1
        if on_done:
            on_done(done, len(cases) * len(arms))
        return row

    return list(await asyncio.gather(*(one(case, arm) for case in cases for arm in arms)))


async def _run_arm(case: ActiveCase, arm: str, router: Router, contest: ActiveContest) -> ArmRow:
    began = time.perf_counter()
    right = list_right(router, case.gold)
    if arm == RETRIEVAL:
        result = _run_retrieval(case, router, right, contest)
    elif arm == STANDARD:
        result = await _run_standard(case, router, right, contest)
    else:
        example = arm == ACTIVE_EXAMPLE
        made = await run_agent(
            [*map(dict, case.messages)],
            contest.speaker,
            router,
            limits=contest.limits,
            read_calls=contest.read_calls,
            example=example,
            strategy=contest.strategy,
        )
        result = _describe_active(made, right)
    facts = {"case_id": case.case_id, "arm": arm, "group": case.group, **dict(case.cell)}
    return {**facts, **result, "seconds": round(time.perf_counter() - began, 4)}


def list_right(router: Router, gold: str) -> frozenset[str]:
    """The tool ids that count: the gold one, and those that say the same."""
    index = router.index
    place = index.place_of(gold)
    if place is None:
        raise LookupError(f"{gold!r} is not in index {index.version[:12]}")
    group = index.twins[place]
    return frozenset(
        tool.tool_id for tool, of in zip(index.tools, index.twins, strict=True) if of == group
    )


def _run_retrieval(
    case: ActiveCase, router: Router, right: frozenset[str], contest: ActiveContest
) -> ArmRow:
    hits = router.find(ToolQuery(query=case.request, k=1, strategy=contest.strategy)).hits
    found = bool(hits) and hits[0].tool_id in right
    return _make_row(found, found, "answered", tool_tokens=0)


async def _run_standard(
    case: ActiveCase, router: Router, right: frozenset[str], contest: ActiveContest
) -> ArmRow:
    index = router.index
    places = ((name, index.place_of(name)) for name in case.pool)
    offered = write_functions((name, index.contract(at)) for name, at in places if at is not None)
    functions = [item.function for item in offered.values()]
    messages = [{"role": "system", "content": SYSTEM}, *map(dict, case.messages)]
    tokens = estimate_tokens(json.dumps(functions, ensure_ascii=False))
    try:
        turn = await contest.speaker.say(messages, functions)
    except LLMError as error:
        return _make_row(False, None, error.kind, tool_tokens=tokens, turns=1)
    except BudgetExceeded:
        return _make_row(False, None, "budget", tool_tokens=tokens, turns=1)
    calls = [name for name, _ in turn.calls] or [name for name, _ in contest.read_calls(turn.text)]
    chosen = _name_tool(calls[0], offered) if calls else None
    ended = "planned" if calls else "answered" if turn.text.strip() else "empty"
    spent = {"prompt_tokens": turn.prompt_tokens, "completion_tokens": turn.completion_tokens}
    return _make_row(chosen in right, None, ended, tool_tokens=tokens, turns=1, **spent)


def _name_tool(name: str, offered: dict[str, OfferedFunction]) -> str:
    return offered[name].tool_id if name in offered else name


def _describe_active(made: AgentRun, right: frozenset[str]) -> ArmRow:
    """first: whether the router's first hit for the model's first request is right (MCP-Zero's
    measure); right: whether the first tool that the model called is."""
    answers = [answer for item in made.rounds for answer in item.answers]
    hits = answers[0].hits if answers else []
    known = [call.tool_id for call in made.calls if call.tool_id]
    return _make_row(
        bool(known) and known[0] in right,
        bool(hits) and hits[0].tool_id in right,
        made.ended,
        tool_tokens=made.tool_tokens,
        turns=made.turns,
        searches=len(made.rounds),
        prompt_tokens=made.prompt_tokens,
        completion_tokens=made.completion_tokens,
        shown=any(hit.tool_id in right for item in made.rounds for hit in item.hits),
    )


def _make_row(right: bool, first: bool | None, ended: str, **spent: Any) -> ArmRow:
    nothing = {"turns": 0, "searches": 0, "prompt_tokens": 0, "completion_tokens": 0, "shown": None}
    return {"right": right, "first": first, "ended": ended, **nothing, **spent}


_OPEN = 4  # routers that are held at once: neighbouring cases share one


class RouterPools:
    """Case -> the router of an index of its pool alone, under `place`. What is known of a pool's
    tools (means, rare words) is then what a user of that pool would have."""

    def __init__(
        self, place: Path, held: CaseSet, encoder: Embedder, progress: Progress | None = None
    ) -> None:
        self._place, self._held, self._encoder = place, held, encoder
        self._vectors = VectorCache(place, encoder, progress or SilentProgress())
        self._routers: OrderedDict[frozenset[str], Router] = OrderedDict()

    def __call__(self, case: ActiveCase) -> Router:
        pool = frozenset(case.pool)
        if pool not in self._routers:
            source = select_source(self._held.source, pool)
            version = build_index(self._place, source, self._vectors, embedder=self._encoder.id)
            self._routers[pool] = Router(load_index(self._place, version), self._encoder)
            while len(self._routers) > _OPEN:
                self._routers.popitem(last=False)
        self._routers.move_to_end(pool)
        return self._routers[pool]


@dataclass(frozen=True)
class ArmMeasurement:
    """Every row, the summary, and of whom and what it speaks."""

    facts: dict[str, Any]
    rows: list[ArmRow]
    summary: dict[str, Any]

    def as_dict(self) -> dict[str, Any]:
        return {**self.facts, **self.summary}


async def evaluate_arms(
    held: CaseSet,
    arms: Sequence[str],
    speaker: AgentModel,
    read_calls: ReadCalls,
    encoder: Embedder,
    place: Path,
    *,
    facts: Mapping[str, Any],
    limit: int | None = None,
    at_once: int = 1,
    progress: Progress | None = None,
) -> ArmMeasurement:
    """place: where the indexes of the pools are kept, so that a second model builds none."""
    reporter = progress or SilentProgress()
    cases = sample_cases(held.cases, limit)
    pools = RouterPools(place, held, encoder, reporter)
    contest = ActiveContest(speaker, read_calls, at_once=at_once)
    rows = await run_arms(
        cases, arms, pools, contest, lambda n, of: reporter.update("cases", n, of)
    )
    cell = [name for name, _ in cases[0].cell if name != "position"]
    about = {
        "set": held.name,
        **facts,
        "tools": len({name for case in cases for name in case.pool}),
        "cases": len(cases),
        "of_cases": len(held.cases),
        "left_out": dict(held.left_out),
        "embedder": encoder.id,
    }
    return ArmMeasurement(about, rows, summarise_arms(rows, cell))


def sample_cases(cases: Sequence[ActiveCase], most: int | None) -> list[ActiveCase]:
    """At most so many, evenly from all cells in turn."""
    if most is None or len(cases) <= most:
        return list(cases)
    cells: dict[Any, list[ActiveCase]] = {}
    for case in cases:
        cells.setdefault(case.cell, []).append(case)
    share, more = divmod(most, len(cells))
    results = []
    for at, of in enumerate(cells.values()):
        wanted = min(len(of), share + (at < more))
        results += [of[place * len(of) // wanted] for place in range(wanted)] if wanted else []
    return results


def write_measured(folder: Path, made: ArmMeasurement) -> list[Path]:
    """`items.jsonl` (a row a case and arm), `summary.json`, `report.md`."""
    folder.mkdir(parents=True, exist_ok=True)
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in made.rows)
    summary = json.dumps(made.as_dict(), indent=1, ensure_ascii=False)
    page = "\n".join(write_page(made.facts, made.summary)) + "\n"
    parts = {"items.jsonl": lines, "summary.json": summary, "report.md": page}
    for name, text in parts.items():
        write_atomically(folder / name, text.encode("utf-8", "replace"))
    return [folder / name for name in parts]
