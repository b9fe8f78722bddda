"""Wrong calls in worlds: what execution, the rules and the offline judge catch of each kind.

    python -m benchmarks.bench_mutants [--seed 16] [--most 60] [--world NAME] [--server ID]

Good calls are the reference calls of single-call tasks, drawn by a seed that no task was written
with; mutants are theirs (`call_mutants.py`), each valid by its contract. Every call runs on its
real server in a fresh first state, in the sandbox of this home's settings; installed servers are
not fetched again. Arms, a wrong call is *caught* and a good one a *false alarm* where

    rules          `verify_row` rejects the pair
    judge          rules reject it, or the offline judge does not accept it
    end state      the task's own check fails: the end state is known
    proof refutes  `prove_call` says refuted: only the request, the call and its effect are known
    not proved     it does not say proved, which is what `--proved` leaves out

Intervals: 95%, whole servers drawn (bootstrap).
"""

import argparse
import asyncio
import json
import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any

from assets.contracts.tool_id import ToolId
from assets.outcomes.execution import ToolCall, execute_call
from assets.outcomes.kept import Execution
from assets.outcomes.proofs.effect import Effect, Facts
from assets.outcomes.proofs.proof import prove_call
from assets.outcomes.table import PROVED, REFUTED
from assets.outcomes.worlds.catalogue import list_worlds
from assets.outcomes.worlds.errors import WorldFailed
from assets.outcomes.worlds.opened import OpenWorld, find_missing, open_world
from assets.outcomes.worlds.session import WorldSession, open_session
from assets.outcomes.worlds.spec import Fit, World
from assets.outcomes.worlds.task import Task, TaskCall
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.sandbox.backend import SandboxUnavailable
from assets.synthesis.common.tables import Golden, make_single_row
from assets.synthesis.judging.adhoc.files import Tools
from assets.synthesis.verify.verify_row import verify_row
from benchmarks.call_mutants import OPERATORS, choose_mutants, collect_donors, make_mutants
from benchmarks.judge_mutants import judge_refusals
from orchestration.factories import make_launcher, open_warehouse
from orchestration.settings.load import load_settings
from training.evaluation.metrics import bootstrap_difference, bootstrap_mean
from warehouse.ledger.ledger import Ledger

GOOD = "good"
ARMS = ("rules", "judge", "end state", "proof refutes", "not proved")
_DRAWS = 6  # donors of each template


@dataclass
class Case:
    """One call that was made for a task's request. caught: arm -> whether it objects."""

    operator: str
    server: str
    world: str
    task: Task = field(repr=False)
    call: TaskCall
    caught: dict[str, bool] = field(default_factory=dict)
    why: str = ""


@dataclass(frozen=True)
class Setup:
    """How this run is made. tasks: of each template; most: mutants of a server in a world; a
    quarter of that, and one task, where each call needs a fresh server: seconds each."""

    policy: DeployPolicy
    ledger: Ledger
    run_date: str
    seed: int
    tasks: int
    most: int


@dataclass
class Place:
    """A server in an open world, started anew where it remembers what it did."""

    opened: OpenWorld
    session: WorldSession
    fit: Fit

    def __post_init__(self) -> None:
        self.caller = self.session.make_caller()

    async def run_case(self, case: Case) -> None:
        """Makes the call in the first state; fills the arms that execution decides."""
        call = self._make_call(case.call)
        before, done, after = await self._execute(call)
        passed = case.task.check(self.opened, [done.text])

        async def run_perturbed(arguments: Facts) -> tuple[Execution, Facts]:
            other = self._make_call(TaskCall(case.call.tool, dict(arguments)))
            _, execution, state = await self._execute(other)
            return execution, state

        proof = await prove_call(
            call, case.task.request, Effect(done, before, after), run_perturbed
        )
        case.caught |= {
            "end state": not passed,
            "proof refutes": proof.verdict == REFUTED,
            "not proved": proof.verdict != PROVED,
        }
        case.why = f"{done.outcome}; {proof.verdict}: {proof.why}"

    async def _execute(self, call: ToolCall) -> tuple[Facts, Execution, Facts]:
        if self.fit.restart:
            await self.caller.close()
            self.caller = self.session.make_caller()
        self.opened.reset()
        before = self.opened.read_facts()
        done = await execute_call(self.caller, call, self.opened, timeout_s=20.0)
        return before, done, self.opened.read_facts()

    def _make_call(self, call: TaskCall) -> ToolCall:
        contract = self.session.contracts[call.tool]
        return ToolCall(self.fit.id, call.tool, contract, "c1:" + "0" * 64, call.arguments)


def make_cases(place: Place, setup: Setup) -> list[Case]:
    """The good calls of one server's tasks of one call, and at most so many mutants of them."""
    seed = setup.seed
    rng = Random(f"{place.opened.world.name}/{place.fit.id}/{seed}")
    contracts = place.session.contracts
    few = place.fit.restart
    drawn = place.opened.tasks(seed, 1 if few else setup.tasks)
    donors = collect_donors(
        call for task in [*drawn, *place.opened.tasks(seed + 1, _DRAWS)] for call in task.calls
    )
    named = (place.fit.id, place.opened.world.name)
    good = [
        Case(GOOD, *named, task, task.calls[0])
        for task in drawn
        if place.fit.id in task.servers and len(task.calls) == 1 and task.calls[0].tool in contracts
    ]
    wrong = [
        Case(mutant.operator, *named, one.task, mutant.call)
        for one in good
        for mutant in make_mutants(one.call, contracts, donors, rng)
    ]
    return [*good, *choose_mutants(wrong, setup.most // 4 if few else setup.most, rng)]


@asynccontextmanager
async def open_place(world: World, fit: Fit, setup: Setup) -> AsyncIterator[Place]:
    """A server in a world. Raises WorldFailed, SandboxUnavailable."""
    holds = setup.policy.home / "cache"
    holds.mkdir(parents=True, exist_ok=True)
    with (
        TemporaryDirectory(prefix="world-", dir=holds) as folder,
        open_world(world, setup.seed, Path(folder)) as opened,
    ):
        given = (setup.policy, setup.ledger, setup.run_date)
        async with open_session(opened, fit, *given) as session:
            place = Place(opened, session, fit)
            try:
                yield place
            finally:
                await place.caller.close()


async def run_server(world: World, fit: Fit, setup: Setup) -> list[Case]:
    """The cases of one server in one world, all arms filled; [] where it cannot be had here."""
    began, cases = time.perf_counter(), []
    try:
        async with open_place(world, fit, setup) as place:
            cases = make_cases(place, setup)
            await asyncio.to_thread(judge_cases, cases, place)  # it runs a loop of its own
            for case in cases:
                await place.run_case(case)
    except (WorldFailed, SandboxUnavailable) as error:
        print(f"{world.name} {fit.id}: unavailable: {error}", flush=True)
        return []
    seconds = time.perf_counter() - began
    print(f"{world.name} {fit.id}: {len(cases)} calls, {seconds:.0f} s", flush=True)
    return cases


def judge_cases(cases: Sequence[Case], place: Place) -> None:
    """Fills the arms that read texts alone: each case as a pair of one call."""
    tools = Tools()
    for contract in place.session.contracts.values():
        tools.add(place.fit.id, contract)
    digests = [tools.digests[tool] for tool in tools.list_server_tools(place.fit.id)]
    rows = []
    for at, case in enumerate(cases):
        own = tools.digests[str(ToolId(case.server, case.call.tool))]
        golden = Golden(case.server, case.call.tool, own, case.call.arguments)
        row = make_single_row(golden, case.task.request, digests[:12])
        rows.append({**row, "pair_id": str(at)})
    by_rules = [verify_row(row, tools.contracts).verdict for row in rows]
    refused = judge_refusals(rows, by_rules, tools.contracts)
    for case, verdict, no in zip(cases, by_rules, refused, strict=True):
        case.caught |= {"rules": verdict == "reject", "judge": no}


def summarise_cases(cases: Sequence[Case]) -> dict[str, Any]:
    """Per operator, all mutants and the good calls: each arm's share with its interval and n."""
    wrong = [case for case in cases if case.operator != GOOD]
    groups = {
        **{name: [one for one in wrong if one.operator == name] for name in OPERATORS},
        "all mutants": wrong,
        "good calls": [case for case in cases if case.operator == GOOD],
    }
    servers = [case.server for case in wrong]
    sure = [float(case.caught["end state"]) for case in wrong]
    return {
        "servers": len(set(servers)),
        "groups": {name: _measure_arms(own) for name, own in groups.items() if own},
        "end state less": {
            arm: bootstrap_difference(
                sure, [float(one.caught[arm]) for one in wrong], servers
            ).as_dict()
            for arm in ARMS
            if arm != "end state"
        },
    }


def _measure_arms(cases: Sequence[Case]) -> dict[str, dict[str, float | int]]:
    groups = [case.server for case in cases]
    return {
        arm: bootstrap_mean([float(one.caught[arm]) for one in cases], groups).as_dict()
        for arm in ARMS
    }


def render_summary(figures: dict[str, Any]) -> str:
    """The figures as a Markdown table."""
    lines = [f"| | n | {' | '.join(ARMS)} |", f"| --- | --- |{' --- |' * len(ARMS)}"]
    for name, arms in figures["groups"].items():
        cells = (
            f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]" for one in arms.values()
        )
        lines.append(f"| {name} | {arms['rules']['n']} | {' | '.join(cells)} |")
    return "\n".join(lines)


def list_surprises(cases: Sequence[Case]) -> dict[str, list[dict[str, Any]]]:
    """The calls on which execution is wrong: mutants that pass, good calls that do not."""

    def describe(arm: str, *, good: bool) -> list[dict[str, Any]]:
        return [
            {"operator": case.operator, "server": case.server, "request": case.task.request,
             "good": vars(case.task.calls[0]), "call": vars(case.call), "why": case.why}
            for case in cases
            if (case.operator == GOOD) == good == case.caught[arm]
        ]  # fmt: skip

    return {
        "passed": describe("end state", good=False),
        "proved": describe("not proved", good=False),
        "alarms": describe("end state", good=True),
        "refuted": describe("proof refutes", good=True),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seed", type=int, default=16)
    parser.add_argument("--tasks", type=int, default=2, help="of each template")
    parser.add_argument("--most", type=int, default=60, help="mutants of a server in a world")
    parser.add_argument("--world", action="append")
    parser.add_argument("--server", action="append")
    parser.add_argument("--json", type=Path)
    chosen = parser.parse_args()
    settings = load_settings()
    ledger, policy = open_warehouse(settings).ledger, make_launcher(settings).policy
    run_date = ledger.open_run("mutants")
    setup = Setup(policy, ledger, run_date, chosen.seed, chosen.tasks, chosen.most)
    known = [one.world for one in list_worlds(settings.worlds.paths) if one.world]
    cases: list[Case] = []
    for world in known:
        if (chosen.world and world.name not in chosen.world) or find_missing(world):
            continue
        for fit in world.servers:
            if not chosen.server or fit.id in chosen.server:
                cases += asyncio.run(run_server(world, fit, setup))
    ledger.close_run("mutants")
    figures = summarise_cases(cases)
    print(render_summary(figures))
    print(json.dumps(figures["end state less"]))
    if chosen.json:
        chosen.json.write_text(json.dumps(figures | list_surprises(cases), indent=1))


if __name__ == "__main__":
    main()
