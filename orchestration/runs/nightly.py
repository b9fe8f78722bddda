"""Ad hoc runs: of everything (marketplaces, fan-ins, training on drift, serving), or one server."""

import difflib
import fcntl
import os
import time
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from assets.outcomes.table import EXECUTIONS
from assets.partitions import ONE_SERVER_JOB
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from orchestration.factories import list_enabled, make_trainer, open_warehouse
from orchestration.runs.console import RunView, send_lines
from orchestration.runs.instance import (
    clear_dead_runs,
    explain_gone_postgres,
    open_instance,
    size_pools,
)
from orchestration.runs.workers import RunTask, TaskOutcome, WorkerPool
from orchestration.sensors import (
    ATTEMPT,
    count_failed_trainings,
    decide_on_drift,
    make_training_tags,
)
from orchestration.settings.model import Settings
from orchestration.settings.schema import SUBPROCESS
from training.drift.decide import describe_decisions, list_due_roles
from training.role import list_role_assets
from warehouse.errors import UnusableInput
from warehouse.sanitize.untrusted_text import escape_text
from warehouse.store import Warehouse


class AnotherRun(RuntimeError):
    """A run is going on in the same data folder."""


@dataclass
class RunResult:
    """What a run did: seconds and success per job, and why it was to train or not."""

    runs: list[dict[str, Any]] = field(default_factory=list)
    reasons: list[str] = field(default_factory=list)
    cleared: int = 0
    started: float = field(default_factory=time.monotonic)
    seconds: float = 0.0

    def add(self, outcome: TaskOutcome) -> bool:
        self.runs.append(outcome.as_row())
        self.seconds = round(time.monotonic() - self.started, 1)
        if outcome.interrupted:
            raise KeyboardInterrupt
        return outcome.success

    def add_all(self, outcomes: Iterable[TaskOutcome]) -> bool:
        succeeded = [self.add(outcome) for outcome in outcomes]
        return all(succeeded)

    @property
    def failed(self) -> list[dict[str, Any]]:
        return [run for run in self.runs if not run["success"]]


@contextmanager
def hold_run_lock(state: Path) -> Iterator[None]:
    """Holds the data folder's run lock. Raises AnotherRun naming the process that has it."""
    path = state / "run.lock"
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            holder = file.read().strip() or "unknown"
            raise AnotherRun(
                f"{state}: a run is going on (process {holder}); wait for it to end, or set"
                " TOOLMILL_HOME to another folder"
            ) from None
        file.truncate(0)
        file.write(str(os.getpid()))
        file.flush()
        yield


def run_once(settings: Settings, *, only: list[str] | None = None) -> RunResult:
    """Runs everything over the named marketplaces (default: all enabled); one that fails keeps its
    last data and holds back no other. Raises AnotherRun, HomeUnavailable, LedgerUnavailable."""
    warehouse = open_warehouse(settings)
    warehouse.check_writable()
    names = only or list_enabled(settings)
    with (
        hold_run_lock(warehouse.state),
        explain_gone_postgres(),
        open_instance() as instance,
        RunView().open() as view,
    ):
        send_lines(view.show)
        size_pools(instance)
        result = RunResult(cleared=len(clear_dead_runs(instance)))
        with WorkerPool(instance, view.show) as workers:
            for outcome in workers.run(*(RunTask("nightly", partition=name) for name in names)):
                result.add(outcome)
                if not outcome.success and "listings" not in outcome.failed_steps:
                    # A crawl that failed has decided itself whether its pages are worth keeping.
                    warehouse.ledger.close_run(str(outcome.task.partition))
            result.add_all(workers.run(RunTask("fan_in")))
            # Which roles train now, and the tags by which an attempt that fails is known again.
            trainer, head = make_trainer(settings), warehouse.tables.head("training_set")
            tags = make_training_tags(head.digest if head else "", trainer)
            failed = count_failed_trainings(instance, tags, trainer.drift.retry_days)
            tags[ATTEMPT] = str(failed)
            decisions = decide_on_drift(warehouse, trainer, failed)
            result.reasons = describe_decisions(decisions)
            if roles := list_due_roles(decisions):
                tasks = [
                    replace(task, tags=tuple(tags.items()))
                    for task in list_trainings(settings, roles)
                ]
                result.add_all(workers.run(*tasks))
            result.add_all(workers.run(RunTask("serve")))
        return result


def list_trainings(settings: Settings, roles: list[str]) -> list[RunTask]:
    from training.runtime.device import pick_device

    chosen, place = settings.training.device, settings.training.place
    if place.runs_on != SUBPROCESS or ("cuda" in (chosen, pick_device("auto")) and chosen != "cpu"):
        names = [name for role in roles for name in list_role_assets(role)]
        return [RunTask("train", names=tuple(names))]
    return [RunTask("train", role=role) for role in roles]


_NEAR = 5  # ids that an unknown one is answered with


class UnknownServer(UnusableInput):
    """No marketplace lists a server of that id; the message names those that read like it."""


def run_one_server(settings: Settings, server_id: str, only: list[str] | None = None) -> RunResult:
    """Runs one server again in each marketplace (`only`: in these) that lists it. Raises
    UnknownServer, AnotherRun, HomeUnavailable, LedgerUnavailable before anything starts."""
    warehouse = open_warehouse(settings)
    warehouse.check_writable()
    names = find_marketplaces(warehouse, server_id, only)
    with hold_run_lock(warehouse.state), open_instance() as instance, RunView().open() as view:
        send_lines(view.show)
        size_pools(instance)
        result = RunResult(cleared=len(clear_dead_runs(instance)))
        tasks = [RunTask(ONE_SERVER_JOB, partition=name, server=server_id) for name in names]
        with WorkerPool(instance, view.show) as workers:
            result.add_all(workers.run(*tasks))
        return result


def find_marketplaces(
    warehouse: Warehouse, server_id: str, only: list[str] | None = None
) -> list[str]:
    """The marketplaces whose last run had a row of the server. Raises UnknownServer."""
    servers_of: dict[str, set[str]] = {
        name: set(warehouse.tables.read(DEPLOYMENTS, name)["server_id"])
        for name in warehouse.tables.partitions(DEPLOYMENTS.name)
        if not only or name in only
    }
    names = sorted(name for name, servers in servers_of.items() if server_id in servers)
    if not names:
        raise UnknownServer(_describe_unknown(server_id, set().union(*servers_of.values()), only))
    return names


def _describe_unknown(server_id: str, server_ids: set[str], only: list[str] | None) -> str:
    where = f" of {', '.join(sorted(only))}" if only else ""
    problem = f"no server {escape_text(server_id[:200])!r} among the {len(server_ids)}{where}"
    containing = [name for name in sorted(server_ids) if server_id.casefold() in name.casefold()]
    near = difflib.get_close_matches(server_id, sorted(server_ids), _NEAR, 0.5)
    suggestions = list(dict.fromkeys([*containing, *near]))[:_NEAR]
    if not suggestions:
        return f"{problem}; the ids are the column server_id of the table deployments"
    return f"{problem}; near it: {', '.join(map(escape_text, suggestions))}"


def summarise_server(settings: Settings, server_id: str, result: RunResult) -> dict[str, Any]:
    tables = open_warehouse(settings).tables
    out = []
    for run in result.runs:
        name = str(run["partition"])
        rows_of = {
            spec.name: [
                row for row in tables.read(spec, name).to_dicts() if row["server_id"] == server_id
            ]
            for spec in (PAIRS, JUDGEMENTS, EXECUTIONS)
        }
        rows = tables.read(DEPLOYMENTS, name).to_dicts()
        launched = next((row for row in rows if row["server_id"] == server_id), {})
        probed = launched.get("probed_at")
        out.append(
            {
                "marketplace": name,
                "success": run["success"],
                "seconds": run["seconds"],
                "failed_steps": run["failed_steps"],
                **{key: launched.get(key) for key in ("status", "error_kind", "hint", "n_tools")},
                "probed_at": time.strftime("%FT%TZ", time.gmtime(probed)) if probed else None,
                "pairs": sum(row["status"] == "ok" for row in rows_of["pairs"]),
                "accepted": sum(row["verdict"] == "accept" for row in rows_of["judgements"]),
                "executions": len(rows_of["executions"]),
            }
        )
    return {"server_id": server_id, "runs": out}
