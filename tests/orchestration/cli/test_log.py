"""`toolmill log` over lines that a server wrote."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assets.servers.calls.log import CallLog, query_digest
from orchestration.cli.app import app


@pytest.fixture
def outcomes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> CallLog:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    call_log = CallLog(tmp_path)
    for token in ("ann", "bo\x1b[2J"):
        call_log.record({"token": token, "status": "ok", "client": "editor 1"})
        query = {"words": "read a file", "query": query_digest("read a file")}
        call_log.record({"token": token, "status": "searched", **query})
    return call_log


def toolmill(*arguments: str) -> tuple[int, str, str]:
    done = CliRunner().invoke(app, ["log", *arguments])
    return done.exit_code, done.stdout, done.stderr


def test_what_is_remembered_is_told_and_deleted_by_token(outcomes: CallLog) -> None:
    code, out, _ = toolmill()
    assert code == 0
    assert "ann  2 lines, 1 searches, 1 queries kept" in out
    assert "\x1b" not in out
    code, out, _ = toolmill("--delete", "--token", "ann", "--json")
    assert (code, json.loads(out)) == (0, {"deleted": 2, "unreadable": 0, "files": 1})
    assert [line["token"] for line in outcomes.read()] == ["bo\x1b[2J"] * 2
    assert toolmill("--delete", "--query", " Read a  FILE")[1].startswith("deleted 1 lines")
    assert toolmill("--delete", "--before", "2999-01-01")[0] == 0
    assert json.loads(toolmill("--json")[1]) == []
