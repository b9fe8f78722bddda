"""A contained browser sees no file of this machine but the system's own."""

import subprocess
from pathlib import Path

import pytest

from assets.marketplaces.fetch.sandboxed_chromium import make_launcher


def test_a_contained_program_sees_its_folder_and_no_other_file_of_this_machine(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SOME_API_KEY", "secret")
    folder, outside = tmp_path / "own", tmp_path / "outside"
    folder.mkdir()
    (folder / "mine").write_text("mine")
    outside.write_text("secret")
    program = make_launcher("/usr/bin/cat", folder)
    if program is None:
        pytest.skip("bubblewrap cannot run here")

    def read(path: Path | str) -> subprocess.CompletedProcess[str]:
        return subprocess.run([program, path], capture_output=True, text=True, check=False)

    assert read(folder / "mine").stdout == "mine"
    for path in (outside, "/etc/shadow", Path.home() / ".bashrc", "/proc/1/environ"):
        assert "secret" not in read(path).stdout
    assert read(outside).returncode != 0
    assert read("/etc/shadow").returncode != 0


def test_without_bubblewrap_there_is_no_launcher(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))
    assert make_launcher("/usr/bin/cat", tmp_path) is None
