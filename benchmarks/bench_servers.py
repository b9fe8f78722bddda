"""Servers per minute: ours, sandboxed, beside loops of the `mcp` SDK's client, unsandboxed.

    python -m benchmarks.bench_servers [--servers 6] [--rounds 2] [--concurrency 3]

The same list at the same exact versions in the same run: the known servers of
`shared/data/real-servers`. Ours: plan, fetch, sandbox, list, all limits on. The loops: `npx -y
NAME@VERSION` and `uvx NAME==VERSION` through `stdio_client`, one after the other, and as many at a
time as ours. Each arm has cache folders of its own: empty when cold, those of its cold pass when
warm (npx and uvx keep their installs, ours keeps artefacts). The order of the arms turns round
with every round. The escape suite that certifies the sandbox runs once a process; its time is told
apart. Then the sandbox alone: one npm and one Python server, installed once, started in turn
inside, by the same probe without isolation, and by the SDK's client, up to the answer of
`tools/list`.
"""

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable, Mapping
from pathlib import Path
from random import Random
from typing import Any

import anyio

from assets.marketplaces.listing import Listing, Package
from assets.servers.certificate.certificate import certify
from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.package import launch_of
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.packages.fetch import ensure_artifact
from assets.servers.packages.mcpb import SERVER
from assets.servers.packages.resolve import Resolver
from assets.servers.probe.probe import probe
from assets.servers.recipes.recipe import Recipe, Unlaunchable, plan_recipe
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from benchmarks.bench_launch import known
from warehouse.fleet import LocalFleet
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs

# Small ones first, npm and PyPI in turn: the first N are the list.
ORDER = (
    "npm:@modelcontextprotocol/server-everything", "pypi:mcp-server-time",
    "npm:@modelcontextprotocol/server-memory", "pypi:mcp-server-git",
    "npm:@modelcontextprotocol/server-filesystem", "pypi:mcp-server-fetch",
    "npm:@notionhq/notion-mcp-server", "pypi:excel-mcp-server",
    "npm:@modelcontextprotocol/server-sequential-thinking", "pypi:arxiv-mcp-server",
    "npm:@playwright/mcp", "pypi:mcp-atlassian", "npm:mongodb-mcp-server",
)  # fmt: skip
_PATIENCE = 180.0
Arm = Callable[[Path], int]


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--data", type=Path, default=Path("../shared/data"))
    parser.add_argument("--servers", type=int, default=6)
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--concurrency", type=int, default=3)
    parser.add_argument("--starts", type=int, default=20, help="of each server, inside and outside")
    options = parser.parse_args()
    listings = known(options.data)
    with tempfile.TemporaryDirectory(prefix="bench-servers-") as folder:
        root = Path(folder)
        recipes = planned([listings[name] for name in ORDER[: options.servers]], root / "plan")
        begun = time.perf_counter()
        certify(SandboxPolicy(), find_toolchain())
        print(f"escape suite, once a process: {time.perf_counter() - begun:.1f} s")
        print(f"{len(recipes)} servers, concurrency {options.concurrency}, {options.rounds} rounds")
        throughput(recipes, root, options.rounds, options.concurrency)
        overhead(recipes, root / "plan", options.starts)


def planned(listings: list[Listing], home: Path) -> list[Recipe]:
    """Exact versions for all arms alike; resolving is part of ours again in every pass."""
    recipes = [plan_recipe(listing, _resolver(home)) for listing in listings]
    missing = [one for one in recipes if isinstance(one, Unlaunchable)]
    if missing:
        raise SystemExit(f"not to be had: {[one.reason for one in missing]}")
    return [one for one in recipes if isinstance(one, Recipe)]


def throughput(recipes: list[Recipe], root: Path, rounds: int, concurrency: int) -> None:
    arms: dict[str, Arm] = {
        "ours, sandboxed": lambda home: ours(recipes, home, concurrency),
        "loop, sequential": lambda home: loop(recipes, home, 1),
        "loop, equal concurrency": lambda home: loop(recipes, home, concurrency),
    }
    seconds: dict[tuple[str, str], list[float]] = {}
    listed: dict[tuple[str, str], int] = {}
    for turn in range(rounds):
        homes = {name: root / f"{turn}-{at}" for at, name in enumerate(arms)}
        for state in ("cold", "warm"):
            for name in list(arms)[:: -1 if turn % 2 else 1]:
                begun = time.perf_counter()
                listed[name, state] = arms[name](homes[name])
                took = time.perf_counter() - begun
                seconds.setdefault((name, state), []).append(took)
    print("\n| arm | cache | servers listed | seconds, each round | servers/min | x ours |")
    print("| --- | --- | ---: | --- | ---: | ---: |")
    for (name, state), took in seconds.items():
        median = statistics.median(took)
        ratio = median / statistics.median(seconds["ours, sandboxed", state])
        each = ", ".join(f"{one:.1f}" for one in took)
        per_minute = 60 * len(recipes) / median
        print(
            f"| {name} | {state} | {listed[name, state]} of {len(recipes)} | {each}"
            f" | {per_minute:.1f} | {ratio:.2f} |"
        )


def ours(recipes: list[Recipe], home: Path, concurrency: int) -> int:
    """Plan, fetch, launch in the sandbox; returns how many listed their tools."""
    resolve, toolchain = _resolver(home), find_toolchain()
    policy = DeployPolicy(home, twice=False)

    def one(recipe: Recipe) -> bool:
        kind: Any = recipe.ecosystem
        resolve(Package(type=kind, identifier=recipe.name, version=recipe.version))
        return deploy(recipe, policy, toolchain).probe.status == "ok"

    done = LocalFleet().map(one, recipes, concurrency=concurrency)
    return sum(bool(result.value) for result in done)


def loop(recipes: list[Recipe], home: Path, concurrency: int) -> int:
    """`npx -y` and `uvx` through the SDK's client, in folders of their own."""
    home.mkdir(parents=True, exist_ok=True)
    env = {
        **os.environ,
        "npm_config_cache": str(home / "npm"),
        "UV_CACHE_DIR": str(home / "uv"),
        "UV_TOOL_DIR": str(home / "tools"),
        **{k: v for k, v in find_toolchain().fetch_env.items() if k.startswith("UV_")},
    }
    uvx = str(find_toolchain().uv.parent / "uvx")

    async def all_of_them() -> int:
        counts: list[int] = []
        limit = anyio.CapacityLimiter(concurrency)

        async def one(recipe: Recipe) -> None:
            argv = (
                ["npx", "-y", f"{recipe.name}@{recipe.version}"]
                if recipe.ecosystem == "npm"
                else [uvx, f"{recipe.name}=={recipe.version}"]
            )
            async with limit:
                counts.append(await _listed([*argv, *recipe.args], {**env, **dict(recipe.env)}))

        async with anyio.create_task_group() as tasks:
            for recipe in recipes:
                tasks.start_soon(one, recipe)
        return sum(count > 0 for count in counts)

    return anyio.run(all_of_them)


def overhead(recipes: list[Recipe], home: Path, starts: int) -> None:
    """Seconds to the answer of `tools/list`, inside and outside, in turn."""
    print("\n| server | starts each | beside | median ms | inside | overhead | 95% interval |")
    print("| --- | ---: | --- | ---: | ---: | ---: | --- |")
    for kind in ("npm", "pypi"):
        recipe = next((one for one in recipes if one.ecosystem == kind), None)
        if recipe is None:
            continue
        inside, others = _starts(recipe, home, starts)
        for name, outside in others.items():
            gap, low, high = median_gap(inside, outside)
            told = (statistics.median(outside), statistics.median(inside), gap)
            cells = " | ".join(f"{1000 * one:.0f}" for one in told)
            span = f"{1000 * low:.0f} to {1000 * high:.0f}"
            print(f"| {recipe.name} | {starts} | {name} | {cells} | {span} |")


def _starts(recipe: Recipe, home: Path, starts: int) -> tuple[list[float], dict[str, list[float]]]:
    toolchain = find_toolchain()
    artifact = ensure_artifact(recipe, home=home, toolchain=toolchain)
    launch = launch_of(recipe, artifact, toolchain)
    argv = [word.replace(SERVER, str(artifact.tree)) for word in launch.argv]
    env = {name: value.replace(SERVER, str(artifact.tree)) for name, value in launch.env.items()}
    bare = {"PATH": os.environ["PATH"], **env}
    ways: dict[str, Callable[[], float]] = {
        "inside": lambda: probe(launch, SandboxPolicy()).seconds,
        "the same probe, no isolation": lambda: (
            probe(launch, SandboxPolicy(backend="none")).seconds
        ),
        "the SDK's client": lambda: anyio.run(_seconds, argv, bare),
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for turn in range(starts + 1):  # the first turn warms the disk's cache and is not counted
        names = list(ways)
        for name in (*names[turn % 3 :], *names[: turn % 3]):
            seconds = ways[name]()
            if turn:
                taken[name].append(seconds)
    return taken.pop("inside"), taken


def median_gap(inside: list[float], outside: list[float]) -> tuple[float, float, float]:
    """Median of inside - outside over pairs, with a bootstrap's 95% interval."""
    gaps = [one - other for one, other in zip(inside, outside, strict=True)]
    rng = Random(0)
    drawn = sorted(statistics.median(rng.choices(gaps, k=len(gaps))) for _ in range(2000))
    return statistics.median(gaps), drawn[50], drawn[1949]


async def _seconds(argv: list[str], env: Mapping[str, str]) -> float:
    begun = time.perf_counter()
    ended: list[float] = []
    await _listed(argv, env, lambda: ended.append(time.perf_counter() - begun))
    return ended[0] if ended else float("nan")


async def _listed(
    argv: list[str], env: Mapping[str, str], on_listed: Callable[[], None] | None = None
) -> int:
    """How many tools a server lists; 0 where it does not."""
    from mcp import ClientSession, StdioServerParameters
    from mcp.client.stdio import stdio_client

    parameters = StdioServerParameters(command=argv[0], args=argv[1:], env=dict(env))
    found = 0
    with open(os.devnull, "w") as quiet, anyio.move_on_after(_PATIENCE):
        try:
            async with (
                stdio_client(parameters, errlog=quiet) as (read, write),
                ClientSession(read, write) as session,
            ):
                await session.initialize()
                found = len((await session.list_tools()).tools)
                if on_listed:
                    on_listed()
        except (Exception, BaseExceptionGroup):
            return found
    return found


def _resolver(home: Path) -> Resolver:
    ledger = Ledger(home / "ledger.db", Blobs(home / "blobs"))
    return Resolver(home, find_toolchain(), ledger, "bench")


if __name__ == "__main__":
    main()
