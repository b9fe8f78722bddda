"""A real server at work in an open world: planned, listed once, and called."""

import fcntl
import os
import shutil
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, asynccontextmanager, contextmanager
from dataclasses import dataclass, replace
from functools import lru_cache
from pathlib import Path
from random import Random
from typing import Any

import anyio.to_thread

from assets.marketplaces.listing import PRIVATE
from assets.outcomes.worlds.catalogue import check_world, find_kind
from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.kind import FolderState, WorldState
from assets.outcomes.worlds.spec import ROOT, ServerFit, WorldSpec
from assets.outcomes.worlds.task import Task, TaskCall, make_tasks
from assets.outcomes.worlds.template import fill_template
from assets.outcomes.worlds.tree import Node, PlaceUnusable, Tree, WorldFailed, add_folders
from assets.servers.adhoc import UnknownLocalServer, allow_bound, plan_local_server, plan_target
from assets.servers.calls.caller import ToolCaller
from assets.servers.calls.result import CallResult
from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.grants import ServerGrant
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe, UnlaunchableServer, dump_recipe
from assets.servers.sandbox.spec import SandboxMount
from warehouse.ledger.ledger import Ledger
from warehouse.storage.digest import digest

_FOLDER = "state"  # what a server is shown; beside it lies the lock


class OpenWorld:
    """A world in its first state, held by this process alone; a context manager. grant: shows a
    server the world's folder and site, and no more."""

    def __init__(
        self, world: WorldSpec, seed: int, state: WorldState, resources: ExitStack
    ) -> None:
        self.world, self.seed = world, seed
        self._state, self._held = state, resources
        self.unusable: str | None = None

    @property
    def folder(self) -> Path:
        """On this host. A server writes to it: read it by `read_facts`, never follow its links."""
        return self._state.folder

    @property
    def grant(self) -> ServerGrant:
        # Of a database or a site that runs beside it nothing in the folder is written.
        writable = find_kind(self.world.kind).open_state is None
        folders = (SandboxMount(self.folder, DATA, writable=writable),)
        return ServerGrant(folders=folders, sites=self._state.sites)

    def bind_recipe(self, recipe: LaunchRecipe) -> LaunchRecipe:
        """A server's recipe in this world. Raises WorldFileError for one that it does not suit."""
        fit = self.world.find_fit(recipe.server_id)
        env = fill_template(fit.env, {ROOT: DATA})
        made_up = [name for name in recipe.placeholders if name.removeprefix("env:") not in env]
        args = recipe.args
        if fit.args is not None:
            args = tuple(fill_template(fit.args, {ROOT: DATA}))
            made_up = [name for name in made_up if name != "args" and not name.startswith("arg:")]
        changed = {
            "args": args,
            "env": tuple({**dict(recipe.env), **env}.items()),
            "placeholders": tuple(made_up),
        }
        return recipe.model_copy(update=changed)

    def read_facts(self) -> Facts:
        """The state as facts, key -> JSON value. Raises WorldFailed, OSError."""
        self._require_usable()
        try:
            return self._state.read_facts()
        except (WorldFailed, OSError):
            raise
        except Exception as error:
            raise WorldFailed(f"the state cannot be read: {type(error).__name__}") from error

    def read_first_facts(self) -> Facts:
        """Those of the first state."""
        return dict(self._state.first_facts)

    def digest_state(self) -> str:
        """Of the facts: the same for the same content. Raises WorldFailed."""
        facts = self.read_facts()
        try:
            return digest(facts)
        except ValueError as error:
            raise WorldFailed(f"the state cannot be read: {error}"[:300]) from error

    def reset(self) -> None:
        """Makes it the first state again. Raises WorldFailed, and the world is unusable then."""
        self._require_usable()
        try:
            self._state.reset()
        except Exception as error:
            why = (
                str(error) if isinstance(error, WorldFailed) else f"{type(error).__name__}: {error}"
            )
            self.unusable = f"world {self.world.name!r} in {self.folder} cannot be reset: {why}"
            raise WorldFailed(self.unusable) from error

    def tasks(self, seed: int, n: int = 1) -> list[Task]:
        """Tasks drawn by a seed, at most `n` from each template."""
        return make_tasks(self.world, self._state.first_facts, seed, DATA, n)

    def close(self) -> None:
        """Lets go of the place; what lies there stays until it is opened again or removed."""
        self._state.close()
        self._held.close()

    def __enter__(self) -> "OpenWorld":
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def _require_usable(self) -> None:
        if self.unusable:
            raise WorldFailed(self.unusable)


def open_world(world: WorldSpec, seed: int, place: Path) -> OpenWorld:
    """A world in the first state of its seed, in a folder of its own at `place`, which is emptied.
    Raises WorldFileError for what its file gets wrong, WorldFailed where it cannot be had."""
    check_world(world)
    if missing := find_missing(world):
        raise WorldFailed(f"world {world.name!r}: {missing}")
    kind = find_kind(world.kind)
    with ExitStack() as resources:
        resources.enter_context(_hold_place(world, place))
        folder, first = place / _FOLDER, make_first_tree(world, seed)
        state = (
            kind.open_state(folder, first) if kind.open_state else FolderState(kind, folder, first)
        )
        resources.callback(state.close)
        opened = OpenWorld(world, seed, state, resources.pop_all())
    try:
        opened.reset()
    except BaseException:
        opened.close()
        raise
    return opened


def find_missing(world: WorldSpec) -> str | None:
    """What this host lacks for a world, with what to install; None where it has all."""
    for program, package in find_kind(world.kind).programs.items():
        if shutil.which(program) is None:
            return f"needs `{program}`, which is not on PATH; install it (Debian: {package})"
    return None


def make_first_tree(world: WorldSpec, seed: int) -> dict[str, Node]:
    """The generator's seed files and those beside the world file. Raises WorldFileError."""
    tree: dict[str, Node] = {}
    if world.generator:
        facts = world.generator
        tree.update(_generate_tree(world.kind, facts.name, facts.size, f"{world.name}/{seed}"))
    return add_folders({**tree, **world.read_files()})


@lru_cache(maxsize=32)
def _generate_tree(kind: str, generator: str, size: int, seed: str) -> Tree:
    """What a generator makes. Kept: executions name each effect by it."""
    return find_kind(kind).generators[generator](Random(seed), size)


def _find_foreign(place: Path) -> str | None:
    """What lies at a place that no world left there: opening one empties its folder."""
    names = sorted(os.listdir(place))
    if "lock" not in names:
        return names[0] if names else None
    return next((name for name in names if name not in ("lock", _FOLDER, "cluster")), None)


@contextmanager
def _hold_place(world: WorldSpec, place: Path) -> Iterator[None]:
    """Makes the place, the user's alone, and holds it against other processes."""
    try:
        place.mkdir(mode=0o700, parents=True, exist_ok=True)
        if foreign := _find_foreign(place):
            raise PlaceUnusable(
                f"world {world.name!r}: {place} holds {foreign!r}, which is no world's and would be"
                " lost; name an empty folder"
            )
        lock = os.open(place / "lock", os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    except (FileExistsError, NotADirectoryError):
        raise PlaceUnusable(
            f"world {world.name!r}: {place} is a file, or below one; name an empty folder"
        ) from None
    except OSError as error:
        raise WorldFailed(f"world {world.name!r}: no place at {place}: {error.strerror}") from error
    try:
        try:
            fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            message = (
                f"world {world.name!r} is open in {place} already; wait, or choose another place"
            )
            raise WorldFailed(message) from None
        folder = place / _FOLDER
        folder.mkdir(exist_ok=True)
        folder.chmod(0o777)
        yield
    finally:
        os.close(lock)


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
    opened: OpenWorld, fit: ServerFit, policy: DeployPolicy, ledger: Ledger, run_date: str
) -> AsyncIterator[WorldSession]:
    """A server that lists its tools in the world. Raises ServerUnavailable, SandboxUnavailable."""
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
    return [str(item.get("text", "")) for result in results for item in result.content]


def _plan_server(
    fit: ServerFit, policy: DeployPolicy, ledger: Ledger, run_date: str
) -> LaunchRecipe:
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
    deployment = deploy(recipe, policy)
    if deployment.probe.status != "ok":
        raise ServerUnavailable(f"{recipe.server_id}: {deployment.probe.hint}")
    by_name = {str(tool.get("name")): tool for tool in deployment.probe.tools}
    return deployment.launched or dump_recipe(recipe), by_name
