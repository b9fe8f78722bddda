"""Texts cut to a length: by letters, or between words."""

import pytest

from warehouse.sanitize.untrusted_text import shorten_text


@pytest.mark.parametrize(
    ("most", "whole_words", "kept"),
    [(12, False, "read, a file"), (11, False, "read, a fi…"), (6, False, "read,…"),
     (7, False, "read,…"), (11, True, "read, a…"), (7, True, "read…"), (0, False, "…")],
)  # fmt: skip
def test_what_fits_is_kept_with_an_ellipsis(most: int, whole_words: bool, kept: str) -> None:
    assert shorten_text("read, a file", most, whole_words=whole_words) == kept
