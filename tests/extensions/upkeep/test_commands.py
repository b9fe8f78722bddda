"""`toolmill doctor` and `gc` as a person meets them."""

import json
import os
import shutil
import sqlite3
from functools import partial

import pytest

from extensions.upkeep.backup import export_backup
from extensions.upkeep.garbage import measure_size, remove_path
from extensions.upkeep.health import InspectedHome
from tests.extensions.upkeep.conftest import list_broken
from tests.support.cases import cases
from tests.support.command import invoke_toolmill
from warehouse.errors import UnusableInput
from warehouse.storage.files import PointerBroken


@pytest.fixture
def toolmill(well, tmp_path):
    state = {"TOOLMILL_STATE": str(well.state), "DAGSTER_HOME": str(tmp_path / "none")}
    return partial(invoke_toolmill, home=well.home, **state)


def test_the_doctor_ends_by_what_it_finds(toolmill, well):
    done = toolmill("doctor")
    assert done.returncode == 0, done.stdout
    assert "0 findings" in done.stdout.splitlines()[-1]
    (well.home / "tables/pairs/registry/HEAD.json").write_text("{")
    done = toolmill("doctor")
    assert done.returncode == 1
    assert "FAIL  pointers" in done.stdout
    assert "-> toolmill doctor --fix" in done.stdout
    done = toolmill("doctor", "--json", "--all")
    made = json.loads(done.stdout)
    broken = [one["name"] for one in made["checks"] if not one["holds"]]
    assert (done.returncode, broken, made["healthy"]) == (1, ["pointers"], False)


@cases(
    "words, home, problem",
    (["doctor"], "none", "nothing was made there yet"),
    (["run", "--plan"], "none", "nothing was made there yet"),
    (["doctor"], "file", "is a file; set TOOLMILL_HOME to a folder"),
    (["spend"], "file", "is a file; set TOOLMILL_HOME to a folder"),
)
def test_a_look_at_nothing_is_usage_and_makes_nothing(tmp_path, words, home, problem):
    (tmp_path / "file").write_text("")
    done = invoke_toolmill(*words, home=tmp_path / home)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert problem in line
    assert [path.name for path in tmp_path.iterdir()] == ["file"]


def test_gc_shows_first_and_takes_away_with_yes(toolmill, well):
    lost = well.blobs.path(well.blobs.put(b"lost"))
    os.utime(lost, (1e9, 1e9))
    done = toolmill("gc")
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("1 things, 0.0 MB, can go")
    assert lost.exists()
    assert json.loads(toolmill("gc", "--yes", "--json").stdout)["kinds"]["blobs"]["removed"] == 1
    assert not lost.exists()
    (well.home / "tables/pairs/registry/HEAD.json").write_text("{")
    done = toolmill("gc", "--yes")
    assert done.returncode == 1
    assert "nothing is removed" in done.stdout


def test_a_copy_with_an_export_is_a_home_that_is_well_and_the_next_takes_its_place(well, tmp_path):
    assert export_backup(well.home, well.state, tmp_path / "export", "1.0")["ledger"]
    copy = tmp_path / "copy"
    shutil.copytree(well.home, copy, ignore=shutil.ignore_patterns("HEAD*", "home.json", "*.db*"))
    shutil.copytree(tmp_path / "export" / "home", copy, dirs_exist_ok=True)
    (copy / "state").mkdir(exist_ok=True)
    shutil.copy(tmp_path / "export" / "ledger.db", copy / "state" / "ledger.db")
    assert list_broken(InspectedHome(copy, copy / "state")) == []
    with sqlite3.connect(copy / "state" / "ledger.db") as ledger:
        assert ledger.execute("SELECT COUNT(*) FROM effects").fetchone() == (1,)
    folder = tmp_path / "export"
    (folder / "home" / "stale").write_text("")
    export_backup(well.home, well.state, folder, "1.1")
    assert json.loads((folder / "backup.json").read_bytes())["version"] == "1.1"
    assert not (folder / "home" / "stale").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".export")] == []
    assert folder.stat().st_mode & 0o077 == 0


@cases(
    "name, problem", ("home", "neither empty nor an earlier export"), ("file", "expected a folder")
)
def test_what_is_there_in_place_of_an_export_is_left_alone(well, tmp_path, name, problem):
    (tmp_path / "file").write_text("mine")
    with pytest.raises(UnusableInput, match=problem):
        export_backup(well.home, well.state, tmp_path / name, "1.0")
    assert (tmp_path / "file").read_text() == "mine"


@cases("damage", "pointer", "version", "ledger")
def test_what_is_broken_is_named_and_the_earlier_export_stays(toolmill, well, tmp_path, damage):
    folder = tmp_path / "export"
    export_backup(well.home, well.state, folder, "1.0")
    head = well.home / "tables/pairs/registry/HEAD.json"
    if damage == "pointer":
        head.write_text("{")
    elif damage == "version":
        (head.parent / f"{json.loads(head.read_bytes())['digest']}.parquet").unlink()
    else:
        for path in well.state.glob("ledger.db*"):
            path.write_bytes(b"not a database at all" * 99)
    with pytest.raises((PointerBroken, OSError)) as caught:
        export_backup(well.home, well.state, folder, "1.1")
    named = well.state / "ledger.db" if damage == "ledger" else head
    assert str(caught.value).startswith(str(named))
    assert json.loads((folder / "backup.json").read_bytes())["version"] == "1.0"
    done = toolmill("backup", str(folder))
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("nothing was exported: ")


def test_what_cannot_be_read_is_left_out_of_an_export_and_named(well, tmp_path, monkeypatch):
    (well.home / "router" / "odd.json").mkdir(parents=True)
    (well.home / "tables" / "closed").mkdir()
    allow = os.access
    monkeypatch.setattr(
        os, "access", lambda path, mode: path.name != "closed" and allow(path, mode)
    )
    facts = export_backup(well.home, well.state, tmp_path / "export", "1.0")
    left_out = {"router/odd.json": "Is a directory", "tables/closed": "it cannot be opened"}
    assert facts["left_out"] == left_out
    assert json.loads((tmp_path / "export" / "backup.json").read_bytes())["left_out"] == left_out
    assert (tmp_path / "export" / "home" / "tables/pairs/registry/HEAD.json").exists()


def test_a_chain_of_folders_in_a_package_is_measured_and_removed(tmp_path):
    folder, here = tmp_path / "package", os.getcwd()
    folder.mkdir()
    try:
        os.chdir(folder)
        for _ in range(1_500):
            os.mkdir("deep")
            os.chdir("deep")
    finally:
        os.chdir(here)
    (folder / "file").write_text("1234")
    assert measure_size(folder) == 4
    assert remove_path(folder)
    assert list(tmp_path.iterdir()) == []
