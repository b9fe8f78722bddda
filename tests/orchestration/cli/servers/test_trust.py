"""`toolmill trust` over the files that a user names."""

import json
from pathlib import Path

import pytest

from orchestration.settings.load import load_settings
from tests.support.cases import cases
from tests.support.command import toolmill
from tests.support.local_servers import write_file, write_server

NAME = "private:mcp.json#own"


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.chdir(tmp_path)
    server = write_server(tmp_path / "own")
    write(tmp_path, server)
    file = tmp_path / "mcp.json"
    (tmp_path / "toolmill.toml").write_text(
        f'home = "var"\n[marketplaces.private]\npaths = ["{file}"]  # mine\n'
    )
    return server


def write(base: Path, folder: Path, *more: str) -> None:
    own = {"command": "python", "args": ["server.py", *more], "cwd": str(folder)}
    own["env"] = {"MODE": "fast", "API_KEY": "sk-" + "a1b2" * 8}
    gone = {"command": "python", "args": ["server.py"], "cwd": str(base / "gone")}
    npm = {"command": "npx", "args": ["-y", "quill@1.0.0"]}
    write_file(base / "mcp.json", own=own, gone=gone, npm=npm)


def states() -> dict[str, str]:
    code, out, _ = toolmill("trust", "--json")
    assert code == 0
    return {item["server_id"]: item["state"] for item in json.loads(out)}


def test_a_command_is_shown_and_trusted_once_and_asks_again_once_it_changed(folder):
    assert states() == {NAME: "new", "private:mcp.json#gone": "unusable"}
    code, out, err = toolmill("trust", "own", answer="y\n")
    assert (code, NAME in out) == (0, True), err
    assert '["python", "server.py"]' in err
    assert f'folder "{folder}"' in err
    assert '["API_KEY", "MODE"]' in err
    assert "reach nothing beyond its sandbox" in err
    assert "a1b2" not in out + err
    assert states()[NAME] == "trusted"
    text = (folder.parent / "toolmill.toml").read_text()
    assert "# mine" in text
    [confirmed] = load_settings().servers[NAME].confirmed
    (folder / "server.py").write_text("edited")
    assert states()[NAME] == "trusted"
    write(folder.parent, folder, "--admin")
    assert states()[NAME] == "changed"
    code, _, _ = toolmill("trust", NAME, "--yes")
    assert (code, states()[NAME]) == (0, "trusted")
    assert load_settings().servers[NAME].confirmed != (confirmed,)
    code, out, _ = toolmill("trust")
    assert code == 0
    assert f"trusted   {NAME}" in out
    assert "2 commands in your own files" in out


def test_what_is_granted_besides_is_said_before_it_is_trusted(folder):
    with (folder.parent / "toolmill.toml").open("a") as file:
        file.write(f'[servers."{NAME}"]\nnetwork = "full"\n')
    code, _, err = toolmill("trust", "own", answer="n\n")
    assert (code, "reach every host" in err) == (1, True)


def test_a_no_writes_nothing(folder):
    before = (folder.parent / "toolmill.toml").read_text()
    for answer in ("n\n", ""):
        code, _, err = toolmill("trust", "own", answer=answer)
        assert (code, "--yes" in err) == (1, not answer)
    assert (folder.parent / "toolmill.toml").read_text() == before


@cases(
    "name, code, message",
    ("nobody", 2, "no command of your own files"),
    ("npm", 2, "no command of your own files"),  # a package is nobody's own
    ("gone", 1, "is not there"),
)
def test_what_cannot_be_trusted_is_told(folder, name, code, message):
    found, _, err = toolmill("trust", name, "--yes")
    assert (found, message in err) == (code, True)
    assert not load_settings().servers


def test_a_name_that_two_files_have_is_asked_for_whole(folder):
    other = folder.parent / "other.json"
    other.write_text((folder.parent / "mcp.json").read_text())
    file = folder.parent / "toolmill.toml"
    file.write_text(file.read_text().replace('mcp.json"]', f'mcp.json", "{other}"]'))
    code, _, err = toolmill("trust", "own", "--yes")
    assert (code, "several commands" in err, "private:other.json#own" in err) == (2, True, True)
    assert toolmill("trust", "other.json#own", "--yes")[0] == 0
    assert list(load_settings().servers) == ["private:other.json#own"]


def test_files_and_entries_that_start_nothing_are_told(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, _, err = toolmill("trust")
    assert (code, "no file is named" in err) == (0, True)
    write_file(tmp_path / "mcp.json", shell={"command": "bash", "args": ["-c", "x"]}, empty={})
    (tmp_path / "torn.json").write_text('{"mcpServers": {')
    names = '["mcp.json", "torn.json", "gone.json"]'
    (tmp_path / "toolmill.toml").write_text(f"[marketplaces.private]\npaths = {names}\n")
    unusable = ("mcp.json#empty", "mcp.json#shell", "gone.json", "torn.json")
    assert states() == {f"private:{name}": "unusable" for name in unusable}
    for name, why in (("shell", "is a shell"), ("torn.json", "not JSON"), ("gone.json", "there")):
        code, _, err = toolmill("trust", name, "--yes")
        assert (code, why in err) == (1, True), err
