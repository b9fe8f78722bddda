"""What of an answer of find_tools stands within its tokens."""

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from serving.discovery.session import estimate_tokens
from serving.meta.find_tools import fit_answer, fit_rows


@given(st.lists(st.integers(0, 6), max_size=4), st.integers(0, 60))
def test_no_answer_is_longer_than_its_allowance_unless_it_holds_nothing(
    sizes: list[int], most: int
) -> None:
    rows = [{"hits": list(range(size))} for size in sizes]
    kept, text = fit_rows(rows, most, lambda cut: "abcd" * sum(len(r["hits"]) for r in cut))
    count = sum(len(row["hits"]) for row in kept)
    assert estimate_tokens(text) == count == min(most, sum(sizes))
    assert [len(row["hits"]) + row.get("left_out", 0) for row in kept] == sizes
    assert max((len(r["hits"]) for r in kept), default=0) - 1 <= min(
        (len(r["hits"]) for r in kept if r.get("left_out")), default=99
    )


_HIT = st.builds(
    lambda name, says: {"tool_id": name, "says": says},
    st.text(max_size=90),
    st.text(max_size=140),
)
_ROW = st.fixed_dictionaries(
    {
        "asked": st.text(max_size=360),
        "hits": st.lists(_HIT, max_size=5),
        "no_tool": st.booleans(),
        "suitable": st.floats(0, 1),
    },
    optional={"problems": st.lists(st.text(max_size=200), max_size=4)},
)


@given(st.lists(_ROW, max_size=20), st.lists(st.text(max_size=400), max_size=30),
       st.integers(60, 600))  # fmt: skip
def test_the_text_of_any_answer_is_within_its_allowance(
    rows: list[dict[str, Any]], gone: list[str], most: int
) -> None:
    kept, named, text = fit_answer("0" * 64, rows, gone, most)
    assert estimate_tokens(text) <= most
    assert sum(map(estimate_tokens, named)) <= most
    for old, new in zip(rows, kept, strict=False):
        assert new["hits"] == old["hits"][: len(new["hits"])]
        assert len(new["hits"]) + new.get("left_out", 0) == len(old["hits"])
    if len(kept) < len(rows):
        assert f"{len(rows) - len(kept)} requests left out" in text
