"""Places are frozen hashes: of a server, then its date, then a tool's name, then a pair."""

from datetime import date

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from training.sets.split import (
    SEEN_TOOL,
    SPLITS,
    TEST,
    TRAIN,
    UNSEEN_SERVER,
    UNSEEN_TIME,
    UNSEEN_TOOL,
    SetPolicy,
    choose_tool_place,
    compute_pair_draw,
    split_of,
)

DATES = st.one_of(st.none(), st.dates(date(2024, 1, 1), date(2027, 1, 1)).map(str))


def place_pair(
    server_id: str, tool: str, pair_id: str, first_seen: str | None, policy: SetPolicy
) -> str:
    """The split that a pair's ids put it in. A set puts a tool's last pair back into TRAIN."""
    place = choose_tool_place(server_id, tool, first_seen, policy)
    held = place == TRAIN and compute_pair_draw(pair_id) < policy.seen_tools
    return SEEN_TOOL if held else place


CUTOFF = SetPolicy(cutoff=date(2026, 1, 1))


@given(st.text(min_size=1))
def test_the_side_is_a_function_of_the_server_alone(server: str) -> None:
    assert split_of(server) == split_of(server)
    assert split_of(server, test_share=0.0) == TRAIN
    assert split_of(server, test_share=1.0) == TEST


def test_the_sides_of_servers_are_those_of_every_past_figure() -> None:
    servers = ["npm:@playwright/mcp", "pypi:mcp-atlassian", "npm:@notionhq/notion-mcp-server"]
    assert [split_of(name) for name in servers] == [TRAIN, TRAIN, TEST]


def test_the_places_of_tools_and_pairs_are_frozen() -> None:
    policy = SetPolicy()
    server = "pypi:mcp-atlassian"
    tools = [f"tool_{i}" for i in range(60)]
    held = [name for name in tools if choose_tool_place(server, name, None, policy) == UNSEEN_TOOL]
    pairs = [f"p1:{i}" for i in range(30)]
    seen = [name for name in pairs if place_pair(server, "tool_0", name, None, policy) == SEEN_TOOL]
    assert held == ["tool_12", "tool_32", "tool_35", "tool_42"]
    assert seen == ["p1:0", "p1:3", "p1:5", "p1:6", "p1:15", "p1:19"]


def test_about_the_asked_shares_are_held_out() -> None:
    sides = [split_of(f"npm:server-{i}") for i in range(2000)]
    assert 0.26 < sides.count(TEST) / 2000 < 0.34
    policy = SetPolicy()
    tools = [choose_tool_place("npm:file", f"tool {i}", None, policy) for i in range(2000)]
    assert 0.08 < tools.count(UNSEEN_TOOL) / 2000 < 0.12
    pairs = [place_pair("npm:file", "make_file", f"p1:{i}", None, policy) for i in range(2000)]
    assert 0.10 < pairs.count(SEEN_TOOL) / 2000 < 0.14


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1), DATES)
def test_a_server_is_never_on_both_sides_whatever_its_tools_and_pairs(
    server: str, tool: str, pair: str, first_seen: str | None
) -> None:
    place = place_pair(server, tool, pair, first_seen, CUTOFF)
    assert place in SPLITS
    assert (place == UNSEEN_SERVER) == (split_of(server) == TEST)
    if place not in (UNSEEN_SERVER, UNSEEN_TIME):
        assert first_seen is None or first_seen <= "2026-01-01"
    assert (place == SEEN_TOOL) <= (choose_tool_place(server, tool, first_seen, CUTOFF) == TRAIN)


@given(st.text(min_size=1), st.text(min_size=1), DATES)
def test_a_cutoff_moves_nothing_out_of_unseen_server(
    server: str, tool: str, first_seen: str
) -> None:
    before, after = (
        choose_tool_place(server, tool, first_seen, policy) for policy in (SetPolicy(), CUTOFF)
    )
    assert before == after or after == UNSEEN_TIME != before != UNSEEN_SERVER


def test_a_server_of_after_the_cutoff_is_tested_in_time_and_one_without_a_date_is_old() -> None:
    days = {"2026-01-01": TRAIN, "2026-01-02": UNSEEN_TIME, "2025-06-01": TRAIN, None: TRAIN}
    policy = SetPolicy(cutoff=date(2026, 1, 1), unseen_tools=0.0)
    assert {day: choose_tool_place("npm:file", "find", day, policy) for day in days} == days


def test_copies_of_a_tool_fall_on_one_side_whatever_server_and_spelling() -> None:
    servers = [f"npm:s{i}" for i in range(40) if split_of(f"npm:s{i}") == TRAIN]
    for name in ("read_file", "search", "makeIssue"):
        spelt = {name, name.upper(), name.replace("_", "-")}
        assert (
            len({choose_tool_place(s, n, None, SetPolicy()) for s in servers for n in spelt}) == 1
        )


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test_share": 1.5}, r"test_share\n.*less than or equal to 1"),
        ({"seen_tools": -0.1}, r"seen_tools\n.*greater than or equal to 0"),
        ({"twin_cosine": 0.0}, r"twin_cosine\n.*greater than 0"),
        ({"negatives": -1}, r"negatives\n.*greater than or equal to 0"),
        ({"cutoff": "yesterday"}, r"cutoff\n.*valid date"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SetPolicy(**settings)


def test_a_cutoff_may_be_written_as_text() -> None:
    assert SetPolicy(cutoff="2026-01-01") == CUTOFF  # type: ignore[arg-type]
    assert CUTOFF.as_dict()["cutoff"] == "2026-01-01"
