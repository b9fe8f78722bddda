"""Settings of a server written into toolmill.toml."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest

from orchestration.settings.load import SettingsError, load_settings
from orchestration.settings.server_changes import write_server_settings
from tests.support.cases import cases
from tests.support.paths import ROOT

OWN = """# how I run them
home = "data"  # on the large disk

[servers."npm:notes"]  # my notes
network = "full"
confirmed = ["a"]

[sandbox]
twice = false
"""


@pytest.fixture
def file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    return tmp_path / "toolmill.toml"


def test_only_what_is_named_changes_and_comments_stay(file):
    file.write_text(OWN)
    file.chmod(0o600)
    assert write_server_settings("npm:notes", {"confirmed": ["b"]}) == file
    assert file.read_text() == OWN.replace('["a"]', '["b"]')
    assert file.stat().st_mode & 0o777 == 0o600
    write_server_settings("private:mcp.json#notes", {"confirmed": ["c"]})
    text = file.read_text()
    assert all(line in text for line in ("# how I run them", "# on the large disk", "# my notes"))
    result = load_settings().servers
    assert {name: one.confirmed for name, one in result.items()} == {
        "npm:notes": ("b",),
        "private:mcp.json#notes": ("c",),
    }
    assert load_settings().sandbox.twice is False


def test_a_link_to_the_file_stays_one(file):
    (file.parent / "own.toml").write_text(OWN)
    os.symlink("own.toml", file)
    write_server_settings("npm:notes", {"confirmed": ["b"]})
    assert file.is_symlink()
    assert '["b"]' in (file.parent / "own.toml").read_text()


@cases(
    "text, message",
    ("home = [", "not TOML"),
    (b"\xff\xfe", "not TOML"),
    ("servers = 3", "not TOML"),
)
def test_what_cannot_be_changed_is_named_and_left_alone(file, text, message):
    data = text if isinstance(text, bytes) else text.encode()
    file.write_bytes(data)
    with pytest.raises(SettingsError, match=message) as caught:
        write_server_settings("npm:notes", {"network": "full"})
    assert str(file) in str(caught.value)
    assert file.read_bytes() == data
    assert os.listdir(file.parent) == [file.name]


@cases(
    "text",
    'servers = { "npm:notes" = { stateless = true }, "npm:y" = { network = "full" } }\n',
    'servers."npm:notes".stateless = true\nhome = "var"\n',
    '[servers]\n"npm:y" = { network = "full" }\n[demo]\nday = 2\n',
    '[servers."npm:y"]\nnetwork = "full"\n[demo]\nday = 2\n[servers."npm:notes"]\n',
    '[servers."npm:notes".env]\nKEY = "env:MY_KEY"\n',
    "# nothing but this",
    "home = 'var'\r\n[demo]\r\nday = 2\r\n",
)
def test_whatever_form_a_file_has_one_servers_settings_change_alone(file, text):
    file.write_bytes(text.encode())
    before = tomllib.loads(text)
    write_server_settings("npm:notes", {"folders": ["/srv/notes"]})
    after = tomllib.loads(file.read_bytes().decode())
    known = before.get("servers", {}).pop("npm:notes", {})
    assert after["servers"].pop("npm:notes") == {**known, "folders": ["/srv/notes"]}
    assert after == {**before, "servers": before.get("servers", {})}
    assert all(line in file.read_text() for line in text.splitlines() if line.startswith("#"))


def test_a_kill_in_the_middle_of_a_write_leaves_the_old_file(file):
    """Killed as its data is written, before it has its name."""
    file.write_text(OWN)
    source = (
        "import os, signal\nos.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from orchestration.settings.server_changes import write_server_settings\n"
        "write_server_settings('npm:notes', {'stateless': True})\n"
    )
    env = {**os.environ, "PYTHONPATH": str(ROOT)}
    killed = subprocess.run([sys.executable, "-c", source], timeout=60, check=False, env=env)
    assert (killed.returncode, file.read_text()) == (-9, OWN)
    write_server_settings("npm:notes", {"stateless": True})  # what held the folder is gone
    assert load_settings().servers["npm:notes"].stateless
