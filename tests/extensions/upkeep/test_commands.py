"""`toolmill doctor` and `gc` as a person meets them."""

import json
import os
from pathlib import Path

import pytest

from tests.support.command import invoke_toolmill
from warehouse.store import Warehouse


def test_the_doctor_ends_by_what_it_finds(well: Warehouse, tmp_path: Path) -> None:
    state = {"TOOLMILL_STATE": str(well.state), "DAGSTER_HOME": str(tmp_path / "none")}
    done = invoke_toolmill("doctor", home=well.home, **state)
    assert done.returncode == 0, done.stdout
    assert "0 findings" in done.stdout.splitlines()[-1]
    (well.home / "tables/pairs/registry/HEAD.json").write_text("{")
    done = invoke_toolmill("doctor", home=well.home, **state)
    assert done.returncode == 1
    assert "FAIL  pointers" in done.stdout
    assert "-> toolmill doctor --fix" in done.stdout
    done = invoke_toolmill("doctor", "--json", "--all", home=well.home, **state)
    assert done.returncode == 1
    made = json.loads(done.stdout)
    broken = [one["name"] for one in made["checks"] if not one["holds"]]
    assert broken == ["pointers"]
    assert not made["healthy"]


def test_the_doctor_of_nothing_is_usage(tmp_path: Path) -> None:
    done = invoke_toolmill("doctor", home=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert "nothing was made there yet" in done.stderr
    (tmp_path / "file").write_text("")
    done = invoke_toolmill("doctor", home=tmp_path / "file")
    assert done.returncode == 2
    assert "is a file; set TOOLMILL_HOME to a folder" in done.stderr
    done = invoke_toolmill("spend", home=tmp_path / "file")
    assert (done.returncode, done.stderr.count("\n")) == (2, 1)
    assert "is a file; set TOOLMILL_HOME to a folder" in done.stderr


@pytest.mark.parametrize("words", [("rebuild",), ("repair",), ("check",)])
def test_a_ledger_of_nothing_is_refused_and_leaves_nothing(
    tmp_path: Path, words: tuple[str, ...]
) -> None:
    done = invoke_toolmill("ledger", *words, home=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    assert list(tmp_path.iterdir()) == []


def test_a_plan_of_nothing_says_so_before_it_begins(tmp_path: Path) -> None:
    done = invoke_toolmill("run", "--plan", home=tmp_path / "none")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.splitlines()
    assert "nothing was made there yet" in line
    assert list(tmp_path.iterdir()) == []


def test_gc_shows_first_and_takes_away_with_yes(well: Warehouse, tmp_path: Path) -> None:
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
