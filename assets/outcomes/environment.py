"""Where a server's calls run: a world that suits it or a plain folder, in its first state."""

import asyncio
import shutil
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from dataclasses import dataclass, field, replace
from typing import Any

from assets.outcomes.worlds.session import OpenWorld, find_missing, make_first_tree, open_world
from assets.outcomes.worlds.spec import SeedGenerator, ServerFit, WorldSpec
from assets.outcomes.worlds.tree import WorldFailed, digest_tree
from assets.servers.adhoc import allow_bound
from assets.servers.calls.caller import ToolCaller
from assets.servers.calls.result import CallLimits
from assets.servers.deploy.grants import ServerGrant
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe, load_recipe
from warehouse.storage.digest import digest

# For servers that no world file names: an office's files, where recipes make up a folder's path.
PLAIN = WorldSpec(
    name="plain-folder",
    kind="folder",
    about="A folder of reports, notes and letters, for servers that no other world suits.",
    generator=SeedGenerator(name="office", size=12),
    servers=(ServerFit(id="npm:any", tools=("any",)),),
)
_LIMITS = CallLimits(sessions=1, launch_s=60.0, text_kb=128, media_mb=1, total_mb=2)


@dataclass
class ServerInWorld:
    """A server in an open world. restart: a reset needs a fresh one; first: the state's digest."""

    caller: ToolCaller = field(repr=False)
    world: OpenWorld = field(repr=False)
    restart: bool
    first: str
    _fresh: int = 0

    @property
    def owner(self) -> str:
        """In whose name it is called: another one for each fresh server."""
        return f"execution-{self._fresh}"

    async def put_back(self, *, fresh: bool) -> None:
        """The world in its first state. fresh: with a fresh server. Raises WorldFailed."""
        if fresh or self.restart:
            # The next call finds a fresh server.
            await self.caller.end_servers(self.owner)
            self._fresh += 1
        await asyncio.to_thread(self.world.reset)

    async def read_first(self) -> Mapping[str, Any]:
        """The facts of the first state; a world in another one, or that cannot be read, is put back
        first, for something still wrote after its call was answered. Raises WorldFailed."""
        with suppress(WorldFailed):
            facts = await self.read_state()
            if digest(facts) == self.first:
                return facts
        await self.put_back(fresh=True)
        return await self.read_state()

    async def read_state(self) -> Mapping[str, Any]:
        """The world's facts. Raises WorldFailed."""
        return await asyncio.to_thread(self.world.read_facts)


def choose_world(
    server_id: str, worlds: Sequence[WorldSpec], tools: Iterable[str] = ()
) -> WorldSpec:
    """The world that suits a server and most of these tools; PLAIN where none can be had."""
    tool_names = set(tools)
    fits = [
        (-len(tool_names & set(fit.tools)), place, world)
        for place, world in enumerate(worlds)
        for fit in world.servers
        if fit.id == server_id and find_missing(world) is None
    ]
    return min(fits, default=(0, 0, PLAIN))[2]


def digest_world(world: WorldSpec, seed: int) -> str:
    """Digest of all that decides a world's first state and how servers are pointed into it."""
    first = digest_tree(make_first_tree(world, seed))
    return digest([world.model_dump(mode="json", exclude={"path", "tasks", "about"}), first, seed])


def digest_task(world: WorldSpec, name: str, first: str) -> str:
    """Digest of all that decides a task and its check. first: `digest_world` of its world."""
    task_texts = [task.model_dump(mode="json") for task in world.tasks if task.name == name]
    return digest([first, *task_texts])


@asynccontextmanager
async def open_server(
    server_id: str,
    recipe: Mapping[str, Any],
    world: WorldSpec,
    seed: int,
    policy: DeployPolicy,
    place: str,
) -> AsyncIterator[ServerInWorld]:
    """A server in a world of its own, gone afterwards, with its user's network and secrets but none
    of the user's folders. place: names the world's folder. Raises WorldFailed, RecipeError."""
    folder = policy.home / "cache" / "worlds" / place
    opened = await asyncio.to_thread(open_world, world, seed, folder)
    try:
        user_grant = policy.grants.get(server_id) or ServerGrant()
        granted = replace(policy, grants={server_id: opened.grant.with_network_of(user_grant)})
        loaded = load_recipe(recipe)
        bound = bind_recipe(loaded, opened)
        facts = dump_recipe(bound)
        granted = allow_bound(granted, loaded, bound)
        fit = next((server for server in world.servers if server.id == server_id), None)
        caller = ToolCaller({server_id: facts}, granted, _LIMITS)
        try:
            first = await asyncio.to_thread(opened.digest_state)
            # What no world file says of a server: it may hold in memory what it wrote.
            yield ServerInWorld(caller, opened, fit is None or fit.restart, first)
        finally:
            await caller.close()
    finally:
        opened.close()
        await asyncio.to_thread(shutil.rmtree, folder, ignore_errors=True)


def bind_recipe(recipe: LaunchRecipe, opened: OpenWorld) -> LaunchRecipe:
    """The recipe of a server as it is launched in a world, whether or not that names it."""
    suits = any(fit.id == recipe.server_id for fit in opened.world.servers)
    return opened.bind_recipe(recipe) if suits else recipe
