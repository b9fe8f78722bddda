"""`toolmill log` over lines that a server wrote."""

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assets.servers.calls.log import CallLog, query_digest
from orchestration.cli.app import app
from orchestration.settings.load import SettingsError, load_settings


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


def test_what_is_remembered_is_told_and_deleted_by_token(outcomes):
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


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        ((), "nothing to delete is named"),
        (("--before", "yesterday"), "expected YYYY-MM-DD"),
        # A variable of a script that is not set: all the others' lines are not what was meant.
        (("--token", "", "--before", "2999-01-01"), "token is empty"),
        (("--query", " ", "--token", "ann"), "query is empty"),
        (("--before", "", "--token", "ann"), "expected YYYY-MM-DD"),
        (("--token", "ann", "--place", "nowhere"), "no such folder"),
    ],
)
def test_a_deletion_that_says_nothing_is_usage(outcomes, arguments, said):
    code, _, err = toolmill("--delete", *arguments)
    assert (code, said in err) == (2, True)
    assert len(list(outcomes.read())) == 4


def test_what_is_kept_is_a_setting_that_is_off_by_default(outcomes, tmp_path):
    log = load_settings().serve.log
    assert (log.remember, log.days) == ("digest", 0)
    (tmp_path / "toolmill.toml").write_text('[serve.log]\nremember = "text"\ndays = 30\n')
    log = load_settings().serve.log
    assert (log.remember, log.days) == ("text", 30)
    for wrong in ('remember = "all"', "days = -1"):
        (tmp_path / "toolmill.toml").write_text(f"[serve.log]\n{wrong}\n")
        with pytest.raises(SettingsError, match="log"):
            load_settings()
