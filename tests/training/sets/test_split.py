"""Places are frozen hashes: of a server, then of a tool's name, then of a pair."""

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
    UNSEEN_TOOL,
    SetPolicy,
    choose_tool_place,
    compute_pair_draw,
    split_of,
)


def place_pair(server_id: str, tool: str, pair_id: str, policy: SetPolicy) -> str:
    """The split that a pair's ids put it in. A set puts a tool's last pair back into TRAIN."""
    place = choose_tool_place(server_id, tool, policy)
    held = place == TRAIN and compute_pair_draw(pair_id) < policy.seen_tools
    return SEEN_TOOL if held else place


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
    held = [name for name in tools if choose_tool_place(server, name, policy) == UNSEEN_TOOL]
    pairs = [f"p1:{i}" for i in range(30)]
    seen = [name for name in pairs if place_pair(server, "tool_0", name, policy) == SEEN_TOOL]
    assert held == ["tool_12", "tool_32", "tool_35", "tool_42"]
    assert seen == ["p1:0", "p1:3", "p1:5", "p1:6", "p1:15", "p1:19"]


def test_about_the_asked_shares_are_held_out() -> None:
    sides = [split_of(f"npm:server-{i}") for i in range(2000)]
    assert 0.26 < sides.count(TEST) / 2000 < 0.34
    policy = SetPolicy()
    tools = [choose_tool_place("npm:file", f"tool {i}", policy) for i in range(2000)]
    assert 0.08 < tools.count(UNSEEN_TOOL) / 2000 < 0.12
    pairs = [place_pair("npm:file", "make_file", f"p1:{i}", policy) for i in range(2000)]
    assert 0.10 < pairs.count(SEEN_TOOL) / 2000 < 0.14


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_a_server_is_never_on_both_sides_whatever_its_tools_and_pairs(
    server: str, tool: str, pair: str
) -> None:
    place = place_pair(server, tool, pair, SetPolicy())
    assert place in SPLITS
    assert (place == UNSEEN_SERVER) == (split_of(server) == TEST)
    assert (place == SEEN_TOOL) <= (choose_tool_place(server, tool, SetPolicy()) == TRAIN)


def test_copies_of_a_tool_fall_on_one_side_whatever_server_and_spelling() -> None:
    servers = [f"npm:s{i}" for i in range(40) if split_of(f"npm:s{i}") == TRAIN]
    for name in ("read_file", "search", "makeIssue"):
        spelt = {name, name.upper(), name.replace("_", "-")}
        assert len({choose_tool_place(s, n, SetPolicy()) for s in servers for n in spelt}) == 1


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"test_share": 1.5}, r"test_share\n.*less than or equal to 1"),
        ({"seen_tools": -0.1}, r"seen_tools\n.*greater than or equal to 0"),
        ({"twin_cosine": 0.0}, r"twin_cosine\n.*greater than 0"),
        ({"negatives": -1}, r"negatives\n.*greater than or equal to 0"),
    ],
)
def test_settings_that_cannot_be_meant_are_refused(settings: dict, message: str) -> None:
    with pytest.raises(ValidationError, match=message):
        SetPolicy(**settings)
