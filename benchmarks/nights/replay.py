"""Replay: launches, look-ups of packages and calls answered by the month's truth, in no sandbox.

What stands around them is the product's: plans, recipes, ledger, tables. The sandbox and the real
registries are tested elsewhere."""

import os
import signal
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import Any
from unittest.mock import patch

from assets.marketplaces.listing import PackageRef
from assets.servers.calls.result import CallResult
from assets.servers.deploy.package import DeploymentResult, make_failed
from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.probe.probe import ProbeResult
from assets.servers.recipes.recipe import LaunchRecipe, ResolvedVersion
from assets.servers.recipes.version_resolver import VersionResolver
from demo.world.month import MonthDay
from warehouse.storage.digest import digest

# As share of packages that never launch here: what they want nobody has.
_WANTING = (("needs_secret", 0.12), ("crashed", 0.04), ("no_tools", 0.02))
_DOWN = 0.01  # of a day's launches whose download fails on that day, from the third on


@dataclass
class Replay:
    """The packages of a day. kill_at: the launch at which this process dies of SIGKILL."""

    day: MonthDay
    kill_at: int | None = None
    launches: int = 0

    def deploy(self, recipe: LaunchRecipe, *_: Any) -> DeploymentResult:
        """What a launch of a recipe comes to."""
        self.launches += 1
        if self.launches == self.kill_at:
            os.kill(os.getpid(), signal.SIGKILL)
        if kind := self._find_failure(recipe):
            return make_failed(ProbeFailure(kind, f"{recipe.server_id} as the replay has it"))
        name = recipe.url or recipe.name
        found = self.day.find_tools(recipe.ecosystem, name, recipe.version)
        if found is None:
            return make_failed(
                ProbeFailure("not_found", f"no {name} at {recipe.version} on this day")
            )
        return DeploymentResult(
            ProbeResult("ok", tools=[dict(tool) for tool in found.tools], seconds=0.01)
        )

    def resolve(self, package: PackageRef) -> ResolvedVersion:
        """The version that is asked for, and a hash that follows from it."""
        facts = digest([package.type, package.identifier, package.version])
        return ResolvedVersion(package.version or "1.0.0", f"sha256:{facts}")

    def _find_failure(self, recipe: LaunchRecipe) -> str | None:
        dice = int(digest([self.day.month.seed, recipe.server_id])[:12], 16) / 16**12
        for kind, share in _WANTING:
            if dice < share:
                return kind
            dice -= share
        if self.day.day < 3:  # so that nothing is left to do on the second, when nothing changes
            return None
        today = digest([self.day.month.seed, recipe.server_id, recipe.version, self.day.day])
        return "fetch_failed" if int(today[:12], 16) / 16**12 < _DOWN else None


class ReplayedCaller:
    """Answers every call by what was asked, and keeps no state."""

    def __init__(self, *_: Any) -> None: ...

    async def call(
        self, server_id: str, tool: str, _: Mapping[str, Any], arguments: Any, **__: Any
    ) -> CallResult:
        """One text that follows from the call."""
        text = f"{tool}: {digest([server_id, tool, arguments])[:16]}"
        return CallResult("ok", content=[{"type": "text", "text": text}], seconds=0.001)

    async def end_servers(self, _: str) -> None: ...

    async def close(self) -> None: ...


@contextmanager
def replay_launches(replay: Replay) -> Iterator[None]:
    """No server starts and no registry is asked while this is open."""

    def resolve(_: VersionResolver, package: PackageRef) -> ResolvedVersion:
        return replay.resolve(package)

    with ExitStack() as patches:
        patches.enter_context(patch("assets.servers.deploy.deploy.deploy_allowed", replay.deploy))
        patches.enter_context(patch("assets.outcomes.environment.ToolCaller", ReplayedCaller))
        for kind in ("npm", "pypi", "mcpb", "oci"):
            patches.enter_context(patch.object(VersionResolver, f"_resolve_{kind}", resolve))
        yield


@contextmanager
def fill_disk(after: int) -> Iterator[Callable[[], int]]:
    """A disk that takes so many more writes of the warehouse: the next sync says ENOSPC."""
    import errno

    real, done = os.fsync, 0

    def sync(handle: int) -> None:
        nonlocal done
        done += 1
        if done > after:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        real(handle)

    with patch("os.fsync", sync):
        yield lambda: max(done - after, 0)
