"""Fleet: what a launch costs more as a task of Ray than in this process, and what is lost.

    python -m benchmarks.bench_fleet                  # 500 launches in each of four arms
    python -m benchmarks.bench_fleet --launches 100

One real server of npm is fetched once and launched in its sandbox again and again, by this process
and by a Ray cluster of this machine, one and two at a time, ten rounds in turns. Needs the package
ray (`uv pip install 'toolmill[ray]'`).
"""

import argparse
import tempfile
import time
from functools import partial
from pathlib import Path
from statistics import median

from assets.marketplaces.listing import Listing, Package
from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.on_fleet import deploy_on
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.deploy.result import Deployed
from assets.servers.packages.resolve import Resolver
from assets.servers.recipes.recipe import Recipe
from assets.servers.recipes.recipe_plan import plan_recipe
from assets.servers.sandbox.toolchain import find_toolchain
from warehouse.fleet.fleet import Fleet, FleetSettings, LocalFleet
from warehouse.fleet.ray_fleet import RayFleet
from warehouse.fleet.side_by_side import map_side_by_side
from warehouse.ledger.ledger import Ledger
from warehouse.sanitize.markdown import make_markdown_table
from warehouse.storage.blobs import Blobs

SERVER, ROUNDS, WORKERS = "@modelcontextprotocol/server-everything", 10, (1, 2)


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--launches", type=int, default=500, help="of each arm")
    each = max(1, parser.parse_args().launches // ROUNDS)
    with tempfile.TemporaryDirectory(prefix="fleet-") as folder:
        recipe, policy = fetch_server(Path(folder))
        fleets: dict[str, Fleet] = {
            "this process": LocalFleet(),
            "Ray": RayFleet(FleetSettings(runs_on="ray", address="local", memory_mb=256)),
        }
        for fleet in fleets.values():  # its workers' start and imports are no launch's cost
            map_side_by_side(
                lambda _, f=fleet: deploy_on(f, recipe, policy), WORKERS, concurrency=2
            )
        arms = [(name, at_once) for at_once in WORKERS for name in fleets]
        took: dict[tuple[str, int], list[float]] = {arm: [] for arm in arms}
        lost = dict.fromkeys(arms, 0)
        for at in range(ROUNDS):
            for arm in arms if at % 2 else reversed(arms):
                run = partial(launch_many, fleets[arm[0]], recipe, policy, each, arm[1])
                seconds, failed = run()
                took[arm].append(seconds)
                lost[arm] += failed
    print(render_table(took, lost, each))


def fetch_server(home: Path) -> tuple[Recipe, DeployPolicy]:
    """The server's recipe, its package installed below `home`."""
    toolchain = find_toolchain()
    resolve = Resolver(home, toolchain, Ledger(home / "ledger.db", Blobs(home / "blobs")), "bench")
    package = Package(type="npm", identifier=SERVER)
    listing = Listing(
        marketplace="registry",
        native_id=SERVER,
        name=SERVER,
        transport="stdio",
        package=package,
        runnable=True,
    )
    recipe = plan_recipe(listing, resolve)
    policy = DeployPolicy(home, twice=False)
    if not isinstance(recipe, Recipe) or deploy(recipe, policy).probe.status != "ok":
        raise SystemExit(f"{SERVER} does not start here: {recipe}")
    return recipe, policy


def launch_many(
    fleet: Fleet, recipe: Recipe, policy: DeployPolicy, launches: int, at_once: int
) -> tuple[float, int]:
    """(seconds, launches that did not list their tools)."""
    begun = time.perf_counter()
    answers = map_side_by_side(
        lambda _: deploy_on(fleet, recipe, policy), range(launches), concurrency=at_once
    )
    seconds = time.perf_counter() - begun
    return seconds, sum(Deployed.from_json(answer).probe.status != "ok" for answer in answers)


def render_table(
    took: dict[tuple[str, int], list[float]], lost: dict[tuple[str, int], int], each: int
) -> str:
    rows = []
    for (name, at_once), seconds in took.items():
        here = took["this process", at_once]
        pairs = zip(seconds, here, strict=True)
        more = median((mine - base) * at_once / each * 1000 for mine, base in pairs)
        ratio = median(mine / base for mine, base in zip(seconds, here, strict=True))
        cells = [median(seconds) / each * 1000, more, ratio]
        n = each * len(seconds)
        rows.append([name, at_once, n, lost[name, at_once], *(f"{cell:.3g}" for cell in cells)])
    columns = ["fleet", "at a time", "launches", "lost", "ms a launch", "ms more a task", "x"]
    return make_markdown_table(columns, rows)


if __name__ == "__main__":
    main()
