"""A small home that is well: what each test of the doctor damages in one place."""

from pathlib import Path

import pytest

from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from extensions.upkeep.checks import CHECKS
from extensions.upkeep.health import InspectedHome, run_check
from warehouse.ledger.attempts import EffectOutcome
from warehouse.storage.digest import canonical_json
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse


def publish_rows(warehouse: Warehouse, table: TableSpec, *rows: dict, partition="registry") -> str:
    staged = warehouse.tables.stage(table, table.frame(rows), partition)
    return warehouse.tables.promote(staged, "run", []).digest


def make_deployment(warehouse: Warehouse, server: str, suite: str, tools: bytes = b"[]") -> dict:
    put = warehouse.blobs.put
    about = {"server_id": server, "marketplace": "registry", "status": "ok", "probed_at": 1.0}
    certificate = put(canonical_json({"suite": suite}))
    return {**about, "tools_blob": put(tools), "certified": True, "certificate": certificate}


@pytest.fixture
def well(warehouse: Warehouse) -> Warehouse:
    from assets.servers.sandbox.certificate import digest_preflight

    publish_rows(warehouse, DEPLOYMENTS, make_deployment(warehouse, "npm:a", digest_preflight()))
    pair = {"pair_id": "p1", "server_id": "npm:a", "tool": "t", "license": "MIT"}
    publish_rows(warehouse, PAIRS, pair)
    publish_rows(warehouse, JUDGEMENTS, {"pair_id": "p1", "verdict": "accept"})
    warehouse.ledger.once("llm", "k1", lambda: EffectOutcome(b"paid", usd=0.01), reserve_usd=0.1)
    return warehouse


@pytest.fixture
def at(well: Warehouse) -> InspectedHome:
    return InspectedHome(well.home, well.state)


def list_broken(at: InspectedHome, *left_out: str) -> list[str]:
    """What the checks find broken, but for those that look outside the home."""
    checks = [check for check in CHECKS if check.name not in ("dagster", *left_out)]
    found = [finding for check in checks for finding in run_check(check, at).broken]
    return [f"{finding.thing}: {finding.problem}" for finding in found]


def list_files(folder: Path) -> dict[str, tuple[int, int]]:
    return {
        str(path.relative_to(folder)): (path.stat().st_size, path.stat().st_mtime_ns)
        for path in folder.rglob("*")
        if path.is_file()
    }
