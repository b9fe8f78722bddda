"""A collection takes away what nothing refers to, and stops anywhere without harm."""

import json
import os
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path

import dagster as dg
import pytest

from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.sandbox.toolchain import HostToolchain, find_toolchain
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from extensions.upkeep import checks, collect, commands, health
from extensions.upkeep.policy import DAY, GarbageLimits
from orchestration.cli.app import ROOT
from orchestration.runs.instance import PROCESS_TAG, make_process_tags
from orchestration.runs.nightly import hold_run_lock
from orchestration.settings.load import load_settings
from tests.extensions.upkeep.conftest import list_broken, make_deployment, publish_rows
from tests.orchestration.runs.test_one_server import a_dead_process, started
from tests.support.aged import make_old
from tests.support.cases import cases
from training.sets.training_set import TRAINING_SET
from training.settings import RetentionPolicy
from warehouse.errors import UnusableInput
from warehouse.home import is_own_instance
from warehouse.ledger.attempts import EffectOutcome
from warehouse.storage.tables import VersionGone
from warehouse.store import Warehouse

KEEP = GarbageLimits(versions=1, days=0, grace_days=1)


def make_place(warehouse: Warehouse, **other: object) -> collect.GarbageScope:
    args = {"keep": KEEP, "releases": RetentionPolicy(), "now": time.time(), **other}
    return collect.GarbageScope(warehouse.home, warehouse.state, **args)  # type: ignore[arg-type]


def grow_old(home: Path) -> None:
    for path in home.rglob("*"):
        if path.is_file():
            make_old(path, time.time() - 30 * DAY)


@pytest.fixture
def lived(warehouse: Warehouse) -> Warehouse:
    """Four nights of one server whose tools change each night, and a killed writer's leftover."""
    warehouse.ledger.once("llm", "k", lambda: EffectOutcome(b"paid"))
    for night in range(4):
        tools = f'[{{"name": "t{night}"}}]'.encode()
        publish_rows(warehouse, DEPLOYMENTS, make_deployment(warehouse, "npm:a", "s", tools))
        row = {"pair_id": f"p{night}", "server_id": "npm:a", "license": "MIT"}
        publish_rows(warehouse, PAIRS, row)
    (warehouse.home / "blobs" / f".{'a' * 64}.12.0123abcd").write_bytes(b"half")
    (warehouse.home / "jobs").mkdir()
    for name in ("m1", "m2"):
        (warehouse.home / "jobs" / f"{name}.json").write_text("{}")
    (warehouse.home / "models" / "m1").mkdir(parents=True)
    (warehouse.home / "models" / "m1" / "model.json").write_text('{"training_set": "s"}')
    grow_old(warehouse.home)
    return warehouse


def count_kinds(place: collect.GarbageScope) -> dict[str, int]:
    found = collect.find_garbage(place)
    assert found.skipped == {}
    kinds = [one.kind for one in found.garbage]
    return {kind: kinds.count(kind) for kind in kinds}


def test_what_went_by_is_found_and_goes_and_the_home_is_well(lived):
    place = make_place(lived)
    # Three versions of each, with a file for the volatile columns.
    files = sum(3 * (1 + bool(table.volatile)) for table in (DEPLOYMENTS, PAIRS))
    expected = {"tables": files, "blobs": 3, "trainings": 1, "leftovers": 1}
    assert count_kinds(place) == expected
    assert count_kinds(place) == expected, "looking removes nothing"
    assert all(one.remove() for one in collect.find_garbage(place).garbage)
    assert count_kinds(place) == {}
    assert lived.tables.read(PAIRS)["pair_id"].to_list() == ["p3"]
    [row] = lived.tables.read(DEPLOYMENTS).to_dicts()
    assert lived.blobs.get(row["tools_blob"]) == b'[{"name": "t3"}]'
    assert list_broken(health.InspectedHome(lived.home, lived.state)) == []


def test_what_drift_compares_with_stays_as_long_as_the_model_that_learnt_then(warehouse):
    tables, sets = warehouse.tables, []
    for night in range(4):
        publish_rows(warehouse, JUDGEMENTS, {"pair_id": f"p{night}"})
        publish_rows(warehouse, TRAINING_SET, {"pair_id": f"p{night}"}, partition=None)
        sets += tables.history(TRAINING_SET.name)[-1:]
    card = warehouse.home / "models" / "m1" / "model.json"
    card.parent.mkdir(parents=True)
    card.write_text(json.dumps({"training_set": sets[1].digest}))
    warehouse.ledger.once("llm", "k", lambda: EffectOutcome(b"paid"))
    grow_old(warehouse.home)
    collect.remove_garbage(collect.find_garbage(make_place(warehouse)))
    assert tables.read(JUDGEMENTS, as_of=sets[1].at)["pair_id"].to_list() == ["p1"]
    with pytest.raises(VersionGone):
        tables.read(JUDGEMENTS, as_of=sets[2].at)
    card.write_text("{}")  # nobody knows from which set: what is left of all of them stays
    collect.remove_garbage(collect.find_garbage(make_place(warehouse)))
    assert tables.read(JUDGEMENTS, as_of=sets[1].at)["pair_id"].to_list() == ["p1"]


@cases("card", "{}", "[1]", "{half", '{"training_set": 3}')
def test_what_cannot_be_told_is_left_and_said(lived, card):
    (lived.home / "models/m1/model.json").write_text(card)
    found = collect.find_garbage(make_place(lived))
    assert set(found.skipped) == {"vectors"}
    assert "models/m1/model.json" in found.skipped["vectors"]
    (lived.home / "tables/pairs/registry/HEAD.json").write_text("{")
    found = collect.find_garbage(make_place(lived))
    assert {one.kind for one in found.garbage} == {"trainings", "leftovers"}
    assert set(found.skipped) == {"tables", "blobs", "vectors"}
    assert "HEAD.json" in found.skipped["tables"]


def test_of_a_damaged_ledger_nothing_goes_and_why_is_said(warehouse):
    for n in range(50):
        warehouse.ledger.once("llm", f"k{n}", lambda: EffectOutcome(b"paid"))
    warehouse.ledger.close()
    for path in warehouse.state.glob("ledger.db-*"):
        path.unlink()
    os.truncate(warehouse.state / "ledger.db", 5000)
    grow_old(warehouse.home)
    found = collect.find_garbage(make_place(warehouse))
    assert found.garbage == []
    assert "ledger.db: database disk image is malformed" in found.skipped["all"]
    assert "put a copy of it back" in found.skipped["all"]


def test_packages_of_a_runtime_that_is_not_here_stay(warehouse):
    """Which of them are used is told by that runtime's version."""
    recipe = {"server_id": "npm:a", "ecosystem": "npm", "name": "a", "version": "1.0.0"}
    row = make_deployment(warehouse, "npm:a", "s", b"[]") | {"recipe": json.dumps(recipe)}
    publish_rows(warehouse, DEPLOYMENTS, row)
    for name, program in (("a" * 64, "/usr/bin/node"), ("b" * 64, "venv/bin/python")):
        folder = warehouse.home / "artifacts" / name
        folder.mkdir(parents=True)
        (folder / "toolmill.json").write_text(json.dumps({"argv": [program]}))
    grow_old(warehouse.home)
    here = find_toolchain()
    without = replace(here, node=None, npm=None, node_version=None)

    def list_going(toolchain: HostToolchain) -> list[str]:
        found = collect.find_garbage(make_place(warehouse, toolchain=lambda: toolchain))
        assert "artifacts" not in found.skipped
        return [Path(one.name).name for one in found.garbage if one.kind == "artifacts"]

    assert list_going(without) == ["b" * 64]
    if here.node is not None:
        assert list_going(here) == ["a" * 64, "b" * 64]


def test_what_is_young_of_a_run_that_goes_on_or_with_the_state_of_elsewhere_stays(lived, tmp_path):
    young = GarbageLimits(versions=1, days=0, grace_days=60)
    assert count_kinds(make_place(lived, keep=young)) == {}
    with hold_run_lock(lived.state):
        lock = lived.state / "run.lock"
        make_old(lock, time.time() - 40 * DAY)
        assert collect.find_oldest_start(lived.state, None) == pytest.approx(lock.stat().st_mtime)
        assert count_kinds(make_place(lived)) == {}
    assert collect.find_oldest_start(lived.state, None) is None
    assert count_kinds(make_place(lived)) != {}
    found = collect.find_garbage(replace(make_place(lived), state=tmp_path / "other"))
    assert "TOOLMILL_STATE" in found.skipped["blobs"]
    collect.remove_garbage(found)
    assert lived.ledger.seen("k") == b"paid"


def test_what_cannot_be_removed_ends_nothing_and_keeps_what_it_names(lived, monkeypatch):
    found = collect.find_garbage(make_place(lived))
    stuck = next(one.name for one in found.garbage if one.kind == "tables")
    unlink = Path.unlink

    def refuse(path: Path, missing_ok: bool = False) -> None:
        if str(path).endswith(stuck):
            raise PermissionError(13, "Permission denied", str(path))
        unlink(path, missing_ok)

    monkeypatch.setattr(Path, "unlink", refuse)
    gone = [one.kind for one in collect.remove_garbage(found)]
    assert set(found.failed) == {"tables"}
    assert "Permission denied" in found.failed["tables"]
    assert gone.count("tables") == sum(one.kind == "tables" for one in found.garbage) - 1
    assert {"trainings", "leftovers"} <= set(gone) <= {"trainings", "leftovers", "tables"}


_KILLED = """
import os, sys, time
from pathlib import Path
from extensions.upkeep.collect import GarbageScope, find_garbage
from training.settings import (RetentionPolicy)
from extensions.upkeep.policy import GarbageLimits
home, state, left = Path(sys.argv[1]), Path(sys.argv[2]), int(sys.argv[3])
keep = GarbageLimits(versions=1, days=0, grace_days=1)
unlink = os.unlink
def count(path, *args, **options):
    global left
    left -= 1
    if left < 0:
        os.kill(os.getpid(), 9)
    unlink(path, *args, **options)
os.unlink = os.remove = count
for one in find_garbage(GarbageScope(home, state, keep, RetentionPolicy(), time.time())).garbage:
    one.remove()
"""


@pytest.mark.slow
@cases("left", 0, 1, 5, 11)
def test_killed_anywhere_it_leaves_a_home_that_is_well(lived, left):
    command = [sys.executable, "-c", _KILLED, str(lived.home), str(lived.state), str(left)]
    assert subprocess.run(command, cwd=ROOT, timeout=120).returncode == -9
    assert list_broken(health.InspectedHome(lived.home, lived.state)) == []
    [row] = lived.tables.read(DEPLOYMENTS).to_dicts()
    assert lived.blobs.get(row["tools_blob"]) == b'[{"name": "t3"}]'
    assert all(one.remove() for one in collect.find_garbage(make_place(lived)).garbage)
    assert count_kinds(make_place(lived)) == {}


@pytest.mark.slow
def test_a_publisher_beside_it_loses_nothing(lived):
    """The publisher goes back and forth between versions and blobs that are old, while collections
    run: whatever it made current can be read."""
    code = """
import sys, time
from pathlib import Path
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from tests.extensions.upkeep.conftest import make_deployment, publish_rows
from warehouse.store import Warehouse
made = Warehouse(home=Path(sys.argv[1]), state=Path(sys.argv[2]))
for turn in range(120):
    tools = ('[{"name": "t%d"}]' % (turn % 4)).encode()
    publish_rows(made, DEPLOYMENTS, make_deployment(made, "npm:a", "s", tools))
    [row] = made.tables.read(DEPLOYMENTS).to_dicts()
    assert made.blobs.get(row["tools_blob"]) == tools
"""
    command = [sys.executable, "-c", code, str(lived.home), str(lived.state)]
    publisher = subprocess.Popen(command, cwd=ROOT)
    removed = 0
    while publisher.poll() is None:
        removed += sum(one.remove() for one in collect.find_garbage(make_place(lived)).garbage)
    assert publisher.returncode == 0 < removed


@dg.asset
def made_often() -> dg.MaterializeResult:
    return dg.MaterializeResult(data_version=dg.DataVersion("v1"))


@pytest.fixture
def instance(tmp_path: Path) -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.local_temp(str(tmp_path)) as made:
        yield made


def test_runs_of_an_instance_elsewhere_stay(lived, instance, tmp_path):
    """Another project may have made them."""
    for _ in range(2):
        dg.materialize([made_often], instance=instance)
    keep = GarbageLimits(versions=1, days=0, grace_days=1, event_days=1)
    later, kinds = time.time() + 40 * DAY, {}
    for state in (lived.state / "other", tmp_path):
        own = is_own_instance(tmp_path / "dagster", state)
        place = make_place(lived, keep=keep, now=later, instance=instance, own_instance=own)
        kinds[own] = {one.kind for one in collect.find_garbage(place).garbage}
    assert "events" in kinds[True]
    assert "events" not in kinds[False]


def test_old_runs_go_and_the_last_word_on_an_asset_stays(instance):
    runs = [dg.materialize([made_often], instance=instance).run_id for _ in range(3)]
    alive = started(instance, make_process_tags())
    dead = started(instance, {PROCESS_TAG: a_dead_process()})
    assert collect.collect_last_runs(instance) == {runs[-1]}
    later = time.time() + 1
    old = list(collect.list_old_runs(instance, later, None))
    assert {one.name.split()[-1] for one in old} == {run[:8] for run in runs[:2]}
    assert all(one.size > 0 and one.remove() for one in old)
    assert list(collect.list_old_runs(instance, later, None)) == []
    assert {run.run_id for run in instance.get_runs()} == {runs[-1], alive.run_id, dead.run_id}
    event = instance.get_latest_materialization_event(dg.AssetKey("made_often"))
    assert event is not None
    assert event.run_id == runs[-1]
    assert list(collect.list_old_runs(instance, time.time() - DAY, None)) == []
    assert collect.find_oldest_start(Path("/nowhere"), instance) is not None


def test_a_history_in_postgres_is_left_alone_and_told_in_a_line(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    monkeypatch.delenv("DAGSTER_HOME", raising=False)
    settings = load_settings()
    folder = settings.state_path() / "dagster"
    folder.mkdir(parents=True)
    url = "{env: DAGSTER_POSTGRES_URL}"
    (folder / "dagster.yaml").write_text(f"storage: {{postgres: {{postgres_url: {url}}}}}")
    monkeypatch.delenv("DAGSTER_POSTGRES_URL", raising=False)
    assert is_own_instance(folder, settings.state_path())
    with ExitStack() as held, pytest.raises(UnusableInput, match="set it as it was"):
        commands._open_scope(settings, held)
    looked = health.run_check(checks.CHECKS[-1], health.InspectedHome(tmp_path, folder.parent))
    assert [finding.fix.partition(",")[0] for finding in looked.findings] == ["set it as it was"]
    monkeypatch.setenv("DAGSTER_POSTGRES_URL", "postgresql://u:s3cret@db/x")
    assert not is_own_instance(folder, settings.state_path())
