"""The patterns of third-party text: as Python's, in linear time."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from warehouse.patterns import compile_pattern

_TEXT = st.text(
    alphabet=st.sampled_from("aAbB01_ .-,:/<>{}'\"\n\t\x00é中ß١\u2028😀\ud800"), max_size=30
)
# (ours, Python's, characters not before, not behind)
_EQUAL = [
    (r"\w+", r"\w+", "", ""),
    (r"[\w.-]{2,3}", r"[\w.-]{2,3}", "", ""),
    (r"[^\w]+\d*", r"[^\w]+\d*", "", ""),
    (r"\s|\S\D", r"\s|\S\D", "", ""),
    (r"(?i)(?P<first>a)|(b)(\d)?", r"(?i)(?P<first>a)|(b)(\d)?", "", ""),
    (r"\u00e9|[\u4e2d-\u9fff]", r"\u00e9|[\u4e2d-\u9fff]", "", ""),
    (r"[]a]|[^]a]", r"[]a]|[^]a]", "", ""),
    (r"[ab]+", r"(?<![\w.])[ab]+(?![\w])", r"\w.", r"\w"),
    (r"\w", r"(?<!\w)\w", r"\w", ""),
    (r"a|é|(0)", r"(?<![^\s,])(?:a|é|(0))", r"^\s,", ""),
    (r"a+?", r"a+?(?!b)", "", "b"),
]


@pytest.mark.parametrize(("ours", "python", "after", "before"), _EQUAL)
@given(text=_TEXT)
def test_matches_as_python(ours: str, python: str, after: str, before: str, text: str) -> None:
    text = text.replace("\x00", " ") if after.startswith("^") else text
    pattern, other = (
        compile_pattern(ours, unless_after=after, unless_before=before),
        re.compile(python),
    )
    expected = [(m.span(), m.groups(), m.groupdict()) for m in other.finditer(text)]
    assert [(m.span(), m.groups(), m.groupdict()) for m in pattern.finditer(text)] == expected
    assert pattern.findall(text) == other.findall(text)
    assert pattern.sub("+", text) == other.sub("+", text)
    assert pattern.sub(lambda m: m[0] * 2, text) == other.sub(lambda m: m[0] * 2, text)
    for start in range(len(text) + 1):
        for method in ("search", "match"):
            mine, theirs = (getattr(p, method)(text, start) for p in (pattern, other))
            assert (mine and mine.span()) == (theirs and theirs.span()), (method, start)
    assert bool(pattern.fullmatch(text)) == bool(other.fullmatch(text))


def test_splits_and_passes_empty_matches() -> None:
    assert compile_pattern(r"\s*,\s*").split("a , é,\n😀") == ["a", "é", "😀"]
    assert compile_pattern(r"a*").findall("baé") == ["", "a", "", ""]


@pytest.mark.parametrize("pattern", [r"(a)\1", r"a++", r"(?<=a)b", r"[\W_]", "("])
def test_what_the_engine_lacks_is_refused(pattern: str) -> None:
    with pytest.raises(ValueError, match=re.escape(repr(pattern))):
        compile_pattern(pattern).search("a")
