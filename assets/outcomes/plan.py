"""A marketplace's run of executions: what is due, carried out, and the rows that come of it."""

import asyncio
import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from typing import Any

from assets.contracts.quarantined_tools import read_contracts
from assets.one_server import keep_other_servers
from assets.outcomes.environment import choose_world
from assets.outcomes.execution import EXECUTION_VERSION
from assets.outcomes.outcome import CANNED, USEFUL, find_canned
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.run import ExecutionJob, ExecutionRun, JobResult
from assets.outcomes.select import find_futile_tools, list_launchable, select_calls
from assets.outcomes.table import EXECUTIONS, PASSING
from assets.outcomes.worlds.spec import WorldSpec
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import DeployPolicy, digest_conditions
from assets.synthesis.contract_reading import read_purpose
from assets.synthesis.tables import EXPLORATIONS, JUDGEMENTS, PAIRS, select_trainable
from assets.vectors.confusable_table import CONFUSABLES
from warehouse.item_failure import INTERNAL
from warehouse.json_types import Record
from warehouse.progress import Progress, SilentProgress
from warehouse.sanitize.redact import redact
from warehouse.storage.digest import digest
from warehouse.storage.tables import RowPlan, plan_keys
from warehouse.store import Warehouse

_READS = ("read", "search", "compute")


def make_execution_row(job: ExecutionJob, done: JobResult) -> dict[str, Any]:
    """The row of EXECUTIONS of one job, without its marketplace, plan and time."""
    call, selected = job.wanted.call, job.wanted
    row: dict[str, Any] = {
        **dict.fromkeys(EXECUTIONS.columns),
        "execution_id": job.id,
        "server_id": call.server_id,
        "tool": call.tool,
        "contract_digest": call.contract_digest,
        "recipe_digest": job.server.recipe_digest,
        "arguments": selected.arguments,
        "pair_ids": json.dumps(sorted(selected.pairs)),
        "twin_of": selected.twin_of,
        "world": job.world.name,
        "seed": job.seed,
        "only_reads": call.only_reads,
        "status": "failed",
    }
    if (execution := done.execution) is None:
        return row | {
            "error_kind": INTERNAL,
            "hint": redact(done.problem or ""),
            "changed": "[]",
            "withheld": "[]",
            "findings": "[]",
        }
    copied = ("status", "outcome", "blame", "evidence", "error_kind", "hint", "answer", "size")
    return row | {
        **{name: getattr(execution, name) for name in (*copied, "differs", "seconds")},
        "call_key": call.make_key(execution.before),
        "changed": redact(json.dumps(execution.changed)),
        "breaks_hint": call.only_reads and execution.changes_state,
        "withheld": json.dumps(execution.withheld),
        "findings": json.dumps(execution.findings),
        "proof": done.proof.verdict if done.proof else None,
        "proof_why": redact(done.proof.why) if done.proof else None,
        "result_blob": done.blob,
    }


def mark_canned(rows: Iterable[Mapping[str, Any]]) -> list[Record]:
    """The rows, with tools that answer anything alike marked as canned, and no others."""
    results = [
        {**row, "outcome": USEFUL, "blame": None, "evidence": ""}
        if row["outcome"] == CANNED
        else {**row}
        for row in rows
    ]
    groups: dict[tuple[str, str, str], list[Record]] = defaultdict(list)
    for row in results:
        # That something was done is told in the same words whatever it was done to.
        reads = row["only_reads"] or read_purpose({"name": row["tool"]}).family in _READS
        if row["outcome"] == USEFUL and row["changed"] == "[]" and reads:
            groups[row["server_id"], row["tool"], row["contract_digest"]].append(row)
    for group in groups.values():
        canned = find_canned((row["arguments"], row["answer"], row["size"]) for row in group)
        evidence = f"{len(group)} calls with other arguments were answered alike"
        for row in group:
            if row["answer"] in canned:
                row |= {"outcome": CANNED, "blame": "tool", "evidence": evidence}
    return results


@dataclass(frozen=True)
class ExecutionSetup:
    """How servers run, what is executed of a marketplace, in which worlds, how many at once."""

    policy: DeployPolicy
    settings: ExecutionPolicy
    worlds: tuple[WorldSpec, ...] = ()
    concurrency: int = 3


@dataclass(frozen=True)
class ExecutionResult:
    """The rows of EXECUTIONS after a run. left: how many calls the limits left for the next one."""

    rows: list[Record]
    due: RowPlan
    left: int


@dataclass(frozen=True)
class ExecutionPlan:
    """plans: execution id -> digest of its plan. again: ids whose failure passes."""

    previous: dict[str, Record]
    jobs: list[ExecutionJob]
    plans: dict[str, str]
    again: set[str]
    due: RowPlan


def plan_executions(
    warehouse: Warehouse, name: str, executor: ExecutionSetup, only: str | None = None
) -> ExecutionPlan:
    """Which calls of one marketplace are due now; `only`: all calls of one server."""
    rows = warehouse.tables.read(EXECUTIONS, name).to_dicts()
    previous = {row["execution_id"]: row for row in rows if only in (None, row["server_id"])}
    jobs = _plan_jobs(warehouse, name, executor) if executor.settings.enabled else []
    jobs = [job for job in jobs if only in (None, job.wanted.call.server_id)]
    plans = {job.id: _digest_plan(job, executor) for job in jobs}
    again = {key for key, row in previous.items() if only or row["error_kind"] in PASSING}
    previous_plans = {key: row["plan_digest"] for key, row in previous.items()}
    return ExecutionPlan(
        previous, jobs, plans, again, plan_keys(previous_plans, plans, retry=again)
    )


def execute_pairs(
    warehouse: Warehouse,
    name: str,
    executor: ExecutionSetup,
    progress: Progress | None = None,
    *,
    scope: str | None = None,
    only: str | None = None,
) -> ExecutionResult:
    """Executes accepted calls of one marketplace's servers, or of `only` one. scope: whose open run
    in the ledger this belongs to. Raises the ledger's own errors."""
    planned = plan_executions(warehouse, name, executor, only)
    previous, jobs, plans, due = planned.previous, planned.jobs, planned.plans, planned.due
    run = ExecutionRun(
        executor.policy,
        executor.settings,
        warehouse.ledger,
        name,
        warehouse.ledger.open_run(scope or name),
        executor.concurrency,
        progress or SilentProgress(),
    )
    due_ids = set(due.due)
    due_jobs = [replace(job, again=job.id in planned.again) for job in jobs if job.id in due_ids]
    asyncio.run(run.carry_out(due_jobs))
    now = time.time()
    rows = []
    for job in jobs:
        if (result := run.done.get(job.id)) is not None:
            about = {"marketplace": name, "plan_digest": plans[job.id], "executed_at": now}
            rows.append(make_execution_row(job, result) | about)
        elif (row := previous.get(job.id)) is not None:  # unchanged, or due still by its plan
            rows.append({**row, "pair_ids": json.dumps(sorted(job.wanted.pairs))})
    last = warehouse.tables.read(EXECUTIONS, name).to_dicts() if only else []
    rows = keep_other_servers(last, mark_canned(rows), only)
    return ExecutionResult(rows, due, len(run.left))


def _plan_jobs(warehouse: Warehouse, name: str, executor: ExecutionSetup) -> list[ExecutionJob]:
    tables = warehouse.tables
    pairs, judged = tables.read(PAIRS, name).to_dicts(), tables.read(JUDGEMENTS, name).to_dicts()
    clear, _ = read_contracts(warehouse, name)
    networked = [key for key, item in executor.policy.grants.items() if item.has_network]
    servers = list_launchable(
        tables.read(DEPLOYMENTS, name).to_dicts(),
        networked,
        network=executor.policy.sandbox.network == "full",
    )
    twins = tables.read(CONFUSABLES).to_dicts()
    settings = executor.settings
    futile = find_futile_tools(tables.read(EXPLORATIONS, name).to_dicts(), clear)
    accepted = select_trainable(pairs, judged)
    calls = select_calls(accepted, clear, servers, settings, twins, futile)
    tools: dict[str, set[str]] = defaultdict(set)
    for item in calls:
        tools[item.call.server_id].add(item.call.tool)
    worlds = {
        key: choose_world(key, executor.worlds, tool_names) for key, tool_names in tools.items()
    }
    by_name = {world.name: world for world in executor.worlds}
    jobs: list[ExecutionJob] = []
    digests: dict[tuple[str, int, str | None], str] = {}
    for item in calls:
        world, seed = worlds[item.call.server_id], settings.seed
        if item.task:
            if item.task.world not in by_name:
                continue  # its file is gone since
            world, seed = by_name[item.task.world], item.task.seed
        key = item.identify(world.name, seed)
        server = servers[item.call.server_id]
        jobs.append(ExecutionJob(key, item, server, world, seed, digests=digests))
    return jobs


def _digest_plan(job: ExecutionJob, executor: ExecutionSetup) -> str:
    call, settings = job.wanted.call, executor.settings
    return digest(
        [
            EXECUTION_VERSION,
            call.contract_digest,
            job.server.recipe_digest,
            job.server.moving,
            digest_conditions(call.server_id, executor.policy),
            job.world_digest,
            [settings.prove, job.wanted.observed],
            sorted(job.wanted.pairs),
        ]
    )
