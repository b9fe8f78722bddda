"""What of a request a small window shows."""

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.sidecar.prompt import (
    count_tokens,
    fit_request,
    rank_candidates,
    render_revision_prompt,
)
from extensions.sidecar.train import make_revision_lessons
from serving.repair.tools import RevisionRequest, ToolCandidate
from tests.extensions.sidecar.test_prompt import make_row, tokenizer
from tests.training.conftest import DEEDS, THINGS, raw_tool

__all__ = ["tokenizer"]
TOOLS = [raw_tool(deed, thing) for thing in THINGS for deed in DEEDS]
TURNS = [
    {"role": "user", "content": "Hello there, I keep photos and songs."},
    {"role": "assistant", "content": "What can I do for you?"},
    {"role": "user", "content": "Look up the invoice called 'Blue Sky'."},
]


def ask(name: str = "get_bill", tools: list[Any] = TOOLS) -> RevisionRequest:
    candidates = [ToolCandidate(tool["name"], tool) for tool in tools]
    return rank_candidates(RevisionRequest(TURNS, candidates, name, {"title": "Blue Sky"}, []))


def test_the_likeliest_candidate_comes_first() -> None:
    assert ask().candidates[0].name == "find_invoice"
    assert ask("drop_song").candidates[0].name == "drop_song"
    assert sorted(candidate.name for candidate in ask().candidates) == sorted(
        one["name"] for one in TOOLS
    )


@settings(max_examples=12, deadline=None)
@given(limit=st.integers(50, 2500), kept=st.sampled_from(["", "make_note"]))
def test_what_is_shown_fits_and_loses_candidates_before_turns(
    limit: int, kept: str, tokenizer: Any
) -> None:
    request = ask()
    fitted = fit_request(tokenizer, request, limit, {kept})
    if fitted is None:
        assert (
            count_tokens(tokenizer, render_revision_prompt(tokenizer, ask(tools=TOOLS[:1])))
            > limit - 200
        )
        return
    assert fitted.tokens == count_tokens(tokenizer, fitted.prompt) <= limit
    shown = [candidate.name for candidate in fitted.request.candidates]
    assert kept in (*shown, "")
    likely = [candidate.name for candidate in request.candidates if candidate.name != kept]
    assert [name for name in shown if name != kept] == likely[: len(shown) - (kept in shown)]
    assert (
        list(fitted.request.conversation) == TURNS[len(TURNS) - len(fitted.request.conversation) :]
    )
    if len(fitted.request.conversation) < len(TURNS):
        assert len(shown) == 1


def test_a_row_that_is_too_long_keeps_its_right_tool(tokenizer: Any) -> None:
    right = ({"name": "make_note", "arguments": {"title": "a", "count": 1}},)
    row = make_row(contracts=tuple(TOOLS), conversation=tuple(TURNS), right=right)
    lessons, counts = make_revision_lessons([row], tokenizer, 900)
    assert len(lessons[0].ids) <= 900
    assert counts["dropped_distractors"] > 10
    text = tokenizer.decode(lessons[0].ids)
    assert "make_note" in text.split("Write the call")[1]
    assert '"count": 1' in tokenizer.decode([lessons[0].ids[at] for at in lessons[0].places])


def test_a_row_too_long_in_itself_is_counted(tokenizer: Any) -> None:
    long = make_row(conversation=({"role": "user", "content": "word " * 900},))
    _, counts = make_revision_lessons([make_row(), long], tokenizer, 900)
    assert counts["too_long"] == 1
    assert sum(counts["drafts"]["sources"].values()) == counts["rows"] == 2
    with pytest.raises(RuntimeError, match="none of 1 rows fits context 900"):
        make_revision_lessons([long], tokenizer, 900)
