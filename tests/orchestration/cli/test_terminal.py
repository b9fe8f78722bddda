"""Nothing that a third party wrote moves the cursor, hides, or makes a line of its own."""

import io
import json
import logging
from contextlib import redirect_stderr, redirect_stdout

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.cli.terminal import (
    EscapedLines,
    fail,
    print_json,
    print_line,
    print_markdown,
    print_page,
)
from warehouse.sanitize.markdown import fill_markdown

CONTROLS = "\x1b[2J\x1b]0;title\x07\x9b31m\r\u202e\u2066\u200b\x7f\u2028\x85\x00\b"


def capture(print_it: object, value: object) -> str:
    out = io.StringIO()
    with redirect_stdout(out), redirect_stderr(out):
        print_it(value)  # type: ignore[operator]
    return out.getvalue()


@given(st.text() | st.text(alphabet=CONTROLS + "a\n"))
def test_any_text_is_one_line_of_visible_signs(text):
    printed = capture(print_line, CONTROLS + text)
    assert printed.endswith("\n")
    assert printed[:-1].isprintable()


@given(st.recursive(st.text(), lambda inner: st.dictionaries(st.text(), inner), max_leaves=5))
def test_any_json_is_one_line_that_reads_back_as_it_was(value):
    printed = capture(print_json, {CONTROLS: value})
    assert printed[:-1].isprintable()
    assert json.loads(printed) == {CONTROLS: value}


def test_markdown_is_laid_out_on_a_terminal_and_left_as_it_is_in_a_pipe(monkeypatch):
    text = fill_markdown("| a | b |\n| --- | --- |\n| {} | 1 |\n", "<b>[x](y)" + CONTROLS)
    assert "&#" in capture(print_markdown, text)
    out = io.StringIO()
    monkeypatch.setattr(out, "isatty", lambda: True)
    monkeypatch.setattr("sys.stdout", out)
    monkeypatch.setenv("TERM", "dumb")  # no colours
    print_markdown(text)
    page = out.getvalue()
    assert "<b>[x](y)" in page
    assert "---" not in page
    assert not set(page) & set("\x1b\x9b\r\u202e\u2066\x7f\x85\x00\b")


def test_pages_errors_and_logs_keep_their_own_lines_alone():
    record = logging.LogRecord("x", logging.INFO, __file__, 1, "a%s\nb", (CONTROLS,), None)
    with pytest.raises(SystemExit):
        fail(CONTROLS, 1)
    for text in (capture(print_page, f"a{CONTROLS}\nb")[:-1], EscapedLines().format(record)):
        assert [line.isprintable() for line in text.split("\n")] == [True, True]
