"""Each check finds the fault that is planted for it, names the thing, and says what to run."""

import json
import os
import subprocess
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from unittest.mock import Mock

import dagster as dg

from assets.synthesis.tables import PAIRS
from assets.vectors.index import VECTORS
from extensions.scale import postgres_ledger
from extensions.upkeep import checks, health, home_tables
from orchestration.cli.app import ROOT
from orchestration.runs.instance import PROCESS_TAG
from tests.extensions.upkeep.conftest import list_files, publish_rows
from tests.orchestration.runs.test_one_server import a_dead_process, started
from tests.support.cases import cases
from tests.training.promotions import serve_release
from tests.warehouse.storage.test_lance import rows as vector_rows
from warehouse.process_identity import identify_process
from warehouse.storage.lance import LanceStore

BY_NAME = {check.name: check for check in checks.CHECKS}


def look(name: str, at: health.InspectedHome) -> health.CheckResult:
    return health.run_check(BY_NAME[name], at)


def expect_finding(
    name: str, at: health.InspectedHome, thing: str, fix: str, level: str = health.BROKEN
) -> None:
    found = [(finding.thing, finding.fix, finding.level) for finding in look(name, at).findings]
    assert [one for one in found if thing in one[0] and fix in one[1] and one[2] == level], found


def test_a_home_that_is_well_has_no_finding_and_is_left_as_it_was(at):
    before = list_files(at.home)
    results = [health.run_check(check, at) for check in checks.CHECKS if check.name != "dagster"]
    assert {result.name: result.findings for result in results if result.findings} == {}
    assert list_files(at.home) == before
    looked = {result.name: result.n for result in results}
    assert (looked["pointers"], looked["ledger"], looked["references"]) == (3, 1, 2)


PAIRS_AT = "tables/pairs/registry/"


def spoil(pattern: str, data: bytes) -> Callable[[Path], object]:
    return lambda home: [path.write_bytes(data) for path in home.glob(pattern)]


def lose(*patterns: str) -> Callable[[Path], object]:
    return lambda home: [path.unlink() for of in patterns for path in list(home.glob(of))]


def swap_version(home: Path) -> None:
    """Another table's rows under the name of a version."""
    head = json.loads((home / "tables/pairs/registry/HEAD.json").read_bytes())
    held = home / "tables/pairs/registry" / f"{head['digest']}.parquet"
    PAIRS.frame([{"pair_id": "other"}]).drop(PAIRS.volatile).write_parquet(held)


def tear_history(home: Path) -> None:
    with (home / "tables/pairs/registry/HEADS.jsonl").open("a") as file:
        file.write('{"digest": "')


@cases(
    "name, damage, thing, fix",
    ("pointers", spoil(f"{PAIRS_AT}HEAD.json", b"{"), "y/HEAD.json", "toolmill doctor --fix"),
    ("pointers", lose(f"{PAIRS_AT}HEAD.json"), "y/HEAD.json", "toolmill doctor --fix"),
    ("pointers", lose(f"{PAIRS_AT}HEAD.json", f"{PAIRS_AT}*.parquet"), "y/HEAD.json", "material"),
    ("pointers", lose(f"{PAIRS_AT}*.parquet"), "pairs/registry/", "materialize pairs again"),
    ("pointers", swap_version, "pairs/registry/", "materialize pairs again"),
    ("histories", tear_history, "pairs/registry/HEADS.jsonl", "toolmill doctor --fix"),
    ("blobs", spoil("blobs/??/??/*", b"other"), "blobs/", "toolmill run"),
    ("references", lose("blobs/??/??/*"), "deployments/registry.tools_blob", "restore"),
    ("ledger", lose("blobs/??/??/*"), "blobs", "paid for again"),
)
def test_damage_is_found(at, name, damage, thing, fix):
    damage(at.home)
    expect_finding(name, at, thing, fix)


def test_an_older_schema_is_a_notice_and_a_damaged_home_breaks_no_check(at, monkeypatch):
    newer = replace(PAIRS, schema_version=PAIRS.schema_version + 1)
    with monkeypatch.context() as patch:
        patch.setitem(home_tables.TABLES, "pairs", newer)
        expect_finding("pointers", at, "pairs/registry", "toolmill run", health.NOTICE)
        assert not look("pointers", at).broken
    for path in at.home.rglob("*"):
        if path.is_file():
            path.write_bytes(b"\xff{")
    results = {check.name: health.run_check(check, at) for check in checks.CHECKS}
    for name in ("layout", "pointers", "histories", "blobs"):
        assert results[name].broken, name
    wrong = Mock(side_effect=RecursionError("deep\nand wide"))
    [found] = health.run_check(health.HomeCheck("mine", "claims", wrong), at).broken
    assert found.problem == "cannot be checked: RecursionError: deep and wide"


@cases(
    "installed, url, problem, fix",
    (None, "postgresql://u:secret@h/d", "TOOLMILL_LEDGER_URL needs the package", "uv pip"),
    (True, "mysql://u:secret@h/d", "TOOLMILL_LEDGER_URL", "expected postgresql://USER"),
    (None, "postgresql://u:secret@h/d", "DAGSTER_POSTGRES_URL needs the package", "uv pip"),
)
def test_an_unusable_setting_has_its_fix(at, monkeypatch, installed, url, problem, fix):
    variable = problem.split()[0]
    monkeypatch.setenv(variable, url)
    monkeypatch.setattr(postgres_ledger, "find_spec", lambda _: installed)
    monkeypatch.setattr("orchestration.runs.instance.find_spec", lambda _: installed)
    [found] = look("ledger" if "LEDGER" in variable else "dagster", at).broken
    assert found.problem.startswith(f"cannot be checked: {problem}")
    assert fix in found.fix
    assert "UnusableInput" not in found.problem
    assert "secret" not in found.problem + found.fix


def test_vectors_that_are_doubled_or_missing_are_found(well, at):
    member = {"marketplace": "registry", "server_id": "npm:a", "tool": "t", "kind": "tool"}
    texts = [{**member, "tool": n, "text_digest": n, "embedder": "e"} for n in ("a", "b")]
    publish_rows(well, VECTORS, *texts)
    store = LanceStore(at.home / "lance")
    store.insert(vector_rows(["a"]))
    expect_finding("vectors", at, "lance/texts.lance", "materialize contract_vectors")
    store.insert(vector_rows(["a", "b"]))
    assert not look("vectors", at).findings
    import lancedb

    table = lancedb.connect(store.root).open_table("texts")
    table.add(table.to_arrow())
    expect_finding("vectors", at, "lance/texts.lance", "rm -r")


def test_a_model_that_is_gone_is_found_and_a_release_is_held_against_all_that_it_names(well, at):
    row = {"model": "m" * 64, "role": "retriever", "pairs": 1, "loss_last": 0.1}
    publish_rows(well, home_tables.ADAPTERS[0], row, partition=None)
    expect_finding("models", at, "models/mmmm", "materialize retriever_adapter")
    assert not look("release", at).findings
    name, version = serve_release(at.home, "c1")
    assert [one.problem for one in look("release", at).findings if "router/" in one.problem] == []
    (at.home / "router" / version / "twins.npy").write_bytes(b"")
    expect_finding("release", at, name[:12], "toolmill release rollback")
    assert any("twins.npy has 0 bytes" in one.problem for one in look("release", at).findings)


def test_a_broken_champion_an_odd_version_a_full_disk_and_an_open_secret_are_found(at, monkeypatch):
    path = at.home / "champions" / "caller.json"
    path.parent.mkdir()
    path.write_text("[]")
    expect_finding("champions", at, "champions/caller.json", "toolmill doctor --fix")
    path.unlink()
    moving = at.home / checks.MOVING
    moving.parent.mkdir(exist_ok=True)
    moving.write_text('{"files": {}, "lines": {}}')
    expect_finding("champions", at, "MOVING.json", "finishes it", health.NOTICE)
    salt = at.state / "salt"
    salt.write_bytes(b"x")
    salt.chmod(0o644)
    expect_finding("permissions", at, "salt", "chmod 600")
    salt.chmod(0o600)
    assert not look("permissions", at).findings
    (at.home / "home.json").write_text('{"layout": 99}')
    expect_finding("layout", at, "home.json", "install that version")
    monkeypatch.setattr(checks, "_ROOM", 1 << 60)
    expect_finding("room", at, str(at.home), "toolmill gc")


def test_a_run_that_is_started_and_dead_is_found(at, monkeypatch, tmp_path):
    folder = tmp_path / "dagster"
    folder.mkdir()
    (folder / "dagster.yaml").write_bytes((ROOT / "dagster.yaml").read_bytes())
    monkeypatch.setenv("DAGSTER_HOME", str(folder))
    with dg.DagsterInstance.from_config(str(folder)) as made:
        started(made, {PROCESS_TAG: f"{os.getpid()}@{identify_process()}"})
        assert not look("dagster", at).findings
        dead = started(made, {PROCESS_TAG: a_dead_process()})
        orphan = started(made, {})
    found = {finding.thing: finding.fix for finding in look("dagster", at).findings}
    assert set(found) == {f"run {dead.run_id[:8]}", f"run {orphan.run_id[:8]}"}
    (folder / "history" / "runs.db").write_bytes(b"not a database at all" * 99)
    for path in (folder / "history").glob("runs.db-*"):
        path.unlink()
    expect_finding("dagster", at, str(folder), "dagster.yaml")


def test_every_table_of_ours_is_known():
    source = (ROOT / "extensions" / "upkeep" / "home_tables.py").read_text()
    made = subprocess.run(
        ["grep", "-rlE", r"^[A-Z_]+ = read_table_spec\(", "assets", "training", "warehouse"],
        cwd=ROOT, capture_output=True, text=True, check=True,
    ).stdout.split()  # fmt: skip
    modules = [path.removesuffix(".py").replace("/", ".") for path in made]
    assert [module for module in modules if f"from {module} import" not in source] == []
    assert len(home_tables.TABLES) >= len(modules)
