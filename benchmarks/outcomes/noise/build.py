"""Builds a table: draws tasks, lists servers, makes variants, retrieves, executes."""

import asyncio
import re
import time
import tomllib
from collections import defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np

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
from assets.vectors.lexicon import split_identifier
from benchmarks.outcomes.noise.endpoints import (
    ToolEndpoint,
    find_source,
    list_real,
    load_sources,
    make_opaque_id,
)
from benchmarks.outcomes.noise.intents import HELD_OUT, TRAIN, BenchTask, draw_tasks, load_intents
from benchmarks.outcomes.noise.play import NoiseStage
from benchmarks.outcomes.noise.proxy import FAULTS, ProxyAnswer, ProxyPool
from benchmarks.outcomes.noise.table import (
    NO_CALL,
    OutcomeTable,
    TableCall,
    choose_candidates,
    embed_endpoints,
    embed_requests,
    load_table,
)
from warehouse.ledger.ledger import Ledger

# Word -> others that say the same
SYNONYMS: dict[str, list[str]] = tomllib.loads(
    Path(__file__).with_name("synonyms.toml").read_text(encoding="utf-8")
)
OPENERS = ("", "", "Use this to: ", "Handy tool. ", "Fast and reliable. ", "In short: ")
_SENTENCE = re.compile(r"(?<=[.!?])\s")
_WORD = re.compile(r"[A-Za-z]+")


def paraphrase_name(name: str, rng: Random) -> str:
    """`read_file` -> `load_document`; a prefix of the product goes."""
    words = [item for item in split_identifier(name) if item not in ("fast", "excel")]
    return "_".join(_replace_word(word, rng).replace(" ", "_") for word in words) or name


def paraphrase_text(name: str, description: str, rng: Random) -> str:
    """The first sentence in other words; of a description that has no Latin words, the name's."""
    first = _SENTENCE.split(" ".join(description.split()))[0]
    if len(_WORD.findall(first)) < 2:
        first = " ".join(split_identifier(name)).capitalize()
    said = _WORD.sub(lambda match: _replace_word(match[0], rng), first).rstrip(".")
    return f"{rng.choice(OPENERS)}{said}."


def paraphrase_contract(contract: Mapping[str, Any], name: str, rng: Random) -> dict[str, Any]:
    """The contract under another name, its description in other words and its parameters without
    theirs."""
    schema: dict[str, Any] = dict(contract.get("inputSchema") or {"type": "object"})
    known = schema.get("properties") or {}
    schema["properties"] = {key: _drop_words(one) for key, one in known.items()}
    about = paraphrase_text(str(contract["name"]), str(contract.get("description") or ""), rng)
    return {"name": name, "description": about, "inputSchema": schema}


def _drop_words(schema: Any) -> Any:
    if not isinstance(schema, Mapping):
        return schema
    return {name: one for name, one in schema.items() if name not in ("description", "title")}


def _replace_word(word: str, rng: Random) -> str:
    others = SYNONYMS.get(word.lower())
    if not others:
        return word
    made = rng.choice(others)
    return made.capitalize() if word[:1].isupper() else made


HEALTHY_SHARE = 0.2  # of variants: copies in other words that have no fault


def make_variants(real: Sequence[ToolEndpoint], n: int, seed: int) -> list[ToolEndpoint]:
    """`n` variants of real endpoints, of each about as many, each fault as often as any other."""
    rng = Random(f"variants/{seed}")
    bases = list(_cycle_shuffled(real, n, rng))
    healthy = round(n * HEALTHY_SHARE)
    faults: list[str | None] = [None] * healthy
    faults += [FAULTS[at % len(FAULTS)] for at in range(n - healthy)]
    rng.shuffle(faults)
    return [
        make_variant(base, fault, at, seed)
        for at, (base, fault) in enumerate(zip(bases, faults, strict=True))
    ]


def make_variant(base: ToolEndpoint, fault: str | None, at: int, seed: int) -> ToolEndpoint:
    """A copy of a real endpoint behind our proxy: another server, name and description."""
    rng = Random(f"{base.id}/{fault}/{at}/{seed}")
    name = f"{paraphrase_name(base.tool, rng)}"
    contract = paraphrase_contract(base.contract, name, rng)
    server = make_opaque_id("variant", at, seed)
    return ToolEndpoint(server, name, base.source, base.base, contract, fault, direct=False)


def _cycle_shuffled(real: Sequence[ToolEndpoint], n: int, rng: Random) -> Iterator[ToolEndpoint]:
    left: list[ToolEndpoint] = []
    for _ in range(n):
        if not left:
            left = rng.sample(list(real), len(real))
        yield left.pop()


AT_ONCE = 3  # servers at work
KEPT = 400  # characters of an answer
TIMEOUT_S = 20.0
Outcomes = dict[tuple[str, str], TableCall]


@dataclass(frozen=True)
class CallWish:
    """A call that the table needs."""

    task: BenchTask
    endpoint: ToolEndpoint


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
        if wish.endpoint.write_call(wish.task.slots) is None:
            result[wish.task.id, wish.endpoint.id] = TableCall(False, NO_CALL)
        elif wish.endpoint.source in launches:
            if find_source(wish.endpoint.source).world == wish.task.world:
                groups[wish.endpoint.source, wish.task.seed].append(wish)
            else:  # it sees its own world only: what is asked for is not there
                result[wish.task.id, wish.endpoint.id] = TableCall(False, NO_CALL)
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
                    result[wish.task.id, wish.endpoint.id] = made
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
        endpoint = wish.endpoint
        arguments = endpoint.write_call(wish.task.slots)
        assert arguments is not None
        if endpoint.direct:
            [result] = await session.run_calls([TaskCall(endpoint.base, arguments)], TIMEOUT_S)
            answer = ProxyAnswer(tuple(join_texts([result])), result.status, result.seconds)
        else:
            draw = Random(f"{self.seed}/{wish.task.id}/{endpoint.id}/0")
            answer = await proxies.call(endpoint, arguments, draw)
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
    return check.check(facts, answer.texts)


def _make_place(policy: DeployPolicy) -> TemporaryDirectory[str]:
    holds = policy.home / "cache"
    holds.mkdir(parents=True, exist_ok=True)
    return TemporaryDirectory(prefix="world-", dir=holds)


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
    endpoints = [*real, *make_variants(real, size.variants, size.seed)]
    tell(f"{len(launches)} servers, {len(real)} real endpoints, {len(endpoints)} in all")
    stage = retrieve_tasks([*train, *held], endpoints)
    wishes = [
        CallWish(task, stage.table.endpoints[name])
        for task, facts in zip([*train, *held], stage.table.tasks, strict=True)
        for name in dict.fromkeys([*facts.candidates, *facts.curated])
    ]
    tell(f"{len(wishes)} pairs of a task and a candidate")
    made = asyncio.run(execute_all(wishes, launches, policy, tell, size.seed))
    stage.table.outcomes.update(made)
    return stage


def retrieve_tasks(tasks: Sequence[BenchTask], endpoints: Sequence[ToolEndpoint]) -> NoiseStage:
    """The tasks with their candidates; no outcome yet."""
    queries = embed_requests([task.query for task in tasks])
    vectors = embed_endpoints(endpoints)
    facts = choose_candidates(tasks, endpoints, queries, vectors)
    return NoiseStage(
        OutcomeTable(facts, {endpoint.id: endpoint for endpoint in endpoints}), queries, vectors
    )


def save_stage(stage: NoiseStage, folder: Path) -> None:
    """The table and its vectors."""
    stage.table.save(folder)
    np.savez_compressed(folder / VECTORS, queries=stage.queries, vectors=stage.vectors)


def load_stage(folder: Path) -> NoiseStage:
    """What `save_stage` left in a folder. Raises OSError and ValueError."""
    with np.load(folder / VECTORS, allow_pickle=False) as held:
        return NoiseStage(load_table(folder), held["queries"], held["vectors"])
