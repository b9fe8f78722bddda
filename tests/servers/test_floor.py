"""The check of a run's launches, over histories of a marketplace: whose failure refuses a table."""

from typing import Any

import pytest

from assets.servers.defs import check_launch_rate
from tests.support.cases import cases

Row = dict[str, Any]


def make_rows(**servers: str) -> list[Row]:
    """A row for each server: its last launch, `ok` or the kind of its failure."""
    return [
        {
            "server_id": name,
            "recipe_digest": "d",
            "conditions": "c",
            "status": "ok" if outcome == "ok" else "failed",
            "error_kind": None if outcome == "ok" else outcome,
        }
        for name, outcome in servers.items()
    ]


def name_servers(name: str, count: int, outcome: str) -> dict[str, str]:
    return {f"{name}{n}": outcome for n in range(count)}


def publish_nights(*nights: dict[str, str]) -> list[str]:
    """ok, warning or refused for each night; a refused one leaves the last version current. A
    server that launched before and does so now is not launched again."""
    current: list[Row] = []
    states = []
    for night in nights:
        rows = make_rows(**night)
        worked = {row["server_id"] for row in current if row["status"] == "ok"}
        done = {row["server_id"] for row in rows if row["status"] != "ok"} | night.keys() - worked
        verdict = check_launch_rate(rows, current, done)
        states.append("ok" if verdict.passed else "warning" if verdict.warns else "refused")
        current = current if states[-1] == "refused" else rows
    return states


GOOD, TEN = name_servers("good", 2, "ok"), name_servers("good", 10, "ok")
TEN_DOWN = name_servers("good", 10, "timeout_start")
BAD, FLOOD = name_servers("bad", 9, "crashed"), name_servers("bad", 190, "crashed")
TURNED = name_servers("bad", 9, "ok")


@cases(
    "nights, states",
    pytest.param([GOOD | BAD] * 3, ["warning"] * 3, id="young"),
    pytest.param([GOOD, GOOD | BAD], ["ok", "warning"], id="young_then_flooded"),
    pytest.param([TEN, TEN | FLOOD, TEN], ["ok", "warning", "ok"], id="flooded"),
    pytest.param([TEN, TEN_DOWN, TEN_DOWN, TEN], ["ok", "refused", "refused", "ok"], id="out"),
    pytest.param([TEN | BAD, TEN_DOWN | BAD], ["ok", "refused"], id="out_beside_broken_ones"),
    pytest.param([GOOD, name_servers("good", 2, "crashed")], ["ok", "refused"], id="two_out"),
    pytest.param([{"a": "ok"}, {"a": "crashed"}], ["ok", "ok"], id="one_server_says_nothing"),
    pytest.param([TEN, TEN | name_servers("good", 8, "crashed")], ["ok", "ok"], id="most_fall"),
    # Servers that worked at first and then break hold up no server that launches.
    pytest.param([GOOD | TURNED, GOOD | BAD | {"new": "ok"}], ["ok", "warning"], id="turned"),
    pytest.param([TEN_DOWN, TEN_DOWN, TEN], ["warning", "warning", "ok"], id="never_worked"),
)
def test_only_a_fall_of_servers_that_launched_before_refuses_a_table(nights, states):
    assert publish_nights(*nights) == states


@cases(
    "outcomes, passed",
    (name_servers("a", 5, "crashed"), False),
    (name_servers("a", 4, "crashed"), True),  # too few to speak of a rate
    ({"a": "ok", **name_servers("b", 4, "crashed")}, True),
    ({"a": "ok", **name_servers("b", 9, "timeout_start")}, False),
    (name_servers("a", 50, "policy_denied"), True),  # nothing was tried
    ({**GOOD, **name_servers("a", 50, "policy_denied")}, True),
    (name_servers("a", 5, "crashed") | name_servers("b", 50, "policy_denied"), False),
    ({**GOOD, **name_servers("a", 50, "needs_confirmation")}, True),
    (name_servers("a", 5, "crashed") | name_servers("b", 50, "needs_confirmation"), False),
)
def test_a_first_run_warns_and_what_was_never_tried_does_not_count(outcomes, passed):
    verdict = check_launch_rate(make_rows(**outcomes), [], set(outcomes))
    assert (verdict.passed, verdict.warns) == (passed, True)


def test_a_fall_under_other_settings_is_not_compared():
    changed = [{**row, "conditions": "others"} for row in make_rows(**TEN_DOWN)]
    verdict = check_launch_rate(changed, make_rows(**TEN), set(TEN))
    assert (verdict.passed, verdict.warns) == (False, True)
