"""Files that a user hands in: each fault is one line that names the file and what was expected."""

from pathlib import Path

import pytest

from warehouse.errors import UnusableInput
from warehouse.user_files import parse_json, read_json_lines, read_text


def test_what_cannot_be_opened_says_what_was_expected(tmp_path: Path) -> None:
    with pytest.raises(UnusableInput, match="Is a directory; expected a file that can be read"):
        read_text(tmp_path)
    with pytest.raises(UnusableInput, match=r"none: No such file or directory; expected a file"):
        read_text(tmp_path / "none")
    (tmp_path / "long").write_text("four")
    with pytest.raises(UnusableInput, match="more than 3 bytes"):
        read_text(tmp_path / "long", 3)


@pytest.mark.parametrize(
    ("text", "told"),
    [
        (" ", "empty; give one JSON value"),
        ("{", "not JSON"),
        ("[" * 200_000, "nested too deep to be read"),
        ("9" * 5_000, "an integer of too many digits to be read"),
    ],
)
def test_what_is_no_json_is_told_in_our_words(text: str, told: str) -> None:
    with pytest.raises(UnusableInput, match=rf"^here: .*{told}") as caught:
        parse_json(text, "here")
    assert "set_int_max_str_digits" not in str(caught.value)


def test_lines_are_numbered_and_a_line_separator_within_a_text_ends_none(tmp_path: Path) -> None:
    path = tmp_path / "rows.jsonl"
    path.write_text('{"a": "one\u2028two"}\n\n{"b": 2}\n', encoding="utf-8-sig")
    assert list(read_json_lines(path)) == [(1, {"a": "one\u2028two"}), (3, {"b": 2})]
    path.write_text("[1]\n")
    with pytest.raises(UnusableInput, match="line 1: list, expected a JSON object"):
        list(read_json_lines(path))
