"""Executes tasks with their candidates: each call once, over MCP, in the first state of a world."""

import asyncio
import time
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from assets.outcomes.worlds.catalogue import find_world
from assets.outcomes.worlds.session import (
    OpenWorld,
    WorldSession,
    join_texts,
    open_session,
    open_world,
)
from assets.outcomes.worlds.task import Task, TaskCall
from assets.outcomes.worlds.tree import WorldFailed
from assets.servers.calls.caller import ToolCaller
from assets.servers.deploy.policy import DeployPolicy
from benchmarks.outcomes.noise.endpoints import AFTER, ToolEndpoint, load_sources
from benchmarks.outcomes.noise.intents import HELD_OUT, BenchTask
from benchmarks.outcomes.noise.proxy import ProxyAnswer, ProxyPool
from benchmarks.outcomes.noise.table import NO_CALL, TableCall
from warehouse.ledger.ledger import Ledger

AT_ONCE = 3  # servers at work
KEPT = 400  # characters of an answer
TIMEOUT_S = 20.0
Outcomes = dict[tuple[str, str, int], TableCall]


@dataclass(frozen=True)
class CallWish:
    """A call that the table needs."""

    task: BenchTask
    endpoint: ToolEndpoint
    phase: int


@dataclass(frozen=True)
class ListedServer:
    """A server that was listed: how it starts, and its tools by name."""

    recipe: Mapping[str, Any]
    contracts: Mapping[str, Mapping[str, Any]]


async def list_servers(
    policy: DeployPolicy, ledger: Ledger, run_date: str, seed: int, tell: Callable[[str], None]
) -> dict[str, ListedServer]:
    """Every real server that can be had here, listed once in its world; others are told of."""
    places, found = asyncio.Semaphore(AT_ONCE), dict[str, ListedServer]()

    async def list_one(server: str, world_name: str) -> None:
        world = find_world(world_name)
        async with places:
            try:
                with _make_place(policy) as place, open_world(world, seed, Path(place)) as opened:
                    fit = world.find_fit(server)
                    async with open_session(opened, fit, policy, ledger, run_date) as session:
                        recipe = session.make_caller()._recipes(server)
                        assert recipe is not None
                        found[server] = ListedServer(recipe, dict(session.contracts))
            except WorldFailed as error:
                tell(f"{server}: unavailable: {error}")

    await asyncio.gather(*(list_one(source.id, source.world) for source in load_sources()))
    return {source.id: found[source.id] for source in load_sources() if source.id in found}


async def execute_all(
    wishes: Sequence[CallWish],
    launches: Mapping[str, ListedServer],
    policy: DeployPolicy,
    tell: Callable[[str], None],
    seed: int,
) -> Outcomes:
    """What each wish came to; a server in a world of one seed is started once for all of its."""
    groups: dict[tuple[str, int], list[CallWish]] = defaultdict(list)
    result: Outcomes = {}
    for wish in wishes:
        if wish.endpoint.write_call(wish.task.slots, wish.phase) is None:
            result[wish.task.id, wish.endpoint.id, wish.phase] = TableCall(False, NO_CALL)
        elif wish.endpoint.source in launches:
            world = next(
                source.world for source in load_sources() if source.id == wish.endpoint.source
            )
            if world == wish.task.world:
                groups[wish.endpoint.source, wish.task.seed].append(wish)
            else:  # it sees its own world only: what is asked for is not there
                result[wish.task.id, wish.endpoint.id, wish.phase] = TableCall(False, NO_CALL)
    places = asyncio.Semaphore(AT_ONCE)

    async def execute_group(server: str, world_seed: int, own: list[CallWish]) -> None:
        async with places:
            began = time.perf_counter()
            runner = WorldRunner(
                launches[server], server, own[0].task.world, world_seed, policy, seed
            )
            result.update(await runner.run(own))
            took = time.perf_counter() - began
            tell(f"{server} in {own[0].task.world} {world_seed}: {len(own)} calls, {took:.0f} s")

    await asyncio.gather(*(execute_group(*key, own) for key, own in sorted(groups.items())))
    return result


@dataclass(frozen=True)
class WorldRunner:
    """One server in one world of one seed."""

    launch: ListedServer
    server: str
    world: str
    world_seed: int
    policy: DeployPolicy
    seed: int

    async def run(self, wishes: Sequence[CallWish]) -> Outcomes:
        result: Outcomes = {}
        with (
            _make_place(self.policy) as place,
            open_world(find_world(self.world), self.world_seed, Path(place)) as opened,
        ):
            first = opened.read_facts()
            async with self._open(opened) as (session, proxies):
                for wish in wishes:
                    made = await self._run_wish(wish, session, proxies, opened, first)
                    result[wish.task.id, wish.endpoint.id, wish.phase] = made
        return result

    @asynccontextmanager
    async def _open(self, opened: OpenWorld) -> AsyncIterator[tuple[WorldSession, ProxyPool]]:
        grants = {**self.policy.grants, self.server: opened.grant}
        granted = replace(self.policy, grants=grants, twice=False)
        recipes = {self.server: self.launch.recipe}
        world_session = WorldSession(
            self.server, self.launch.contracts, lambda: ToolCaller(recipes, granted)
        )

        async def forward(tool: str, arguments: dict[str, Any]) -> Any:
            return (await world_session.run_calls([TaskCall(tool, arguments)], TIMEOUT_S))[0]

        async with AsyncExitStack() as stack:
            stack.push_async_callback(world_session.close)
            yield world_session, await stack.enter_async_context(ProxyPool(forward))

    async def _run_wish(
        self,
        wish: CallWish,
        session: WorldSession,
        proxies: ProxyPool,
        opened: OpenWorld,
        first: Any,
    ) -> TableCall:
        endpoint, phase = wish.endpoint, wish.phase
        arguments = endpoint.write_call(wish.task.slots, phase)
        assert arguments is not None
        if endpoint.direct and endpoint.faults[phase] is None and not endpoint.renames:
            [result] = await session.run_calls([TaskCall(endpoint.base, arguments)], TIMEOUT_S)
            answer = ProxyAnswer(tuple(join_texts([result])), result.status, result.seconds)
        else:
            draw = Random(f"{self.seed}/{wish.task.id}/{endpoint.id}/{phase}")
            answer = await proxies.call(endpoint, phase, arguments, draw)
        try:
            facts = opened.read_facts()
        except WorldFailed:
            facts = None
        success = judge_answer(wish.task.check, answer, facts)
        if facts != first:
            opened.reset()
        kept = " ".join(answer.texts)[:KEPT] if wish.task.split == HELD_OUT else ""
        return TableCall(success, answer.kind, round(answer.seconds, 4), kept)


def judge_answer(check: Task, answer: ProxyAnswer, facts: Mapping[str, Any] | None) -> bool:
    """Whether a call did what was asked for: its answer is no error and holds the texts, and the
    state is the one expected."""
    if answer.kind != "ok" or facts is None:
        return False
    return check.holds_answers(answer.texts) and facts == check.expected


def list_wishes(
    tasks: Sequence[BenchTask],
    candidates: Mapping[str, Sequence[str]],
    endpoints: Mapping[str, ToolEndpoint],
    late: Sequence[str],
) -> list[CallWish]:
    """Each task with its candidates; with those that change, in the second phase too, where the
    task is one of `late`."""
    found, wanted = [], set(late)
    for task in tasks:
        for name in dict.fromkeys(candidates[task.id]):
            endpoint = endpoints[name]
            found.append(CallWish(task, endpoint, 0))
            if endpoint.changes and task.id in wanted:
                found.append(CallWish(task, endpoint, AFTER))
    return found


def _make_place(policy: DeployPolicy) -> TemporaryDirectory[str]:
    holds = policy.home / "cache"
    holds.mkdir(parents=True, exist_ok=True)
    return TemporaryDirectory(prefix="world-", dir=holds)
