"""The whole evaluation of an initial-call agent over the tables of a run.

training_set rows + clear contracts + recipes -> tasks -> both arms -> a summary, kept
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.quarantined_tools import read_clear
from assets.servers.calls.caller import ToolCaller
from assets.servers.calls.connection import plan_launch
from assets.servers.calls.result import CallFailed, CallLimits
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.deploy.policy import DeployPolicy
from extensions.bench.agent_tasks import (
    AgentEpisode,
    AgentLimits,
    compare_agents,
    list_agent_rows,
    make_tasks,
    open_fresh_callers,
    select_runnable_tasks,
    summarise_agents,
)
from training.evaluation.predictor import PredictionRequest, Predictor
from training.evaluation.retriever import NothingToEvaluate
from training.releases.index_source import map_server_recipes
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.llm.chat import ChatClient
from warehouse.llm.roles import Role
from warehouse.progress import Progress, SilentProgress
from warehouse.store import Warehouse

STAGE = "agent_eval"


@dataclass(frozen=True)
class AgentPlan:
    """tools: offered in a task. most: tasks."""

    most: int = 30
    tools: int = 10
    limits: AgentLimits = field(default_factory=AgentLimits)
    calls: CallLimits = field(default_factory=lambda: CallLimits(sessions=4, launch_s=60.0))


async def evaluate_agents(
    warehouse: Warehouse,
    policy: DeployPolicy,
    small: Predictor,
    role: Role,
    plan: AgentPlan | None = None,
    progress: Progress | None = None,
) -> dict[str, Any]:
    """The summary of both arms with its tasks.

    Raises NothingToEvaluate where no task runs here, LLMError where the role has no model.
    """
    plan, reporter = plan or AgentPlan(), progress or SilentProgress()
    chat = ChatClient(role, warehouse.ledger, stage=STAGE)
    recipes = map_server_recipes(warehouse.tables.read(DEPLOYMENTS).to_dicts())
    trained = warehouse.tables.read(TRAINING_SET).to_dicts()
    rows = [row for row in trained if row["split"] != TRAIN]
    tasks, left = make_tasks(
        rows,
        clear_pool(warehouse),
        lambda server: can_run_here(server, recipes, policy),
        plan.tools,
    )
    fresh = open_fresh_callers(lambda: ToolCaller(recipes, policy, plan.calls))
    timeout = plan.limits.call_timeout_s
    kept, failed = await select_runnable_tasks(
        tasks, fresh, plan.most, timeout, lambda done, of: reporter.update("trying tools", done, of)
    )
    left |= failed
    if not kept:
        reasons = ", ".join(f"{reason} {count}" for reason, count in sorted(left.items())) or "none"
        raise NothingToEvaluate(
            f"agent evaluation: 0 tasks of {len(rows)} accepted pairs in a test split (left out:"
            f" {reasons}); expected a pair whose server runs in the sandbox without a network and"
            " answers its golden call"
        )
    asked = [PredictionRequest(t.task_id, t.instruction, [*map(dict, t.tools)]) for t in kept]
    first = small.predict(asked)
    try:
        pairs = await compare_agents(
            kept,
            first,
            chat,
            fresh,
            plan.limits,
            lambda done, of: reporter.update("tasks", done, of),
        )
    finally:
        await chat.aclose()
    return _build_agent_summary(pairs, small, role, plan, left, len(kept))


def clear_pool(warehouse: Warehouse) -> dict[str, dict[str, Any]]:
    """Contract digest -> {server_id, tool, contract} of every current contract that a prompt may
    show."""
    rows = read_clear(warehouse)
    return {
        row["contract_digest"]: {
            "server_id": row["server_id"],
            "tool": row["tool"],
            "contract": json.loads(row["contract"]),
        }
        for row in sorted(rows, key=lambda row: row["server_id"], reverse=True)
        if row["contract"]
    }


def can_run_here(
    server_id: str, recipes: Mapping[str, Mapping[str, Any]], policy: DeployPolicy
) -> bool:
    """Whether a server is launched in the sandbox of this host, with no network, no secret and no
    folder of its user's: so that a call, whatever it says, changes nothing outside."""
    facts, grant = recipes.get(server_id), policy.grant_of(server_id)
    if facts is None or policy.sandbox_of(server_id).network != "none" or grant.reaches_own:
        return False
    try:
        server = plan_launch(server_id, facts, policy)
    except CallFailed:
        return False
    secret = server.given.env or server.given.headers
    return server.recipe.ecosystem != "remote" and not secret


def _build_agent_summary(
    pairs: Sequence[tuple[AgentEpisode, AgentEpisode]],
    small: Predictor,
    role: Role,
    plan: AgentPlan,
    left: Mapping[str, int],
    tasks: int,
) -> dict[str, Any]:
    return {
        "small": small.label,
        "larger": role.model,
        "provider": role.provider,
        **summarise_agents(pairs),
        "tasks": tasks,
        "left_out": dict(left),
        "stopped": None if len(pairs) == tasks else "the budget was spent; raise it, run again",
        "offered": plan.tools,
        "limits": vars(plan.limits),
        "items": list_agent_rows(pairs),
    }
