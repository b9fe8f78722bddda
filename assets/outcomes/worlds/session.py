"""A real server at work in an open world: planned, listed once, and called."""

from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, replace
from typing import Any

import anyio.to_thread

from assets.marketplaces.listing import PRIVATE
from assets.outcomes.worlds.errors import WorldFailed
from assets.outcomes.worlds.opened import OpenWorld
from assets.outcomes.worlds.spec import Fit
from assets.outcomes.worlds.task import TaskCall
from assets.servers.adhoc import UnknownLocalServer, allow_bound, plan_local_server, plan_target
from assets.servers.calls.caller import ToolCaller
from assets.servers.calls.result import CallResult
from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import LaunchRecipe, UnlaunchableServer, dump_recipe
from warehouse.ledger.ledger import Ledger


class ServerUnavailable(WorldFailed):
    """A server that cannot be had here, and why; the world is as good as before."""


@dataclass
class WorldSession:
    """A server in a world. contracts: its tools by name, as it lists them."""

    server_id: str
    contracts: Mapping[str, Mapping[str, Any]]
    make_caller: Callable[[], ToolCaller]

    def __post_init__(self) -> None:
        self._caller = self.make_caller()

    async def close(self) -> None:
        await self._caller.close()

    async def restart(self) -> None:
        """Ends the server; the next call finds a fresh one."""
        await self._caller.close()
        self._caller = self.make_caller()

    async def run_calls(
        self, calls: Sequence[TaskCall], timeout_s: float = 60.0
    ) -> list[CallResult]:
        """Results in order, up to the first call that fails."""
        results = []
        for call in calls:
            contract = self.contracts[call.tool]
            result = await self._caller.call(
                self.server_id, call.tool, contract, call.arguments, timeout_s=timeout_s
            )
            results.append(result)
            if result.status != "ok":
                break
        return results


@asynccontextmanager
async def open_session(
    opened: OpenWorld, fit: Fit, policy: DeployPolicy, ledger: Ledger, run_date: str
) -> AsyncIterator[WorldSession]:
    """A server that lists its tools in the world. Raises ServerUnavailable, and what a sandbox
    that is missing raises."""
    granted = replace(policy, grants={**policy.grants, fit.id: opened.grant}, twice=False)
    planned = await anyio.to_thread.run_sync(_plan_server, fit, granted, ledger, run_date)
    recipe = opened.bind_recipe(planned)
    granted = allow_bound(granted, planned, recipe)
    facts, tools = await anyio.to_thread.run_sync(_list_tools, recipe, granted)
    session = WorldSession(fit.id, tools, lambda: ToolCaller({fit.id: facts}, granted))
    try:
        yield session
    finally:
        await session.close()


def join_texts(results: Sequence[CallResult]) -> list[str]:
    """The texts of results, in order."""
    return [str(one.get("text", "")) for result in results for one in result.content]


def _plan_server(fit: Fit, policy: DeployPolicy, ledger: Ledger, run_date: str) -> LaunchRecipe:
    ecosystem = fit.id.partition(":")[0]
    try:
        if ecosystem == PRIVATE:
            planned = plan_local_server(fit.id, policy)
        elif pin := {"npm": "@", "pypi": "=="}.get(ecosystem):
            target = f"{fit.id}{pin}{fit.version}" if fit.version else fit.id
            planned = plan_target(target, policy, ledger=ledger, run_date=run_date)
        else:
            what = "only packages of npm and PyPI and commands of your own files are run by name"
            raise ServerUnavailable(f"{fit.id}: {what}")
    except UnknownLocalServer as error:
        raise ServerUnavailable(str(error)) from None
    if isinstance(planned, UnlaunchableServer):
        raise ServerUnavailable(f"{fit.id}: {planned.hint}")
    return planned


def _list_tools(
    recipe: LaunchRecipe, policy: DeployPolicy
) -> tuple[Mapping[str, Any], Mapping[str, Mapping[str, Any]]]:
    found = deploy(recipe, policy)
    if found.probe.status != "ok":
        raise ServerUnavailable(f"{recipe.server_id}: {found.probe.hint}")
    by_name = {str(tool.get("name")): tool for tool in found.probe.tools}
    return found.launched or dump_recipe(recipe), by_name
