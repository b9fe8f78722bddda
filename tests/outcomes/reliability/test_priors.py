"""What is expected of a new tool: by its server, category and look-alikes, never by itself."""

import pytest

from assets.outcomes.reliability.estimate import Evidence
from assets.outcomes.reliability.priors import ToolFacts, build_priors


def fact(server: str, tool: str, category: str = "files", alike: tuple[str, ...] = ()) -> ToolFacts:
    return ToolFacts(f"{server}::{tool}", server, category, [0.0], alike)


def test_nothing_seen_is_a_half_for_all() -> None:
    priors, overall = build_priors([fact("a", "x"), fact("b", "y")], {})
    assert overall == 0.5
    assert [one.mean for one in priors.values()] == pytest.approx([0.5, 0.5])
    assert build_priors([], {}) == ({}, 0.5)


def test_a_new_tool_is_expected_to_work_as_its_server_does() -> None:
    tools = [fact("good", "x"), fact("good", "new"), fact("bad", "x"), fact("bad", "new")]
    seen = {"good::x": Evidence(20, 0), "bad::x": Evidence(0, 20)}
    priors, _ = build_priors(tools, seen)
    assert priors["good::new"].mean > 0.8
    assert priors["bad::new"].mean < 0.2


def test_a_category_and_look_alikes_tell_of_a_new_server() -> None:
    old = [fact(f"s{i}", "x", "finance") for i in range(5)]
    others = [fact(f"t{i}", "x", "media") for i in range(5)]
    new = [
        fact("n1", "x", "finance"),
        fact("n2", "x", "media"),
        fact("n3", "x", "media", ("s0::x",)),
    ]
    seen = {one.tool_id: Evidence(0, 10) for one in old}
    seen |= {other.tool_id: Evidence(10, 0) for other in others}
    priors, overall = build_priors([*old, *others, *new], seen)
    assert priors["n1::x"].mean < overall < priors["n2::x"].mean
    assert priors["n3::x"].mean < priors["n2::x"].mean


def test_a_tools_own_calls_are_no_part_of_its_prior_but_through_all_tools() -> None:
    tools = [fact("a", "x"), *(fact(f"s{i}", "y", "media") for i in range(40))]
    seen = {tool.tool_id: Evidence(10, 0) for tool in tools[1:]}
    alone, _ = build_priors(tools, {**seen, "a::x": Evidence(0, 20)})
    assert alone["a::x"].mean > 0.9
