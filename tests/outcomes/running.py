"""Calls executed for the tests: of a server written on the spot, in the real sandbox."""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.canonical import contract_digest
from assets.outcomes.environment import PLAIN
from assets.outcomes.execution import ToolCall
from assets.outcomes.plan import make_execution_row, mark_canned
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.run import ExecutionJob, ExecutionRun
from assets.outcomes.select import LaunchableServer, WantedCall
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import dump_recipe
from tests.serving.calling import PATIENT, SCHEMA, Bench
from tests.support.untrusted_server import POLICY
from warehouse.ledger.ledger import Ledger
from warehouse.progress import SilentProgress
from warehouse.storage.blobs import Blobs

READS = {"readOnlyHint": True}
# A server of the tools given: `do` answers, with the folder of its world in `DATA`.
TOOLS = "DATA = '/home/user/data'\nTOOLS = {tools!r}\n"
Row = dict[str, Any]


def make_contract(name: str = "do", **more: Any) -> dict[str, Any]:
    return {"name": name, "inputSchema": SCHEMA, **more}


@dataclass
class Executing:
    """One home, one ledger, servers by name; `run` executes calls and returns their rows."""

    bench: Bench
    ledger: Ledger
    settings: ExecutionPolicy = ExecutionPolicy(prove=False, timeout_s=8.0)  # noqa: RUF009
    last: ExecutionRun | None = None

    def make_server(
        self, source: str, tools: Sequence[Mapping[str, Any]], name: str = "x"
    ) -> LaunchableServer:
        recipe = self.bench.recipe(TOOLS.format(tools=list(tools)) + source, name)
        return LaunchableServer(recipe.server_id, dump_recipe(recipe), recipe.digest)

    def make_job(
        self, server: LaunchableServer, contract: Mapping[str, Any], arguments: Mapping[str, Any]
    ) -> ExecutionJob:
        digest = contract_digest(contract)
        call = ToolCall(server.server_id, contract["name"], contract, digest, arguments)
        wanted, seed = WantedCall(call), self.settings.seed
        return ExecutionJob(wanted.identify(PLAIN.name, seed), wanted, server, PLAIN, seed)

    def run(self, jobs: Sequence[ExecutionJob], **settings: Any) -> list[Row]:
        policy = DeployPolicy(self.bench.folder, POLICY, PATIENT)
        chosen, where = replace(self.settings, **settings), (self.ledger, "registry")
        run = ExecutionRun(policy, chosen, *where, "2026-01-01.1", 3, SilentProgress())
        asyncio.run(run.carry_out(jobs))
        self.last = run
        rows = [make_execution_row(job, run.done[job.id]) for job in jobs if job.id in run.done]
        return mark_canned(rows)

    def read_kept(self, row: Row) -> Row:
        """What is kept of an answer."""
        return json.loads(self.ledger.blobs.get(row["result_blob"]))["execution"]


def open_executing(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Executing:
    bench = Bench(folder, monkeypatch)
    return Executing(bench, Ledger(folder / "state" / "ledger.db", Blobs(folder / "blobs")))
