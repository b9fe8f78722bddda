"""Carrying out: the tools of each launched server tried in a disposable world, each effect once."""

import asyncio
import json
import random
import time
from collections import defaultdict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from assets.contracts.quarantined_tools import key_contract, read_contracts
from assets.one_server import keep_other_servers
from assets.outcomes.call_proposer import CallProposer
from assets.outcomes.environment import ServerInWorld, choose_world, digest_world, open_server
from assets.outcomes.execution import (
    EXECUTION_VERSION,
    CallExecution,
    ToolCall,
    call_unwatched,
    watch_call,
)
from assets.outcomes.exploration import (
    AnsweredCall,
    ProposedCall,
    ValuePool,
    find_origins,
    misspell_call,
    propose_calls,
    rank_tool,
    read_answer,
    read_answered,
    seems_to_read,
)
from assets.outcomes.outcome import TIMEOUT, TOOL_ERROR, USEFUL
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.select import LaunchableServer, list_launchable, may_run
from assets.outcomes.worlds.session import make_first_tree
from assets.outcomes.worlds.spec import WorldSpec
from assets.outcomes.worlds.tree import WorldFailed
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import digest_conditions
from assets.servers.recipes.placeholders import DATA
from assets.synthesis.tables import EXPLORATIONS, dump_text, read_contract, read_grants
from warehouse.item_failure import describe_failure, try_item
from warehouse.json_types import Record
from warehouse.ledger.attempts import EffectOutcome
from warehouse.progress import Progress, SilentProgress
from warehouse.sanitize.redact import redact
from warehouse.storage.digest import digest
from warehouse.storage.tables import RowPlan, plan_keys
from warehouse.store import Warehouse

MakeCall = Callable[[ToolCall], Awaitable[CallExecution]]
EXPLORATION_VERSION = 2  # of what is tried and kept: another one explores again
_OTHERS = ("credentials", "policy", "upstream", "us")
_ENOUGH = 8  # calls that say that a server can do nothing here
_MOST_TIMEOUTS, _LONGEST_S = 3, 120.0  # of a server
_MOST_FAILURES = 2  # of a tool that was never useful
_MOST_MISSPELT = 3  # calls that are misspelt of a server's tools that read, and of the others
_MOST_TEXT = 4000  # characters of an answer that is kept whole, or not at all


@dataclass(frozen=True)
class ExplorationJob:
    """A server that is due, with its tools that may be called there. decides: digest of all that
    decides what comes of it, but for `more`: tool -> useful calls that it is granted beyond."""

    server: LaunchableServer
    tools: tuple[ToolCall, ...]
    world: WorldSpec
    decides: str
    more: Mapping[str, int] = field(default_factory=dict)

    @property
    def plan(self) -> str:
        """Digest of all that decides its rows."""
        return digest([self.decides, dict(self.more)]) if self.more else self.decides


@dataclass(frozen=True)
class ExplorationResult:
    """The rows of EXPLORATIONS after a run. problems: server -> why it could not be explored."""

    rows: list[Record]
    due: RowPlan
    problems: dict[str, str] = field(default_factory=dict)


def explore_servers(
    warehouse: Warehouse,
    name: str,
    executor: ExecutionSetup,
    progress: Progress | None = None,
    *,
    only: str | None = None,
    proposer: CallProposer | None = None,
) -> ExplorationResult:
    """Explores the servers of a marketplace that changed, or `only` one. proposer: asked for calls
    of tools of which the rules find no useful one. Raises the ledger's own errors; a server that
    was explored until then is in the ledger and not called again."""
    last = warehouse.tables.read(EXPLORATIONS, name).to_dicts()
    previous = {row["server_id"]: row["plan_digest"] for row in last}
    settings = executor.settings
    jobs = (
        plan_explorations(warehouse, name, executor, proposer)
        if settings.enabled and settings.explore
        else []
    )
    jobs = [job for job in jobs if only in (None, job.server.server_id)]
    due = plan_keys(
        {key: plan for key, plan in previous.items() if only in (None, key)},
        {job.server.server_id: job.plan for job in jobs},
    )
    wanted = [job for job in jobs if job.server.server_id in set(due.due)]
    wanted.sort(key=lambda job: -sum(job.more.values()))  # what models fail goes first
    explored = asyncio.run(_explore_all(warehouse, name, executor, wanted, proposer, progress))
    # A server that is not launched tonight keeps what it taught about contracts that still stand.
    planned = {job.server.server_id for job in jobs}
    standing = {key_contract(row) for row in read_contracts(warehouse, name)[0]}
    rows = [
        row
        for row in last
        if row["server_id"] in set(due.unchanged)
        or (row["server_id"] not in planned and key_contract(row) in standing)
    ]
    problems: dict[str, str] = {}
    for job in wanted:
        found = explored[job.server.server_id]
        if isinstance(found, str):  # it is due again, and what it had before stays
            problems[job.server.server_id] = found
            rows += [row for row in last if row["server_id"] == job.server.server_id]
            continue
        shared = {"marketplace": name, "plan_digest": job.plan, "explored_at": time.time()}
        rows += [dict.fromkeys(EXPLORATIONS.columns) | row | shared for row in found]
    return ExplorationResult(keep_other_servers(last, rows, only), due, problems)


def plan_explorations(
    warehouse: Warehouse,
    name: str,
    executor: ExecutionSetup,
    proposer: CallProposer | None = None,
) -> list[ExplorationJob]:
    """The launched servers of a marketplace with clear tools that may be called in a world."""
    networked = [key for key, item in executor.policy.grants.items() if item.has_network]
    servers = list_launchable(
        warehouse.tables.read(DEPLOYMENTS, name).to_dicts(),
        networked,
        network=executor.policy.sandbox.network == "full",
    )
    tools: dict[str, list[ToolCall]] = defaultdict(list)
    for row in read_contracts(warehouse, name)[0]:
        server = servers.get(row["server_id"])
        contract = try_item(lambda row=row: read_contract(row), lambda _: {})
        # A world of its own bounds what a call can do, but not what it reaches over a network.
        if server is None or server.moving or not contract or row["schema_problem"] is not None:
            continue
        tool = ToolCall(row["server_id"], row["tool"], contract, row["contract_digest"], {})
        if may_run(tool, server, executor.settings):
            tools[row["server_id"]].append(tool)
    jobs, grants = [], read_grants(warehouse.tables)
    for server_id in sorted(tools):
        server, calls = servers[server_id], sorted(tools[server_id], key=lambda call: call.tool)
        world = choose_world(server_id, executor.worlds, [call.tool for call in calls])
        decides = digest(
            {
                "effect": "explore",
                "versions": [EXPLORATION_VERSION, EXECUTION_VERSION],
                "recipe": server.recipe_digest,
                "conditions": digest_conditions(server_id, executor.policy),
                "contracts": [call.contract_digest for call in calls],
                "world": digest_world(world, executor.settings.seed),
                "budget": [executor.settings.explore, executor.settings.explore_calls],
                **({"proposer": proposer.identity} if proposer else {}),
            }
        )
        tasks = {call.tool: len(grants.get((server_id, call.tool), ())) for call in calls}
        more = {tool: count for tool, count in tasks.items() if count}
        jobs.append(ExplorationJob(server, tuple(calls), world, decides, more))
    return jobs


async def _explore_all(
    warehouse: Warehouse,
    name: str,
    executor: ExecutionSetup,
    jobs: Sequence[ExplorationJob],
    proposer: CallProposer | None,
    progress: Progress | None,
) -> dict[str, list[Record] | str]:
    """Server -> its rows, or why it has none; several servers at once."""
    places = asyncio.Semaphore(max(1, executor.concurrency))
    explored: dict[str, list[Record] | str] = {}
    shown = progress or SilentProgress()

    async def call(job: ExplorationJob, before: Sequence[Record] = ()) -> list[Record]:
        async def make() -> EffectOutcome:
            rows = await _explore_server(job, executor, name, before, proposer)
            return EffectOutcome(json.dumps(rows, sort_keys=True).encode())

        key = digest([job.server.server_id, job.plan])
        return json.loads(await warehouse.ledger.once_async("explore", key, make, partition=name))

    async def explore(job: ExplorationJob) -> None:
        async with places:
            try:
                rows = [*(first := await call(replace(job, more={})))]
                # What a tool is granted beyond is an effect of its own: nothing else is redone.
                for tool, count in job.more.items() if first else ():
                    rows += await call(replace(job, more={tool: count}), first)
                explored[job.server.server_id] = rows
            except Exception as error:  # a full disk and the ledger's own errors are raised
                known = isinstance(error, WorldFailed)
                reason = str(error) if known else describe_failure(error)
                explored[job.server.server_id] = redact(reason)
        shown.update("explorations", len(explored), len(jobs))

    try:
        await asyncio.gather(*map(explore, jobs))
    finally:
        if proposer:
            await proposer.llm.aclose()
    return explored


async def _explore_server(
    job: ExplorationJob,
    executor: ExecutionSetup,
    marketplace: str,
    before: Sequence[Record],
    proposer: CallProposer | None,
) -> list[Record]:
    """The calls that were made, in order; beyond those of `before`, where there are any, what the
    job's tools are granted. Raises WorldFailed, RecipeError, LLMError, BudgetExceeded."""
    settings, server = executor.settings, job.server
    facts = (server.server_id, server.recipe, job.world, settings.seed, executor.policy)
    folder = f"explore-{marketplace}-{digest([server.server_id, job.decides])[:16]}"
    async with open_server(*facts, folder) as place:
        walk = ServerWalk(job, place, settings.timeout_s, proposer)
        tree = make_first_tree(job.world, settings.seed)
        walk.pool.add_world(tree, place.world.read_first_facts(), DATA)
        if before:
            return await walk.walk_more(before, settings.explore_calls)
        await walk.walk(settings.explore, settings.explore_calls)
        return walk.rows


@dataclass(frozen=True)
class _TriedCall:
    """A call that was made: what was tried, what it did, and its row."""

    tool: ToolCall
    proposed: ProposedCall
    done: CallExecution
    row: Record


class ServerWalk:
    """One server while it is explored."""

    def __init__(
        self,
        job: ExplorationJob,
        place: ServerInWorld,
        timeout_s: float,
        proposer: CallProposer | None = None,
    ) -> None:
        self._job, self._place, self._timeout_s = job, place, timeout_s
        self._proposer = proposer
        self._until = time.monotonic() + _LONGEST_S
        self._rng = random.Random(job.decides)
        self._tried: set[str] = set()
        self._useful: dict[str, int] = defaultdict(int)
        self._failed: dict[str, int] = defaultdict(int)
        self._barred, self._timeouts = True, 0
        self._first: Mapping[str, Any] | None = None  # the first state's facts, while they hold
        self._calls: list[_TriedCall] = []
        self._answered: list[AnsweredCall] = []  # whose values may be passed on
        self.pool = ValuePool()

    @property
    def rows(self) -> list[Record]:
        """The rows of the calls so far; those whose answer others take a value of, and the
        objections to misspelt calls, with their texts."""
        rows = {call.row["exploration_id"]: {**call.row} for call in self._calls}
        texts = {call.row["exploration_id"]: call.done.text for call in self._calls}
        for call in self._calls:
            row = rows[call.row["exploration_id"]]
            if row["repairs"] and _is_objection(call.done):
                row["text"] = call.done.text
        for target, origins in self._find_origins(self._answered):
            rows[target]["origins"] = dump_text({name: list(at) for name, at in origins.items()})
            for source, _ in origins.values():
                rows[source]["text"] = texts[source]
        return list(rows.values())

    def _find_origins(
        self, answered: Sequence[AnsweredCall]
    ) -> list[tuple[str, dict[str, tuple[str, str]]]]:
        """(useful call, where its values come from), of those that have any."""
        found = [
            (call, find_origins(call.tool.contract, call.proposed.arguments, answered))
            for call in self._calls
            if call.done.outcome == USEFUL
        ]
        return [(call.row["exploration_id"], origins) for call, origins in found if origins]

    async def _confirm_answers(self) -> None:
        """Makes the calls whose answers others take values of once more, with a fresh server: what
        it answers otherwise (an id of a session, a time) is nothing that can be passed on."""
        answered = {
            call.row["exploration_id"]: self._read_answered(call, call.done)
            for call in self._calls
            if _can_pass_on(call)
        }
        pairs = self._find_origins(list(answered.values()))
        sources = {source for _, origins in pairs for source, _ in origins.values()}
        if not sources or self._is_over():
            return
        await self._place.put_back(fresh=True)
        for call in self._calls:
            if (name := call.row["exploration_id"]) in sources:
                again = self._read_answered(call, await self._call_reading(call.tool))
                same = tuple(item for item in answered[name].values if item in again.values)
                self._answered.append(replace(again, values=same))

    async def walk(self, useful: int, most: int) -> None:
        """Tries every tool for so many `useful` calls, `most` calls in all: those that read twice,
        as what a first time listed fills the arguments of a second, then the others. Then one call
        of each is misspelt, for the server's own objection."""
        tools = sorted(self._job.tools, key=lambda tool: rank_tool(tool.contract))
        reading = [tool for tool in tools if seems_to_read(tool.contract)]
        writing = tools[len(reading) :]
        for tool in [*reading, *reading]:
            await self._try_tool(tool, useful, most, self._call_reading)
        await self._try_proposals(reading, useful, most, self._call_reading)
        await self._misspell(reading, most, self._call_reading)
        changed = await self._put_back_changed()
        for tool in writing:
            await self._try_tool(tool, useful, most, self._call_writing)
        await self._try_proposals(writing, useful, most, self._call_writing)
        await self._misspell(writing, most, self._call_writing)
        if not changed:
            await self._confirm_answers()

    async def walk_more(self, before: Sequence[Record], most: int) -> list[Record]:
        """The rows of calls beyond those made before, of the tools that are granted more. All that
        read are called once for their values."""
        for tool in filter(lambda tool: seems_to_read(tool.contract), self._job.tools):
            await self._try_tool(tool, 1, most, self._call_reading)
        await self._put_back_changed()
        self._tried = {dump_text([row["tool"], json.loads(row["arguments"])]) for row in before}
        first = len(self._calls)
        for tool in self._job.tools:
            if more := self._job.more.get(tool.tool):
                tried = sum(row["tool"] == tool.tool for row in before)
                useful = self._useful[tool.tool] + more
                limit = len(self._calls) + most
                await self._try_tool(tool, useful, limit, self._call_writing, tried + more)
        return [call.row for call in self._calls[first:]]

    async def _put_back_changed(self) -> bool:
        changed = await self._place.read_state() != self._place.world.read_first_facts()
        if changed:
            # One of them writes: nobody knows which, and the others have read what it wrote.
            await self._place.put_back(fresh=True)
        return changed

    async def _try_tool(
        self, tool: ToolCall, useful: int, most: int, make: MakeCall, proposals: int = 0
    ) -> None:
        proposals = proposals or useful - self._useful[tool.tool]
        for proposed in propose_calls(tool.contract, self.pool, proposals, self._rng):
            hopeless = self._failed[tool.tool] >= _MOST_FAILURES and not self._useful[tool.tool]
            enough = self._useful[tool.tool] >= useful
            if len(self._calls) >= most or hopeless or enough or self._is_over():
                return
            if proposed.key not in self._tried:
                await self._make(tool, proposed, make)

    async def _try_proposals(
        self, tools: Sequence[ToolCall], useful: int, most: int, make: MakeCall
    ) -> None:
        """The calls that a model proposes for the tools without a useful one, where one is set."""
        if (proposer := self._proposer) is None:
            return
        for tool in tools:
            if self._useful[tool.tool] or self._is_over() or len(self._calls) >= most:
                continue
            mine = [call for call in self._calls if call.tool.tool == tool.tool]
            refused = [(call.proposed.arguments, call.done.evidence) for call in mine]
            proposals = await proposer.propose(tool.contract, self.pool, refused, useful)
            for proposed in proposals[: most - len(self._calls)]:
                if proposed.key not in self._tried and not self._is_over():
                    await self._make(tool, proposed, make)

    async def _make(
        self, tool: ToolCall, proposed: ProposedCall, make: MakeCall, repairs: str | None = None
    ) -> None:
        self._tried.add(proposed.key)
        call = replace(tool, arguments=proposed.arguments)
        done = await make(call)
        if done.outcome == USEFUL and not done.changes_state and repairs is None:
            self.pool.add_answer(read_answer(done), tool.tool)
        if repairs is None:
            self._useful[tool.tool] += done.outcome == USEFUL
            self._failed[tool.tool] += done.outcome == TOOL_ERROR
        self._timeouts += done.outcome == TIMEOUT
        self._barred = self._barred and done.blame in _OTHERS
        row = self._make_row(call, proposed, done) | {"repairs": repairs}
        self._calls.append(_TriedCall(call, proposed, done, row))

    async def _misspell(self, tools: Sequence[ToolCall], most: int, make: MakeCall) -> None:
        """Makes a misspelt call of each of a few tools with a useful one."""
        drawn = self._rng.sample(tools, min(len(tools), _MOST_MISSPELT))
        for tool in drawn:
            mine = [call for call in self._calls if call.tool.tool == tool.tool]
            for call in [call for call in mine if call.done.outcome == USEFUL]:
                wrong = misspell_call(tool.contract, call.proposed)
                if wrong is None or wrong.key in self._tried:
                    continue
                if len(self._calls) < most and not self._is_over():
                    await self._make(tool, wrong, make, call.row["exploration_id"])
                break

    def _is_over(self) -> bool:
        """Whether no further call is worth its time: the server answers late or not at all, or
        every call so far fails for want of what no argument gives (a browser, a key)."""
        barred = self._barred and len(self._calls) >= _ENOUGH
        return barred or self._timeouts >= _MOST_TIMEOUTS or time.monotonic() > self._until

    async def _call_reading(self, call: ToolCall) -> CallExecution:
        place = self._place
        return await call_unwatched(
            place.caller, call, place.first, timeout_s=self._timeout_s, owner=place.owner
        )

    async def _call_writing(self, call: ToolCall) -> CallExecution:
        place = self._place
        # A workbook is read in a sandbox of its own: what the last call left as it was is not
        # read again.
        watched = await watch_call(
            place.caller,
            call,
            place.world,
            before=self._first if self._first is not None else await place.read_first(),
            timeout_s=self._timeout_s,
            owner=place.owner,
        )
        late = watched.execution.outcome == TIMEOUT  # it may still be at work
        changed = watched.execution.changes_state
        self._first = None if changed or late else watched.after
        if changed or late:
            await place.put_back(fresh=late)
        return watched.execution

    def _read_answered(self, call: _TriedCall, done: CallExecution) -> AnsweredCall:
        facts = call.row["exploration_id"], call.tool.tool, call.proposed.arguments
        return read_answered(*facts, read_answer(done))

    def _make_row(self, call: ToolCall, proposed: ProposedCall, done: CallExecution) -> Record:
        arguments = dump_text(dict(call.arguments))
        identity = [call.server_id, call.tool, call.contract_digest, arguments, self._job.decides]
        copied = ("outcome", "blame", "answer", "size", "seconds", "error_kind")
        return {
            "exploration_id": "o1:" + digest(identity)[:40],
            "server_id": call.server_id,
            "tool": call.tool,
            "contract_digest": call.contract_digest,
            "arguments": arguments,
            "sources": dump_text(proposed.sources),
            "world": self._job.world.name,
            "changes": done.changes_state,
            **{name: getattr(done, name) for name in copied},
        }


def _can_pass_on(call: _TriedCall) -> bool:
    """Whether another call may take a value of its answer, which is kept whole then."""
    done = call.done
    answers = done.outcome == USEFUL and not done.changes_state and not call.row["repairs"]
    return answers and 0 < len(done.text) <= _MOST_TEXT


def _is_objection(done: CallExecution) -> bool:
    return (
        done.outcome == TOOL_ERROR and not done.changes_state and 0 < len(done.text) <= _MOST_TEXT
    )
