"""`toolmill doctor`, `gc` and `backup` as a person meets them."""

import json
import os
from importlib.metadata import version
from pathlib import Path

from tests.extensions.upkeep.doctor.conftest import well  # noqa: F401
from tests.support.command import invoke_toolmill
from warehouse.home import claim_home
from warehouse.store import Warehouse


def test_the_doctor_ends_by_what_it_finds(well: Warehouse, tmp_path: Path) -> None:  # noqa: F811
    state = {"TOOLMILL_STATE": str(well.state), "DAGSTER_HOME": str(tmp_path / "none")}
    done = invoke_toolmill("doctor", home=well.home, **state)
    assert done.returncode == 0, done.stdout
    assert "0 findings" in done.stdout.splitlines()[-1]
    (well.home / "tables/pairs/registry/HEAD.json").write_text("{")
    done = invoke_toolmill("doctor", "--only", "pointers", home=well.home, **state)
    assert done.returncode == 1
    assert "FAIL  pointers" in done.stdout
    assert "-> toolmill ledger repair" in done.stdout
    done = invoke_toolmill("doctor", "--json", "--all", home=well.home, **state)
    assert done.returncode == 1
    made = json.loads(done.stdout)
    broken = [one["name"] for one in made["checks"] if not one["holds"]]
    assert broken == ["pointers", "licences"], "licences are read by way of that pointer"
    assert not made["healthy"]


def test_the_doctor_of_nothing_is_usage(tmp_path: Path) -> None:
    done = invoke_toolmill("doctor", home=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing was made there yet" in done.stderr
    (tmp_path / "file").write_text("")
    done = invoke_toolmill("doctor", home=tmp_path / "file")
    assert done.returncode == 2
    assert "is a file; set TOOLMILL_HOME to a folder" in done.stderr
    for words in (("spend",), ("restore", str(tmp_path))):
        done = invoke_toolmill(*words, home=tmp_path / "file")
        assert (done.returncode, done.stderr.count("\n")) == (2, 1)
        assert "is a file; set TOOLMILL_HOME to a folder" in done.stderr
    done = invoke_toolmill("doctor", "--only", "luck", home=tmp_path)
    assert done.returncode == 2
    assert "pointers" in done.stderr


def test_a_repair_of_nothing_is_refused_and_leaves_nothing(tmp_path: Path) -> None:
    done = invoke_toolmill("ledger", "repair", home=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_nothing_says_so_before_it_begins(tmp_path: Path) -> None:
    done = invoke_toolmill("plan", home=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "nothing was made there yet" in line
    assert list(tmp_path.iterdir()) == []


def test_gc_shows_first_and_takes_away_with_yes(well: Warehouse, tmp_path: Path) -> None:  # noqa: F811
    lost = well.blobs.path(well.blobs.put(b"lost"))
    os.utime(lost, (1e9, 1e9))
    settings = {"TOOLMILL_STATE": str(well.state), "DAGSTER_HOME": str(tmp_path / "none")}
    done = invoke_toolmill("gc", home=well.home, **settings)
    assert done.returncode == 0
    assert done.stdout.splitlines()[-1].startswith("1 things, 0.0 MB, can go")
    assert lost.exists()
    made = json.loads(invoke_toolmill("gc", "--yes", "--json", home=well.home, **settings).stdout)
    assert made["kinds"]["blobs"]["removed"] == 1
    assert not lost.exists()
    (well.home / "tables/pairs/registry/HEAD.json").write_text("{")
    done = invoke_toolmill("gc", "--yes", home=well.home, **settings)
    assert done.returncode == 1
    assert "nothing is removed" in done.stdout


def test_a_home_is_saved_and_restored_and_found_well(well: Warehouse, tmp_path: Path) -> None:  # noqa: F811
    none = str(tmp_path / "none")
    saved = invoke_toolmill(
        *("backup", str(tmp_path / "kept"), "--keep", "3"),
        home=well.home,
        TOOLMILL_STATE=str(well.state),
        DAGSTER_HOME=none,
    )
    assert saved.returncode == 0, saved.stderr
    assert json.loads(saved.stdout)["removed_backups"] == 0
    home = tmp_path / "new"
    done = invoke_toolmill("restore", str(tmp_path / "kept"), home=home, DAGSTER_HOME=none)
    assert done.returncode == 0, done.stderr
    made = json.loads(done.stdout)
    assert (made["healthy"], made["version"]) == (True, version("toolmill"))
    assert (home / "state" / "ledger.db").exists()
    (well.home / "tables/pairs/registry/HEAD.json").write_text("{")
    broken = invoke_toolmill(
        *("backup", str(tmp_path / "kept"), "--keep", "1"),
        home=well.home,
        TOOLMILL_STATE=str(well.state),
        DAGSTER_HOME=none,
    )
    assert (broken.returncode, broken.stdout) == (1, "")
    assert f"{well.home / 'tables/pairs/registry/HEAD.json'}: cannot be read" in broken.stderr
    assert len(list((tmp_path / "kept" / "backups").iterdir())) == 1
    again = invoke_toolmill("restore", str(tmp_path / "kept"), home=home, DAGSTER_HOME=none)
    assert again.returncode == 2
    assert "holds something already" in again.stderr


def test_a_backup_without_a_table_says_so_when_made_and_when_restored(tmp_path: Path) -> None:
    kept, none = str(tmp_path / "kept"), str(tmp_path / "none")
    claim_home(tmp_path / "home")
    saved = invoke_toolmill("backup", kept, home=tmp_path / "home", DAGSTER_HOME=none)
    made = invoke_toolmill("restore", kept, home=tmp_path / "new", DAGSTER_HOME=none)
    for done in (saved, made):
        assert done.returncode == 0, done.stderr
        assert json.loads(done.stdout)["tables"] == 0
        assert "holds no table, 1 file: nothing was published in that home yet" in done.stderr
    assert (tmp_path / "new" / "home.json").exists()


def test_what_was_lost_before_it_was_saved_is_told_after_the_restore(
    well: Warehouse,  # noqa: F811
    tmp_path: Path,
) -> None:
    settings = {"DAGSTER_HOME": str(tmp_path / "none")}
    for path in well.blobs.list_files():
        path.unlink()
    invoke_toolmill(
        "backup", str(tmp_path / "kept"), home=well.home, TOOLMILL_STATE=str(well.state), **settings
    )
    done = invoke_toolmill("restore", str(tmp_path / "kept"), home=tmp_path / "new", **settings)
    assert done.returncode == 1
    assert "the answers of 1 effects are lost" in done.stderr
    assert not json.loads(done.stdout)["healthy"]


def test_a_backup_that_cannot_be_written_is_one_line(
    well: Warehouse,  # noqa: F811
    tmp_path: Path,
) -> None:
    kept = tmp_path / "kept"
    kept.mkdir()
    (kept / "backup.json").write_text("{}")
    (kept / "files").write_text("no folder")
    done = invoke_toolmill(
        *("backup", str(kept)), home=well.home, TOOLMILL_STATE=str(well.state), DAGSTER_HOME="x"
    )
    assert done.returncode == 1
    [line] = [line for line in done.stderr.splitlines() if "no backup was made" in line]
    assert str(kept / "files") in line
    assert "Traceback" not in done.stderr
