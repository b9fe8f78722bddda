"""Carrying out: the tools of each launched server tried in a disposable world, each effect once."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass, field, replace

from assets.contracts.quarantined_tools import key_contract, read_contracts
from assets.one_server import keep_other_servers
from assets.outcomes.call_proposer import CallProposer
from assets.outcomes.environment import choose_world, digest_world, open_server
from assets.outcomes.execution import EXECUTION_VERSION, ToolCall
from assets.outcomes.exploration_walk import ExplorationJob, ServerWalk
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.select import list_launchable, may_run
from assets.outcomes.worlds.session import make_first_tree
from assets.outcomes.worlds.tree import WorldFailed
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import digest_conditions
from assets.servers.recipes.placeholders import DATA
from assets.synthesis.tables import EXPLORATIONS, read_contract, read_grants
from warehouse.item_failure import describe_failure, try_item
from warehouse.json_types import Record
from warehouse.ledger.attempts import EffectOutcome
from warehouse.progress import Progress, SilentProgress
from warehouse.sanitize.redact import MARK, redact, redact_issued_keys
from warehouse.storage.digest import digest
from warehouse.storage.tables import RowPlan, plan_keys
from warehouse.store import Warehouse

EXPLORATION_VERSION = 4  # of what is tried and kept: another one explores again


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
        kept = [row for row in found if _holds_no_key(row["arguments"])]
        rows += [dict.fromkeys(EXPLORATIONS.columns) | row | shared for row in kept]
    return ExplorationResult(keep_other_servers(last, rows, only), due, problems)


def _holds_no_key(arguments: str) -> bool:
    """A value made up for a parameter `password` is none."""
    return MARK not in arguments and redact_issued_keys(arguments) == arguments


def plan_explorations(
    warehouse: Warehouse, name: str, executor: ExecutionSetup, proposer: CallProposer | None = None
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
        walk.pool.add_world(tree, place.world.read_first_facts(), DATA, place.world.grant.sites)
        if before:
            return await walk.walk_more(before, settings.explore_calls)
        await walk.walk(settings.explore, settings.explore_calls)
        return walk.rows
