"""One server run anew: its launch, contracts, pairs, judgements and calls, and no other's."""

import difflib
import time
from typing import Any

from assets.outcomes.table import EXECUTIONS
from assets.partitions import ONE_SERVER_JOB
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from orchestration.factories import open_warehouse
from orchestration.runs.console import RunView, send_lines
from orchestration.runs.dead_runs import clear_dead_runs
from orchestration.runs.instance import open_instance, size_pools
from orchestration.runs.nightly import RunResult, hold_run_lock
from orchestration.runs.task import Task
from orchestration.runs.workers import Workers
from orchestration.settings.model import Settings
from warehouse.errors import UnusableInput
from warehouse.sanitize.untrusted_text import escape_text
from warehouse.store import Warehouse

_NEAR = 5  # ids that an unknown one is answered with


class UnknownServer(UnusableInput):
    """No marketplace lists a server of that id; the message names those that read like it."""


def run_one_server(settings: Settings, server_id: str, only: list[str] | None = None) -> RunResult:
    """Runs one server anew in each marketplace (`only`: in these) that lists it.

    Raises UnknownServer, AnotherRun, HomeUnavailable, LedgerUnavailable before anything starts.
    """
    warehouse = open_warehouse(settings)
    warehouse.check_writable()
    names = find_marketplaces(warehouse, server_id, only)
    with hold_run_lock(warehouse.state), open_instance() as instance, RunView().open() as view:
        send_lines(view.show)
        size_pools(instance)
        result = RunResult(cleared=len(clear_dead_runs(instance)))
        tasks = [Task(ONE_SERVER_JOB, partition=name, server=server_id) for name in names]
        with Workers(instance, view.show) as workers:
            result.add_all(workers.run(*tasks))
        return result


def find_marketplaces(
    warehouse: Warehouse, server_id: str, only: list[str] | None = None
) -> list[str]:
    """The marketplaces whose last run had a row of the server. Raises UnknownServer."""
    known: dict[str, set[str]] = {
        name: set(warehouse.tables.read(DEPLOYMENTS, name)["server_id"])
        for name in warehouse.tables.partitions(DEPLOYMENTS.name)
        if not only or name in only
    }
    names = sorted(name for name, servers in known.items() if server_id in servers)
    if not names:
        raise UnknownServer(_describe_unknown(server_id, set().union(*known.values()), only))
    return names


def _describe_unknown(server_id: str, known: set[str], only: list[str] | None) -> str:
    where = f" of {', '.join(sorted(only))}" if only else ""
    said = f"no server {escape_text(server_id[:200])!r} among the {len(known)}{where}"
    held = [name for name in sorted(known) if server_id.casefold() in name.casefold()]
    near = difflib.get_close_matches(server_id, sorted(known), _NEAR, 0.5)
    found = list(dict.fromkeys([*held, *near]))[:_NEAR]
    if not found:
        return f"{said}; the ids are the column server_id of the table deployments"
    return f"{said}; near it: {', '.join(map(escape_text, found))}"


def summarise_server(settings: Settings, server_id: str, result: RunResult) -> dict[str, Any]:
    """What is current of the server, per marketplace that was run."""
    tables = open_warehouse(settings).tables
    out = []
    for run in result.runs:
        name = str(run["partition"])
        own = {
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
                "pairs": sum(row["status"] == "ok" for row in own["pairs"]),
                "accepted": sum(row["verdict"] == "accept" for row in own["judgements"]),
                "executions": len(own["executions"]),
            }
        )
    return {"server_id": server_id, "runs": out}
