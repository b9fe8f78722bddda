"""Nothing that a third party wrote moves the cursor, hides, or makes a line of its own."""

import io
import json
import logging
from contextlib import redirect_stderr, redirect_stdout
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.calls.log import CallLog, query_digest
from orchestration.cli import terminal
from orchestration.settings.load import SettingsError, load_settings
from tests.support.cases import cases
from tests.support.command import toolmill
from warehouse.sanitize.markdown import fill_markdown


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


run = partial(toolmill, "log")


def test_what_is_remembered_is_told_and_deleted_by_token(outcomes):
    code, out, _ = run()
    assert code == 0
    assert "ann  2 lines, 1 search, 1 query kept" in out
    assert "\x1b" not in out
    code, out, _ = run("--delete", "--token", "ann", "--json")
    assert (code, json.loads(out)) == (0, {"deleted": 2, "unreadable": 0, "files": 1})
    assert [line["token"] for line in outcomes.read()] == ["bo\x1b[2J"] * 2
    assert run("--delete", "--query", " Read a  FILE")[1].startswith("deleted 1 line of")
    assert run("--delete", "--before", "2999-01-01")[0] == 0
    assert (run()[1], json.loads(run("--json")[1])) == ("nothing is kept yet\n", [])


@cases(
    "arguments, said",
    ((), "nothing to delete is named"),
    (("--before", "yesterday"), "expected YYYY-MM-DD"),
    # A variable of a script that is not set: all the others' lines are not what was meant.
    (("--token", "", "--before", "2999-01-01"), "token is empty"),
    (("--query", " ", "--token", "ann"), "query is empty"),
    (("--before", "", "--token", "ann"), "expected YYYY-MM-DD"),
    (("--token", "ann", "--place", "nowhere"), "no such folder"),
)
def test_a_deletion_that_says_nothing_is_usage(outcomes, arguments, said):
    code, _, err = run("--delete", *arguments)
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


CONTROLS = "\x1b[2J\x1b]0;title\x07\x9b31m\r\u202e\u2066\u200b\x7f\u2028\x85\x00\b"


def capture(print_it: object, value: object) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        print_it(value)  # type: ignore[operator]
    return out.getvalue()


@given(st.text() | st.text(alphabet=CONTROLS + "a\n"))
def test_any_text_is_one_line_of_visible_signs(text):
    printed = capture(terminal.print_line, CONTROLS + text)
    assert printed.endswith("\n")
    assert printed[:-1].isprintable()


@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=5))
def test_any_json_is_one_line_that_reads_back_as_it_was(value):
    printed = capture(terminal.print_json, {CONTROLS: value})
    assert printed[:-1].isprintable()
    assert json.loads(printed) == {CONTROLS: value}


def test_markdown_is_laid_out_on_a_terminal_and_left_as_it_is_in_a_pipe(monkeypatch):
    text = fill_markdown("| a | b |\n| --- | --- |\n| {} | 1 |\n", "<b>[x](y)" + CONTROLS)
    assert "&#" in capture(terminal.print_markdown, text)
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "dumb")  # no colours
    terminal.print_markdown(text)
    page = out.getvalue()
    assert "<b>[x](y)" in page
    assert "---" not in page
    assert not set(page) & set("\x1b\x9b\r\u202e\u2066\x7f\x85\x00\b")


def test_pages_errors_and_logs_keep_their_own_lines_alone():
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "a%s\nb", (CONTROLS,), None)
    with pytest.raises(SystemExit):
        terminal.fail(CONTROLS, 1)
    for text in (
        capture(terminal.print_page, f"a{CONTROLS}\nb")[:-1],
        terminal.EscapedLines().format(record),
    ):
        assert [line.isprintable() for line in text.split("\n")] == [True, True]
