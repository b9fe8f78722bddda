"""All trajectories of some worlds: every server that suits them, alone and two by two."""

from collections import Counter
from collections.abc import Collection, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.outcomes.trajectories.play import Stage, match_stages, play_stage, play_tasks
from assets.outcomes.trajectories.trajectory import KEPT, TRAJECTORIES, Trajectory
from assets.outcomes.worlds.errors import WorldFailed, WorldFileError
from assets.outcomes.worlds.opened import open_world
from assets.outcomes.worlds.session import open_session
from assets.outcomes.worlds.spec import Fit, World
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.sandbox.spec import SandboxUnavailable
from warehouse.json_types import Record
from warehouse.ledger.ledger import Ledger
from warehouse.progress import Progress
from warehouse.storage.tables import Tables


@dataclass
class Collected:
    """What was played, and the worlds and servers that could not be."""

    made: list[Trajectory] = field(default_factory=list)
    problems: list[str] = field(default_factory=list)

    def get_figures(self) -> dict[str, Any]:
        """Counts for people."""
        dropped = Counter(one.why for one in self.made if one.why)
        return {
            "played": len(self.made),
            "kept": len(self.made) - dropped.total(),
            "recoveries": sum(len(one.right) < len(one.steps) for one in self.made if not one.why),
            "two_servers": sum(len(one.places) > 1 for one in self.made if not one.why),
            "dropped": dict(dropped.most_common()),
            "problems": self.problems,
        }


async def collect_trajectories(
    found: Collected,
    worlds: Sequence[World],
    policy: DeployPolicy,
    ledger: Ledger,
    run_date: str,
    progress: Progress,
    *,
    servers: Collection[str] = (),
    seed: int = 1,
    n: int = 1,
) -> None:
    """Plays `n` tasks of each kind; what is played is in `found` at once. servers: only these, by
    id; () for all. What one world or server cannot do is a problem and costs the others nothing."""
    stages = list[Stage]()
    cache = policy.home / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    async with AsyncExitStack() as held:
        folder = Path(held.enter_context(TemporaryDirectory(prefix="trajectories-", dir=cache)))
        for world in worlds:
            for fit in world.servers:
                if servers and fit.id not in servers:
                    continue
                try:
                    place = folder / str(len(stages) + len(found.problems))
                    made = await _open_stage(
                        world, fit, seed, place, held, policy, ledger, run_date
                    )
                    made.list_tasks(seed, n)  # a template that nothing fills fails here alone
                    stages.append(made)
                except (WorldFailed, WorldFileError, SandboxUnavailable) as error:
                    found.problems.append(f"{world.name}, {fit.id}: {error}")
                    continue
                await _play_alone(stages[-1], found, seed, n)
                progress.update("trajectories", len(stages), sum(len(w.servers) for w in worlds))
        for stage in match_stages(stages, seed, n):
            try:
                found.made.append(await play_tasks(stage))
            except WorldFailed as error:
                found.problems.append(str(error))


def publish_trajectories(tables: Tables, made: Sequence[Trajectory], run_id: str) -> int:
    """Adds trajectories to those that were published; returns how many are kept in all."""
    rows = merge_trajectories(tables, made)
    tables.promote(tables.stage(TRAJECTORIES, TRAJECTORIES.frame(rows)), run_id, [])
    return sum(row["status"] == KEPT for row in rows)


def merge_trajectories(tables: Tables, made: Sequence[Trajectory]) -> list[Record]:
    """The rows that are published, and these. One that is played again takes the place of what it
    was."""
    rows = {row["trajectory_id"]: row for row in tables.read(TRAJECTORIES).to_dicts()}
    rows |= {row["trajectory_id"]: row for row in (one.make_row() for one in made)}
    return list(rows.values())


async def _open_stage(
    world: World,
    fit: Fit,
    seed: int,
    place: Path,
    held: AsyncExitStack,
    policy: DeployPolicy,
    ledger: Ledger,
    run_date: str,
) -> Stage:
    opened = held.enter_context(open_world(world, seed, place))
    made = open_session(opened, fit, policy, ledger, run_date)
    return Stage(opened, fit, await held.enter_async_context(made))


async def _play_alone(stage: Stage, found: Collected, seed: int, n: int) -> None:
    try:
        async for made in play_stage(stage, seed, n):
            found.made.append(made)
    except WorldFailed as error:
        found.problems.append(str(error))
