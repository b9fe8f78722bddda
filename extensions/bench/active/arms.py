"""The arms of a comparison: a model that is shown every tool, and one that asks for them.

retrieval        no model: the user's last words go to the router, its first hit counts
standard         every tool of the pool among the functions; the first call counts
active           MCP-Zero: the model asks, the router answers, until it calls
active_example   the same with one worked example in the prompt
"""

import asyncio
import json
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

from extensions.bench.active.cases import ACTIVE_EXAMPLE, RETRIEVAL, STANDARD, Case
from serving.agent_loop import DATA, AgentLimits, AgentModel, AgentRun, ReadCalls, run_agent
from serving.discovery.functions import OfferedFunction, write_functions
from serving.discovery.session import estimate_tokens
from serving.ranking.query import ToolQuery
from serving.router import Router
from warehouse.ledger.attempts import BudgetExceeded
from warehouse.llm.roles import LLMError

SYSTEM = (
    "You carry out the user's request with the tools you are given. Call the one tool that the next"
    f" step needs. If none fits, say so. {DATA}"
)
Row = dict[str, Any]
Pools = Callable[[Case], Router]


@dataclass(frozen=True)
class Contest:
    """Who is asked, and how. at_once: cases under way together."""

    speaker: AgentModel
    read_calls: ReadCalls
    limits: AgentLimits = field(default_factory=AgentLimits)
    strategy: str = "ours"
    at_once: int = 1


async def run_arms(
    cases: Sequence[Case],
    arms: Sequence[str],
    pools: Pools,
    contest: Contest,
    on_done: Callable[[int, int], None] | None = None,
) -> list[Row]:
    """A row for every case and arm, in order. Whatever a model or endpoint does is a row."""
    turns, done = asyncio.Semaphore(contest.at_once), 0

    async def one(case: Case, arm: str) -> Row:
        nonlocal done
        async with turns:
            row = await _run_arm(case, arm, pools(case), contest)
        done += 1
        if on_done:
            on_done(done, len(cases) * len(arms))
        return row

    return list(await asyncio.gather(*(one(case, arm) for case in cases for arm in arms)))


async def _run_arm(case: Case, arm: str, router: Router, contest: Contest) -> Row:
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


def _run_retrieval(case: Case, router: Router, right: frozenset[str], contest: Contest) -> Row:
    hits = router.find(ToolQuery(query=case.request, k=1, strategy=contest.strategy)).hits
    found = bool(hits) and hits[0].tool_id in right
    return _make_row(found, found, "answered", tool_tokens=0)


async def _run_standard(case: Case, router: Router, right: frozenset[str], contest: Contest) -> Row:
    index = router.index
    places = ((name, index.place_of(name)) for name in case.pool)
    offered = write_functions((name, index.contract(at)) for name, at in places if at is not None)
    functions = [one.function for one in offered.values()]
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


def _describe_active(made: AgentRun, right: frozenset[str]) -> Row:
    """first: whether the router's first hit for the model's first request is right (MCP-Zero's
    measure); right: whether the first tool that the model called is."""
    answers = [answer for one in made.rounds for answer in one.answers]
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
        shown=any(hit.tool_id in right for one in made.rounds for hit in one.hits),
    )


def _make_row(right: bool, first: bool | None, ended: str, **spent: Any) -> Row:
    nothing = {"turns": 0, "searches": 0, "prompt_tokens": 0, "completion_tokens": 0, "shown": None}
    return {"right": right, "first": first, "ended": ended, **nothing, **spent}
