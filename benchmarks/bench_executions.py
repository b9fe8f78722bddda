"""Executions and replayed calls against a bare loop of the MCP SDK with equal concurrency.

    python -m benchmarks.bench_executions [--calls 60] [--rounds 3]

Both arms make the same calls of one real server (npm server-filesystem) in four folders with the
same content, one server process a folder, one or four at a time; processes are started within the
clock. The bare loop starts the installed server without a sandbox, makes each call once and keeps
nothing. Ours is the asset's own run: sandbox, capped and scanned answers, the state before and
after each call, a reset after each change, unchanged calls made twice, the ledger; with `prove`
calls that change something are made with other arguments too. Printed: executions a minute and the
ratio of the same round, median (lowest to highest). Replay answers the recorded calls, schema
checks included.
"""

import argparse
import asyncio
import json
import statistics
import time
from collections.abc import Awaitable, Callable, Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from mcp import ClientSession, StdioServerParameters
from mcp.client.stdio import stdio_client

from assets.contracts.canonical import contract_digest
from assets.outcomes.execution import ToolCall
from assets.outcomes.outcome import USEFUL
from assets.outcomes.plan import make_execution_row
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.recording import RecordedCall, Recording, ReplayTask, add_executions
from assets.outcomes.replay_environment import ReplayEnvironment
from assets.outcomes.run import Job, Run
from assets.outcomes.select import Launchable, WantedCall
from assets.outcomes.worlds.catalogue import find_world
from assets.outcomes.worlds.session import open_session, open_world
from assets.outcomes.worlds.spec import World
from assets.servers.deploy.package import make_launch
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.install import ensure_artifact
from assets.servers.recipes.package_files import SERVER
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import dump_recipe, load_recipe
from assets.servers.sandbox.toolchain import find_toolchain
from orchestration.factories import make_launcher
from orchestration.settings.load import load_settings
from warehouse.ledger.ledger import Ledger
from warehouse.progress import Silent
from warehouse.storage.blobs import Blobs

SERVER_ID = "npm:@modelcontextprotocol/server-filesystem"
COPIES, SEED = 4, 7
REPLAYS = 10  # of all recorded calls
AT_ONCE = (1, 4)


@dataclass(frozen=True)
class Bench:
    """What both arms share. calls: of each copy of the world, in order."""

    policy: DeployPolicy
    server: Launchable
    contracts: dict[str, dict[str, Any]]
    worlds: tuple[World, ...]
    calls: tuple[tuple[tuple[str, dict[str, Any]], ...], ...]

    @property
    def n(self) -> int:
        return sum(map(len, self.calls))


async def prepare_bench(policy: DeployPolicy, ledger: Ledger, n: int) -> Bench:
    """Lists the server's tools once, and draws the calls of each copy from its first state."""
    first = find_world("office-folder")
    worlds = tuple(first.model_copy(update={"name": f"office-{at}"}) for at in range(COPIES))
    with TemporaryDirectory() as folder, open_world(worlds[0], SEED, Path(folder)) as opened:
        fit = first.find_fit(SERVER_ID)
        async with open_session(opened, fit, policy, ledger, "2026-01-01.1") as session:
            facts = session.make_caller()._recipes(SERVER_ID)
            contracts = {name: dict(one) for name, one in session.contracts.items()}
    assert facts is not None
    recipe = load_recipe(facts)
    server = Launchable(SERVER_ID, dump_recipe(recipe), recipe.digest)
    return Bench(policy, server, contracts, worlds, tuple(draw_calls(world, n) for world in worlds))


def draw_calls(world: World, n: int) -> tuple[tuple[str, dict[str, Any]], ...]:
    """Reads from the top, from the end, and writes in turn, all different: two of three change
    nothing."""
    with TemporaryDirectory() as folder, open_world(world, SEED, Path(folder)) as opened:
        files = sorted(key for key in opened.read_first_facts() if key.endswith(".md"))
    made: list[tuple[str, dict[str, Any]]] = []
    for at in range(n):
        path = f"{DATA}/{files[at % len(files)]}"
        made.append(
            (
                ("read_text_file", {"path": path, "head": 1 + at}),
                ("read_text_file", {"path": path, "tail": 1 + at}),
                ("write_file", {"path": f"{DATA}/new-{at}.txt", "content": f"line {at}"}),
            )[at % 3]
        )
    return tuple(made)


async def run_ours(bench: Bench, at_once: int, ledger: Ledger, *, prove: bool) -> Run:
    """All calls by the run that the asset makes."""
    settings = ExecutionPolicy(calls=10**6, seconds=1e6, seed=SEED, prove=prove)
    run = Run(bench.policy, settings, ledger, "bench", "2026-01-01.1", at_once, Silent())
    await run.carry_out(list(make_jobs(bench)))
    return run


def make_jobs(bench: Bench) -> Iterable[Job]:
    for world, calls in zip(bench.worlds, bench.calls, strict=True):
        for at, (tool, arguments) in enumerate(calls):
            contract = bench.contracts[tool]
            call = ToolCall(SERVER_ID, tool, contract, contract_digest(contract), arguments)
            wanted = WantedCall(call, [f"p1:{at}"], [" ".join(map(str, arguments.values()))])
            name = f"{wanted.identify(world.name, SEED)}-{at}"
            yield Job(name, wanted, bench.server, world, SEED)


async def run_bare(bench: Bench, at_once: int) -> int:
    """The same calls by the SDK's client; returns how many were answered without an error."""
    places = asyncio.Semaphore(at_once)

    async def run_copy(world: World, calls: Sequence[tuple[str, dict[str, Any]]]) -> int:
        async with places:
            with TemporaryDirectory() as folder, open_world(world, SEED, Path(folder)) as opened:
                where, ok = str(opened.folder), 0
                async with (
                    stdio_client(make_parameters(bench, where)) as streams,
                    ClientSession(*streams[:2]) as session,
                ):
                    await session.initialize()
                    for tool, arguments in calls:
                        sent = json.loads(json.dumps(arguments).replace(DATA, where))
                        ok += not (await session.call_tool(tool, sent)).is_error
                return ok

    copies = zip(bench.worlds, bench.calls, strict=True)
    return sum(await asyncio.gather(*(run_copy(*copy) for copy in copies)))


def count_useful(run: Run) -> int:
    made = [one.execution for one in run.done.values()]
    return sum(one is not None and one.outcome == USEFUL for one in made)


def make_parameters(bench: Bench, folder: str) -> StdioServerParameters:
    """The command of the installed server as it is, on a folder of this host."""
    recipe, toolchain = load_recipe(bench.server.recipe), find_toolchain()
    artifact = ensure_artifact(
        recipe, home=bench.policy.home, toolchain=toolchain, policy=bench.policy.sandbox
    )
    launch = make_launch(recipe, artifact, toolchain)

    def localise(text: str) -> str:
        return text.replace(str(SERVER), str(artifact.tree)).replace(DATA, folder)

    argv = [localise(one) for one in launch.argv]
    env = {name: localise(value) for name, value in launch.env.items()}
    return StdioServerParameters(command=argv[0], args=argv[1:], env=env)


def make_recording(bench: Bench, run: Run, ledger: Ledger) -> Recording:
    """The executed calls as tasks of one call each."""
    made, jobs = Recording(), [job for job in make_jobs(bench) if job.id in run.done]
    listed = [
        {"server_id": SERVER_ID, "tool": name, "contract_digest": contract_digest(one),
         "contract": one}
        for name, one in bench.contracts.items()
    ]  # fmt: skip
    rows = [make_execution_row(job, run.done[job.id]) for job in jobs]
    add_executions(made, rows, listed, ledger.blobs.get)
    for job in jobs:
        done, call = run.done[job.id].execution, job.wanted.call
        if done is None or call.contract_digest not in made.contracts:
            continue
        own = RecordedCall(SERVER_ID, call.tool, call.contract_digest, dict(call.arguments))
        states = {SERVER_ID: (done.before, done.after)}
        made.tasks[job.id] = ReplayTask(job.id, "", (own,), states, (call.contract_digest,))
    return made


def replay_calls(made: Recording) -> tuple[int, int]:
    """(calls, misses) of every task, `REPLAYS` times."""
    environment, calls, missed = ReplayEnvironment(made), 0, 0
    for _ in range(REPLAYS):
        for name, task in made.tasks.items():
            environment.reset(name)
            missed += environment.step(task.calls[0].tool, task.calls[0].arguments).missed
            calls += 1
    return calls, missed


async def measure_seconds(make: Callable[[], Awaitable[Any]]) -> tuple[float, Any]:
    began = time.perf_counter()
    found = await make()
    return time.perf_counter() - began, found


async def run_rounds(bench: Bench, rounds: int, folder: Path) -> dict[str, list[float]]:
    """Arm -> per round what it did a minute, and its ratio to the bare loop of equal
    concurrency."""
    found: dict[str, list[float]] = {}

    def note(arm: str, rate: float, bare: float) -> None:
        found.setdefault(arm, []).append(rate)
        found.setdefault(f"{arm}, ratio", []).append(rate / bare)

    for at in range(rounds):
        replayed = 0.0
        bare_one = 0.0
        for at_once in AT_ONCE:
            seconds, ok = await measure_seconds(lambda n=at_once: run_bare(bench, n))
            assert ok == bench.n, f"the bare loop: {ok} of {bench.n} answered"
            bare = 60 * bench.n / seconds
            bare_one = bare_one or bare
            note(f"bare loop, {at_once} at once", bare, bare)
            for prove in (False, True):
                ledger = open_ledger(folder / f"{at}-{at_once}-{prove}")
                seconds, run = await measure_seconds(
                    lambda n=at_once, p=prove, held=ledger: run_ours(bench, n, held, prove=p)
                )
                useful = count_useful(run)
                assert useful == bench.n, f"ours: {useful} of {bench.n} useful"
                words = "with proofs" if prove else "without proofs"
                note(f"ours {words}, {at_once} at once", 60 * bench.n / seconds, bare)
                if not replayed:
                    made = make_recording(bench, run, ledger)
                    began = time.perf_counter()
                    calls, missed = replay_calls(made)
                    replayed = calls / (time.perf_counter() - began)
                    assert not missed, f"{missed} of {calls} replayed calls missed"
                    note(f"replay of {calls} calls", 60 * replayed, bare_one)
    return found


def open_ledger(folder: Path) -> Ledger:
    folder.mkdir(parents=True)
    return Ledger(folder / "ledger.db", Blobs(folder / "blobs"))


def render_rounds(found: dict[str, list[float]]) -> str:
    lines = ["| arm | a minute | x bare loop |", "| --- | ---: | --- |"]
    for arm in (name for name in found if not name.endswith(", ratio")):
        ratios = found[f"{arm}, ratio"]
        spread = f"{statistics.median(ratios):.2f} ({min(ratios):.2f} to {max(ratios):.2f})"
        lines.append(f"| {arm} | {statistics.median(found[arm]):,.0f} | {spread} |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--calls", type=int, default=60, help="in each of the four folders")
    parser.add_argument("--rounds", type=int, default=3)
    chosen = parser.parse_args()
    policy = make_launcher(load_settings()).policy
    with TemporaryDirectory() as folder:
        place = Path(folder)
        bench = asyncio.run(prepare_bench(policy, open_ledger(place / "first"), chosen.calls))
        found = asyncio.run(run_rounds(bench, chosen.rounds, place))
    print(f"{bench.n} calls a round, {chosen.rounds} rounds")
    print(render_rounds(found))


if __name__ == "__main__":
    main()
