"""An export holds pointers and ledger as of one moment, from which a copy of the files is whole."""

import json
import shutil
import sqlite3
from pathlib import Path

import pytest

from extensions.upkeep.backup import export_backup
from extensions.upkeep.checks import CHECKS
from extensions.upkeep.health import InspectedHome, run_check
from tests.support.command import invoke_toolmill
from warehouse.errors import UnusableInput
from warehouse.storage.files import PointerBroken
from warehouse.store import Warehouse


def test_a_copy_of_the_files_with_an_export_is_a_home_that_is_well(
    well: Warehouse, tmp_path: Path
) -> None:
    made = export_backup(well.home, well.state, tmp_path / "export", "1.0")
    assert made["ledger"]
    copy = tmp_path / "copy"
    shutil.copytree(well.home, copy, ignore=shutil.ignore_patterns("HEAD*", "home.json", "*.db*"))
    shutil.copytree(tmp_path / "export" / "home", copy, dirs_exist_ok=True)
    (copy / "state").mkdir(exist_ok=True)
    shutil.copy(tmp_path / "export" / "ledger.db", copy / "state" / "ledger.db")
    restored = InspectedHome(copy, copy / "state")
    found = [run_check(check, restored).broken for check in CHECKS if check.name != "dagster"]
    assert [finding for findings in found for finding in findings] == []
    with sqlite3.connect(copy / "state" / "ledger.db") as ledger:
        assert ledger.execute("SELECT COUNT(*) FROM effects").fetchone() == (1,)


def test_an_export_takes_the_place_of_an_earlier_one(well: Warehouse, tmp_path: Path) -> None:
    folder = tmp_path / "export"
    export_backup(well.home, well.state, folder, "1.0")
    (folder / "home" / "stale").write_text("")
    export_backup(well.home, well.state, folder, "1.1")
    assert json.loads((folder / "backup.json").read_bytes())["version"] == "1.1"
    assert not (folder / "home" / "stale").exists()
    assert [path.name for path in tmp_path.iterdir() if path.name.startswith(".export")] == []
    assert folder.stat().st_mode & 0o077 == 0


def test_a_folder_of_other_things_is_left_alone(well: Warehouse, tmp_path: Path) -> None:
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "file").write_text("")
    with pytest.raises(UnusableInput, match="neither empty nor an earlier export"):
        export_backup(well.home, well.state, tmp_path / "mine", "1.0")


@pytest.mark.parametrize("damage", ["pointer", "version", "ledger"])
def test_what_is_broken_is_named_and_the_earlier_export_stays(
    well: Warehouse, tmp_path: Path, damage: str
) -> None:
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
    done = invoke_toolmill(
        "backup", str(folder), home=well.home, TOOLMILL_STATE=str(well.state), DAGSTER_HOME="x"
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert done.stderr.splitlines()[-1].startswith("nothing was exported: ")


def test_a_file_in_place_of_the_folder_is_refused_by_name(tmp_path: Path) -> None:
    target = tmp_path / "file"
    target.write_text("kept")
    with pytest.raises(UnusableInput, match="a file, expected a folder"):
        export_backup(tmp_path / "home", tmp_path / "state", target, "1")
    assert target.read_text() == "kept"
