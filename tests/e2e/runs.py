"""Whole runs in this process: real replicas, real Chromium, real sandbox, real LanceDB."""

import socket
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from assets.marketplaces.policy import CrawlPolicy
from assets.partitions import SERVER_TAG
from assets.servers.sandbox.contained_browser import open_browser_sandbox
from demo.ports import PortTaken, list_ports, release, reserve
from demo.server import Replicas
from orchestration.definitions import build_defs
from orchestration.factories import find_chromium
from warehouse.store import Warehouse

MARKETS = ("registry", "mcpso")


def choose_base_port() -> int:
    for _ in range(100):
        with socket.create_server(("127.0.0.1", 0)) as sock:
            base_port = sock.getsockname()[1]
        with suppress(PortTaken, OverflowError):
            release(reserve(list_ports(base_port)))
            return base_port
    raise AssertionError("no block of free ports")


@dataclass
class Runs:
    """One home, one instance, one demo sites."""

    home: Path
    instance: dg.DagsterInstance
    sites: Replicas

    @property
    def warehouse(self) -> Warehouse:
        return Warehouse(home=self.home, state=self.home / "state")

    def run(
        self, job: str, partition: str | None = None, *, server: str | None = None
    ) -> dg.ExecuteInProcessResult:
        tags = {SERVER_TAG: server} if server else None
        return self._execute(job, partition_key=partition, tags=tags)

    def materialize(self, assets: Sequence[str], partition: str) -> dg.ExecuteInProcessResult:
        selection = [dg.AssetKey(name) for name in assets]
        return self._execute("nightly", partition_key=partition, asset_selection=selection)

    def serve(self) -> dg.ExecuteInProcessResult:
        """The release and its index, without what training has to come first for."""
        selection = [dg.AssetKey("release"), dg.AssetKey("router_index")]
        return self._execute("serve", asset_selection=selection)

    def _execute(self, job: str, **how: Any) -> dg.ExecuteInProcessResult:
        made = self._build_defs().resolve_job_def(job)
        return made.execute_in_process(instance=self.instance, raise_on_error=False, **how)

    def nightly(self) -> dict[tuple[str, str], int]:
        """One run of every marketplace; the attempts it made, per (stage, status)."""
        counts: dict[tuple[str, str], int] = {}
        for name in MARKETS:
            result = self.run("nightly", name)
            failed = [each for each in result.all_events if each.is_step_failure]
            assert not failed, [one.step_failure_data.error_display_string for one in failed]
            for key, count in self.warehouse.ledger.counts(run_id=result.run_id).items():
                counts[key] = counts.get(key, 0) + count
        return counts

    def versions(self) -> dict[str, str]:
        tables = self.warehouse.tables
        return {
            f"{folder.name}/{name}": head.digest
            for folder in sorted(tables.root.iterdir())
            for name in tables.partitions(folder.name)
            if (head := tables.head(folder.name, name))
        }

    def _build_defs(self) -> dg.Definitions:
        given: dict[str, Any] = {"chromium": str(find_chromium()), "contain": open_browser_sandbox}
        given |= {"requests_per_second": 0, "allow_loopback": True}
        policies = {name: CrawlPolicy(base_url=self.sites[name], **given) for name in MARKETS}
        return build_defs(resources={"crawlers": policies})


def list_failed_checks(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    reasons: dict[str, str] = {}
    for check in result.get_asset_check_evaluations():
        if not check.passed:
            asset = check.asset_key.to_user_string()
            reasons[asset] = "; ".join(filter(None, [reasons.get(asset), check.description]))
    return reasons


def skip_without_sandbox() -> None:
    from assets.servers.sandbox.process import SandboxUnavailable, preflight

    try:
        preflight()
    except SandboxUnavailable as error:
        pytest.skip(f"no sandbox on this host: {error}")
    if find_chromium() is None:
        pytest.skip("no Chromium on this host: apt-get install chromium")
