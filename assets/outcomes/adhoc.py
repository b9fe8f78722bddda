"""One call of one tool in one world, ad hoc: what `toolmill execute` prints."""

import json
import os
from typing import Any

from assets.contracts.quarantined_tools import read_contracts
from assets.contracts.repair.problems import find_problems
from assets.contracts.tool_id import BadToolId, ToolId
from assets.outcomes.environment import PLAIN, choose_world, open_server
from assets.outcomes.execution import ToolCall, watch_call
from assets.outcomes.plan import ExecutionSetup
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.select import LaunchableServer, list_launchable, may_run
from assets.outcomes.worlds.spec import WorldSpec
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import read_contract
from warehouse.errors import UnusableInput
from warehouse.storage.digest import canonical_json
from warehouse.store import Warehouse


class CannotExecute(UnusableInput):
    """A call that cannot be made as it was asked for: what of it, and what to do."""


def find_call(
    warehouse: Warehouse, tool_id: str, arguments: str, executor: ExecutionSetup
) -> tuple[ToolCall, LaunchableServer]:
    """The call as it is sent, and how its server is launched. Raises CannotExecute."""
    try:
        identity = ToolId.parse(tool_id)
    except BadToolId as error:
        raise CannotExecute(str(error)) from None
    call_arguments = parse_arguments(arguments)
    clear, quarantined = read_contracts(warehouse)
    row = next((item for item in clear if (item["server_id"], item["tool"]) == identity), None)
    if row is None:
        if any((item["server_id"], item["tool"]) == identity for item in quarantined):
            raise CannotExecute(
                f"{tool_id} is held: `toolmill quarantine` says why, and releases it"
            )
        raise CannotExecute(
            f"{tool_id}: no run has listed such a tool; `toolmill search` prints ids as they are"
        )
    servers = list_launchable(
        warehouse.tables.read(DEPLOYMENTS).to_dicts(),
        [key for key, grant in executor.policy.grants.items() if grant.has_network],
        network=executor.policy.sandbox.network == "full",
    )
    if identity.server_id not in servers:
        raise CannotExecute(
            f"{identity.server_id} did not start in its last run: see `deployments`"
        )
    call = ToolCall(
        identity.server_id,
        identity.tool,
        read_contract(row),
        row["contract_digest"],
        call_arguments,
    )
    if problems := [
        problem
        for problem in find_problems(call.contract, call_arguments)
        if problem["kind"] != "bad_schema"
    ]:
        first = problems[0]
        raise CannotExecute(
            f"--arguments {first['path']}: found {first['found']}; expected {first['expected']}"
        )
    server = servers[identity.server_id]
    if not may_run(call, server, ExecutionPolicy(writes=True)):
        raise CannotExecute(
            f"{tool_id} may change something, and its server is elsewhere or has the network: that"
            " is no disposable world; there only tools that say they read are called"
        )
    return call, server


def parse_arguments(text: str) -> dict[str, Any]:
    """The arguments of a call. Raises CannotExecute for what is no JSON object."""
    try:
        result = json.loads(text)
        canonical_json(result)
    except (ValueError, RecursionError) as error:
        raise CannotExecute(
            f"--arguments is no JSON: {' '.join(str(error).split())[:200]}"
        ) from None
    if not isinstance(result, dict):
        raise CannotExecute(f"--arguments is {type(result).__name__}, expected an object")
    return result


def pick_world(call: ToolCall, executor: ExecutionSetup, name: str | None) -> WorldSpec:
    """The world of a name, or the one that suits the server. Raises CannotExecute."""
    if name is None:
        return choose_world(call.server_id, executor.worlds, [call.tool])
    by_name = {item.name: item for item in (PLAIN, *executor.worlds)}
    if name not in by_name:
        raise CannotExecute(f"--world {name!r}: expected one of {', '.join(sorted(by_name))}")
    return by_name[name]


async def execute_tool(
    call: ToolCall, server: LaunchableServer, world: WorldSpec, executor: ExecutionSetup
) -> dict[str, Any]:
    """Makes the call and tells its outcome. Raises WorldFailed."""
    settings = executor.settings
    async with open_server(
        server.server_id,
        server.recipe,
        world,
        settings.seed,
        executor.policy,
        f"ad-hoc-{os.getpid()}",
    ) as place:
        done = await watch_call(
            place.caller,
            call,
            place.world,
            timeout_s=settings.timeout_s,
            owner=place.owner,
            repeat=call.only_reads,
        )
    columns = ("outcome", "blame", "evidence", "status", "error_kind", "hint", "changed", "differs")
    return {
        "tool_id": str(ToolId(call.server_id, call.tool)),
        "world": world.name,
        **{name: getattr(done.execution, name) for name in columns},
        "breaks_hint": call.only_reads and done.execution.changes_state,
        "text": done.execution.text,
        "structured": done.execution.structured,
        "withheld": done.execution.withheld,
        "findings": done.execution.findings,
        "size": done.execution.size,
        "seconds": done.execution.seconds,
        "call_key": call.make_key(done.execution.before),
    }
