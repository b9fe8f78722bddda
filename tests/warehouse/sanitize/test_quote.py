"""Third-party words in a prompt: quoted ones stay quoted, and names are read back exactly."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.sanitize.untrusted_text import (
    escape_exact,
    escape_name,
    quote_name,
    quote_text,
    read_name,
)

HIDDEN = "\u200b\u202e\u2066\ufeff\x00\x1b\x7f\U000e0041\ufe0f\u00ad"
NAMES = st.text(max_size=40) | st.text("a\\u{}«»0bd \n", max_size=20)


@given(NAMES)
def test_a_name_is_read_back_as_it_was_shown(name: str) -> None:
    assert read_name(quote_name(name, 40)) == name
    assert read_name(escape_name(name, 40)) == read_name(escape_name(name, 40).strip()) == name


@given(NAMES, NAMES)
def test_two_names_stay_two_and_each_is_one_visible_line(one: str, other: str) -> None:
    assert (quote_name(one, 40) == quote_name(other, 40)) == (one == other)
    assert not set(escape_name(one + HIDDEN, 200)) & set(HIDDEN + "\n\r\u2028")
    assert not set(escape_exact(one + HIDDEN, 200)) & set(HIDDEN + "\n\r\u2028")


@given(NAMES)
def test_a_name_is_one_plain_word_or_stays_within_its_marks(name: str) -> None:
    shown = quote_name(name, 40)
    if shown.startswith("«"):
        assert shown.endswith("»")
        assert not set(shown[1:-1]) & set("«»\n")
    else:
        assert shown == name
        assert shown.isascii()
        assert not set(shown) & set(" \"'()[]{}<>,;!|*`\n")


@pytest.mark.parametrize(
    "name",
    ["npm:@scope/files::read_file", "http://host:8000/mcp?a=b&c=%20#x::search", "pypi:a::$ref"],
)
def test_usual_ids_are_bare(name: str) -> None:
    assert quote_name(name, 400) == escape_name(name, 400) == name


def test_a_long_name_is_cut_and_says_so() -> None:
    assert quote_name("x" * 50, 40) == f"«{'x' * 40}…»"


@pytest.mark.parametrize("text", ["", "«", "»", "a\\u{110000}", "a\\u{}", "a\\u{FF}", "c:\\users"])
def test_what_was_never_shown_is_read_as_it_is(text: str) -> None:
    assert read_name(text) == text


@given(st.text())
def test_a_quoted_text_cannot_close_its_quotes(text: str) -> None:
    assert quote_text(text)[1:-1].count("»") == 0
    assert quote_text(text).count("«") == 1
