"""`make clean` removes what Toolmill made, and no folder of somebody else's."""

import subprocess
from pathlib import Path

from tests.support.paths import ROOT


def clean(home: Path) -> "subprocess.CompletedProcess[str]":
    command = ["make", "-C", str(ROOT), "clean", f"TOOLMILL_HOME={home}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_home_goes_whole_and_an_absent_one_is_none(tmp_path):
    made = tmp_path / "made"
    (made / "tables").mkdir(parents=True)
    marked = tmp_path / "marked"
    marked.mkdir()
    (marked / "home.json").write_text('{"layout": 1}')
    for home in (made, marked, tmp_path / "absent"):
        assert clean(home).returncode == 0
        assert not home.exists()


def test_a_folder_that_is_no_home_stays(tmp_path):
    (tmp_path / "home.json").write_text('{"mine": true}')
    (tmp_path / "thesis.txt").write_text("years")
    done = clean(tmp_path)
    assert done.returncode == 2
    assert "Toolmill made nothing there" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years"
