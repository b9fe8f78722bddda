"""One day of the month: what breaks on it, the runs, the plans beside them, and what they cost."""

import json
import os
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from datetime import timedelta
from pathlib import Path
from typing import Any

import time_machine

from assets.partitions import NIGHTLY
from benchmarks.nights import incidents as what
from benchmarks.nights.place import age_files
from benchmarks.nights.replay import Replay, fill_disk, replay_launches
from benchmarks.nights.vectors import age_vectors
from benchmarks.nights.writers import make_month_writer
from demo.server import Replicas
from demo.world.month import START, MonthDay
from orchestration.factories import make_trainer, open_warehouse
from orchestration.runs.dead_runs import clear_dead_runs
from orchestration.runs.instance import open_instance, size_pools
from orchestration.runs.runner import Runner
from orchestration.runs.task import Task
from orchestration.sensors import decide_on_drift
from orchestration.settings.load import load_settings
from training.drift.decide import Retrain
from warehouse.ledger.ledger import Ledger
from warehouse.store import Warehouse

LAUNCHED = ("listings", "deployments", "snapshots", "findings", "clear_contracts")
WRITTEN = tuple(name for name in NIGHTLY if name not in LAUNCHED)
KINDS = ("deploy", "llm", "execute")
ROLE = "retriever"
_RUN_AT = timedelta(hours=3)
_WRITES = 25  # of the warehouse, that the full disk still takes


@dataclass
class NightlyRun:
    """What a day came to. done: attempts by kind (deploy, llm, execute)."""

    day: int
    incident: str = ""
    done: dict[str, int] = field(default_factory=dict)
    made_usd: float = 0.0  # by the run that succeeded
    unknown: int = 0  # launches that a kill cut off: they are made again
    stages: dict[str, int] = field(default_factory=dict)  # attempts by stage of the ledger
    failed: list[str] = field(default_factory=list)  # jobs of the run that is to succeed
    broke: str = ""  # what the incident did to the run before it
    why: str = ""  # it trained, or did not
    trained: bool = False
    wall_s: float = 0.0
    nightly_s: float = 0.0  # of the marketplaces' jobs alone
    cpu_s: float = 0.0


@dataclass(frozen=True)
class Stage:
    """Where a month plays: its folder, its replicas, the marketplaces that are run."""

    root: Path
    sites: Replicas
    markets: tuple[str, ...]

    def open_warehouse(self) -> Warehouse:
        return open_warehouse(load_settings())


def run_day(stage: Stage, day: MonthDay, incident: str) -> NightlyRun:
    """Runs a day to its end, in the month's time."""
    nightly = NightlyRun(day.day, incident)
    stage.sites.switch(world=day, faults=list_faults(incident, stage.markets))
    began, cpu = time.monotonic(), time.process_time()
    replayed, aged = replay_launches(Replay(day)), age_vectors(stage.root)
    with open_time(day.day) as clock, replayed, aged:
        since = time.time() - 7200
        break_run(stage, day, nightly)
        ledger = stage.open_warehouse().ledger
        spent = ledger.spent()
        with open_instance() as instance:
            size_pools(instance)
            clear_dead_runs(instance)
            _run_jobs(stage, nightly, Runner(instance, make_resources(incident)), clock)
        ledger = stage.open_warehouse().ledger
        nightly.stages = count_attempts(ledger, since)
        nightly.made_usd = round(ledger.spent() - spent, 6)
        counted = _fold(nightly.stages)
        nightly.done = {kind: counted[kind] for kind in KINDS}
        age_files(stage.root / "home", time.time(), START.timestamp() - 86_400)
    nightly.wall_s = round(time.monotonic() - began, 1)
    nightly.cpu_s = round(time.process_time() - cpu, 1)
    return nightly


@contextmanager
def open_time(day: int) -> Iterator[Any]:
    """The month's time, from three in the morning of a day on."""
    with time_machine.travel(START + timedelta(days=day - 1) + _RUN_AT, tick=True) as clock:
        yield clock


def list_faults(incident: str, markets: tuple[str, ...]) -> dict[str, str]:
    """What the replicas do wrong: the last marketplace is down or has another layout."""
    kind = {what.SITE_DOWN: "down", what.LAYOUT: "missing_key"}.get(incident)
    return {markets[-1]: kind} if kind else {}


def make_resources(incident: str) -> dict[str, Any]:
    return {"writer": make_month_writer(down=incident == what.LLM_DOWN)}


def break_run(stage: Stage, day: MonthDay, nightly: NightlyRun) -> None:
    """The run that the day's incident ends before its time; the one that repairs it follows."""
    if nightly.incident == what.KILLED:
        command = [sys.executable, "-m", "benchmarks.nights.killed", str(stage.root)]
        asked = {"day": day.day, "seed": day.month.seed, "servers": day.month.servers,
                 "rates": {str(k): vars(v) for k, v in day.month.rates.items()},
                 "edited": {str(k): v for k, v in day.month.edited.items()},
                 "poisoned": {str(k): v for k, v in day.month.poisoned.items()},
                 "markets": stage.markets, "ports": dict(stage.sites)}  # fmt: skip
        ended = subprocess.run(command, input=json.dumps(asked), text=True, env=dict(os.environ))
        cut = [one.stage for one in stage.open_warehouse().ledger.list_unknown()]
        nightly.unknown = cut.count("deploy")
        nightly.broke = f"process ended with {ended.returncode}, {len(cut)} attempts unknown"
    elif nightly.incident == what.FULL_DISK:
        with open_instance() as instance, fill_disk(_WRITES) as count_refused:
            size_pools(instance)
            runner = Runner(instance, make_resources(nightly.incident))
            lost = [
                name
                for name in stage.markets
                if not runner.execute(Task("nightly", partition=name)).success
            ]
            nightly.broke = f"{count_refused()} writes refused, {len(lost)} runs failed"


def _run_jobs(stage: Stage, nightly: NightlyRun, runner: Runner, clock: Any) -> None:
    """As `toolmill run`, one after the other; the nightly job in three parts."""
    began = time.monotonic()
    for name in stage.markets:
        _execute(runner, nightly, Task("nightly", partition=name, names=("listings",)))
    for number, name in enumerate(stage.markets):
        if number == 1 and nightly.incident == what.CLOCK:
            clock.shift(timedelta(hours=-1))
        _execute(runner, nightly, Task("nightly", partition=name, names=LAUNCHED[1:]))
    for name in stage.markets:
        _execute(runner, nightly, Task("nightly", partition=name, names=WRITTEN))
    nightly.nightly_s = round(time.monotonic() - began, 1)
    _execute(runner, nightly, Task("fan_in"))
    warehouse = stage.open_warehouse()
    decision = decide_on_drift(warehouse, make_trainer(load_settings()))
    nightly.why, nightly.trained = "; ".join(decision.why), isinstance(decision, Retrain)
    if nightly.trained:
        _execute(runner, nightly, Task("train", role=ROLE))
    _execute(runner, nightly, Task("serve"))


def _execute(runner: Runner, nightly: NightlyRun, task: Task) -> None:
    done = runner.execute(task)
    if not done.success:
        named = " ".join(filter(None, (task.job, task.partition)))
        nightly.failed.append(f"{named}: {', '.join(done.failed_steps)}")


def count_attempts(ledger: Ledger, since: float) -> dict[str, int]:
    """Attempts of the ledger by stage since a time (epoch seconds)."""
    totals = Counter[str]()
    for (stage, _), count in ledger.counts(since=since).items():
        totals[stage] += count
    return dict(totals)


def _fold(stages: Mapping[str, int]) -> Counter[str]:
    kinds = Counter[str]()
    for stage, count in stages.items():
        kinds["llm" if stage.startswith("llm:") else stage] += count
    return kinds
