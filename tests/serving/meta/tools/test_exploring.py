"""Exploring: what may be drawn, how often, with which probability, and what the log holds of it."""

from collections import Counter
from dataclasses import replace
from pathlib import Path
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.meta import MetaPolicy
from serving.meta.access.policy import LOCAL, ExplorationSettings
from serving.meta.context import Desk
from serving.meta.tools.exploring import draw_first, make_wide_ask
from serving.meta.tools.find_tools import find_tools
from serving.router import Ask, Router
from tests.serving.meta_server import READS, MetaServer, opened, publish, row, served

ROWS = [
    row("npm:a", "forecast", "Tell the weather of a city", annotations=READS),
    row("npm:b", "forecast", "Tell the weather of one city", annotations=READS),
    row("npm:c", "forecast", "Tell weather of the city", annotations=READS),
    row("npm:d", "set_forecast", "Change the weather of a city"),
    row("npm:e", "forecast", "The weather of a city", annotations=READS, flags=["urgent_words"]),
    row("npm:f", "forecast", "A city and its weather", annotations={"destructiveHint": False}),
]
OPEN = {"npm:a::forecast", "npm:b::forecast", "npm:c::forecast"}
QUERY = "Tell the weather of a city"


@pytest.fixture(scope="module")
def router(tmp_path_factory: pytest.TempPathFactory) -> Router:
    place = tmp_path_factory.mktemp("place")
    publish(place, ROWS)
    return opened(place, None)


def make_policy(share: float, depth: int = 6, **more: Any) -> MetaPolicy:
    return MetaPolicy(exploration=ExplorationSettings(share, depth), **more)


def draw(router: Router, policy: MetaPolicy, dice: Random, **ask: Any) -> Any:
    """(answer, draw) of one search."""
    asked = Ask(**{"query": QUERY, "k": 3, **ask})
    answer = router.find(make_wide_ask(asked, policy.exploration))
    return draw_first(replace(answer, no_tool=False), asked, router, policy, dice)


def test_only_tools_that_run_unasked_are_drawn_and_each_as_often_as_its_propensity_says(
    router: Router,
) -> None:
    policy, dice = make_policy(0.5), Random(7)
    ranked = [hit.tool_id for hit in router.find(Ask(query=QUERY, k=6)).hits]
    firsts: Counter[str] = Counter()
    said: dict[str, float] = {}
    for _ in range(600):
        answer, drawn = draw(router, policy, dice)
        first = answer.hits[0].tool_id
        firsts[first] += 1
        said[first] = drawn.propensity
        rest = [hit.tool_id for hit in answer.hits[1:]]
        assert rest == [name for name in ranked if name != first][:2]
        assert drawn.candidates == tuple(name for name in ranked if name in OPEN)
    assert set(firsts) == OPEN
    assert sum(said.values()) == pytest.approx(1)
    for name, count in firsts.items():
        assert count / 600 == pytest.approx(said[name], abs=0.07)


@given(seed=st.integers(0, 2**32), depth=st.integers(2, 6), share=st.floats(0.01, 0.5))
def test_a_draw_loses_and_invents_no_tool(
    router: Router, seed: int, depth: int, share: float
) -> None:
    answer, drawn = draw(router, make_policy(share, depth), Random(seed), k=6)
    ranked = [hit.tool_id for hit in router.find(Ask(query=QUERY, k=6)).hits]
    shown = [hit.tool_id for hit in answer.hits]
    assert sorted(shown) == sorted(ranked)
    assert shown[0] in drawn.candidates
    assert 0 < drawn.propensity <= 1


@pytest.mark.parametrize(
    "more", [{"stretch": 2}, {"trim": True}, {"strategy": "bm25"}, {"exclude": frozenset(OPEN)}]
)
def test_nothing_is_drawn_where_the_order_is_not_ours_or_the_best_may_not_be(
    router: Router, more: dict[str, Any]
) -> None:
    asked = router.find(Ask(**{"query": QUERY, "k": 3, **more}))
    answer, drawn = draw(router, make_policy(0.5), Random(1), **more)
    assert [hit.tool_id for hit in answer.hits] == [hit.tool_id for hit in asked.hits]
    assert drawn.propensity == 1
    assert drawn.candidates == (answer.hits[0].tool_id,)


def test_where_a_servers_word_is_not_trusted_nothing_is_drawn(router: Router) -> None:
    _, drawn = draw(router, make_policy(0.5, trust_read_only=False), Random(1))
    assert drawn.propensity == 1


@pytest.mark.parametrize(
    ("share", "remember", "kept"),
    [(0.5, "text", True), (0.0, "text", False), (0.5, "digest", False)],
)
async def test_a_search_is_explored_only_where_the_log_may_keep_it(
    tmp_path: Path, share: float, remember: Any, kept: bool
) -> None:
    publish(tmp_path, ROWS)
    token = replace(LOCAL, remember=remember)
    policy = make_policy(share, local=token)
    meta = MetaServer(tmp_path, policy)
    desk = Desk(served(tmp_path), meta.caller, policy, meta.outcomes)
    desk.dice = Random(3)
    said = [await find_tools(desk, token, {"query": QUERY, "k": 2}) for _ in range(12)]
    firsts = [reply.structured["answers"][0]["hits"][0]["tool_id"] for reply in said]
    assert (len(set(firsts)) > 1) is kept
    lines = meta.recorded
    assert all(("propensity" in line) is kept for line in lines)
    if kept:
        assert [line["shown"][0] for line in lines] == firsts
        assert all(len(line["shown"]) == 2 and set(line["candidates"]) == OPEN for line in lines)
        # Of the three, the best ranked and another: 1/2 + 1/6 and 1/6.
        assert {line["propensity"] for line in lines} == {0.666667, 0.166667}
