"""`toolmill grant`: what it writes, says and refuses."""

import json
import os
import tomllib
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assets.servers.deploy.deployment_table import DEPLOYMENTS
from orchestration.cli.app import app
from orchestration.factories import open_warehouse
from orchestration.settings.load import load_settings
from tests.support.cases import cases

NAME = "npm:@modelcontextprotocol/server-filesystem"


@pytest.fixture
def here(tmp_path, monkeypatch):
    """A user's directory with a folder of notes, where a run has listed one server of each kind."""
    monkeypatch.chdir(tmp_path)
    notes = tmp_path / "notes"
    notes.mkdir()
    if os.geteuid() == 0:
        os.chown(notes, 4242, 4242)
    rows = [
        {**dict.fromkeys(DEPLOYMENTS.columns), "server_id": name}
        for name in (NAME, "oci:docker.io/mcp/x", "remote:https://mcp.example.com/mcp")
    ]
    store = open_warehouse(load_settings())
    store.check_writable()
    staged = store.tables.stage(DEPLOYMENTS, DEPLOYMENTS.frame(rows), "registry")
    store.tables.promote(staged, "run", [])
    return tmp_path


def run(*words: str) -> tuple[int, str]:
    done = CliRunner().invoke(app, ["grant", *words])
    return done.exit_code, done.output


def read_block(here: Path, name: str = NAME) -> dict:
    return tomllib.loads((here / "toolmill.toml").read_text())["servers"][name]


def test_a_grant_is_written_and_said_in_plain_words(here):
    code, said = run(NAME, "--folder", "notes:rw", "--host", "api.example.com")
    assert code == 0, said
    notes = here / "notes"
    assert read_block(here) == {"folders": [f"{notes}:rw"], "hosts": ["api.example.com"]}
    assert f"read, change and delete every file below {notes}, which it sees as" in said
    assert "send to and hear from api.example.com, and no other host" in said
    assert "can be in its answers, which models read, and it can send them" in said
    assert "third-party" in said
    assert "written to toolmill.toml" in said
    again = run(NAME, "--host", "api.example.com")[1]
    assert ("written to" in again, "stays as it was" in again) == (False, True)
    answer = json.loads(run(NAME, "--json")[1])
    assert (answer["network"], answer["hosts"]) == ("none", ["api.example.com"])
    assert answer["folders"] == [
        {"path": str(notes), "inside": "/home/user/data", "writable": True}
    ]


def test_a_grant_is_taken_back(here):
    run(NAME, "--network", "full")
    code, said = run(NAME, "--revoke")
    assert code == 0
    assert "reach nothing beyond its sandbox" in said
    assert tomllib.loads((here / "toolmill.toml").read_text()).get("servers", {}) == {}


@cases(
    "words, problem",
    ([NAME, "--folder", "/"], "a home folder"),
    ([NAME, "--folder", "none"], "no such folder"),
    ([NAME, "--folder", "file.txt"], "a file: grant the folder that holds it"),
    ([NAME, "--folder", "link"], "leads to"),
    ([NAME, "--folder", "var"], "toolmill keeps its own files in"),
    ([NAME, "--folder", "var/state"], "toolmill keeps its own files in"),
    ([NAME, "--folder", "."], "toolmill keeps its own files in"),
    ([NAME, "--host", "https://api.example.com"], "its scheme"),
    ([NAME, "--host", "a.example/v1"], "a path"),
    ([NAME, "--host", "me@a.example"], "a user"),
    ([NAME, "--host", "a.example:70000"], "1 to 65535"),
    ([NAME, "--host", "*.example.com"], "a wildcard"),
    ([NAME, "--network", "some"], "expected none or full"),
    ([NAME.replace("file", "fiel"), "--host", "a.example"], f"did you mean {NAME}?"),
    (["server-filesystem", "--host", "a.example"], f"did you mean {NAME}?"),
    (["what", "--host", "a.example", "--unlisted"], "no server id"),
    (["oci:docker.io/mcp/x", "--host", "a.example"], "held to no hosts"),
    (["remote:https://mcp.example.com/mcp", "--folder", "notes"], "runs elsewhere"),
)
def test_bad_input_is_one_line_and_writes_nothing(here, words, problem):
    (here / "file.txt").touch()
    (here / "link").symlink_to(here / "notes")
    code, said = run(*words)
    assert (code, problem in said) == (2, True), said
    assert len(said.strip().splitlines()) == 1
    assert not (here / "toolmill.toml").exists()


def test_a_home_folder_is_not_granted_by_any_name(here, monkeypatch):
    monkeypatch.setenv("HOME", str(here / "notes"))
    for text in ("~", "notes", str(here / "notes" / ".local")):
        code, said = run(NAME, "--folder", text)
        assert (code, "home folder" in said) == (2, True), said


def test_before_the_first_run_a_server_is_granted_when_told_so(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    code, said = run("npm:new", "--host", "a.example")
    assert (code, "--unlisted grants it anyway" in said) == (2, True)
    assert run("npm:new", "--host", "a.example", "--unlisted")[0] == 0
    assert read_block(tmp_path, "npm:new") == {"hosts": ["a.example"]}
    assert run("npm:new", "--host", "b.example")[0] == 0  # it is in the file now


def test_a_grant_that_would_let_a_server_grant_itself_more_is_refused(tmp_path, monkeypatch):
    work = tmp_path / "work"
    work.mkdir()
    monkeypatch.chdir(work)
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    if os.geteuid() == 0:
        os.chown(work, 4242, 4242)
    run("npm:new", "--host", "a.example", "--unlisted")
    code, said = run("npm:new", "--folder", ".:rw")
    assert (code, "could grant itself more" in said) == (2, True), said
    assert run("npm:new", "--folder", ".")[0] == 0
