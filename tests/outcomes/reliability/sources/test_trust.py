"""What observations count: bad clocks, old contracts, repeated calls, floods, excluded sources."""

from dataclasses import replace
from typing import Any

import polars as pl
import pytest

from assets.outcomes.reliability.observation import Observation
from assets.outcomes.reliability.policy import ReliabilityPolicy
from assets.outcomes.reliability.sources.frame import list_observations, make_frame
from assets.outcomes.reliability.sources.trust import KNOWN, Weighed, weigh_observations
from tests.outcomes.reliability.observing import DAY, DIGEST, NOW, TOOL, observe

FIRST = NOW - 10 * DAY
VERSIONS = pl.DataFrame([(TOOL, DIGEST, FIRST)], schema=KNOWN, orient="row")


def weigh(
    observations: list[Observation], excluded: tuple[str, ...] = (), **policy: Any
) -> Weighed:
    frame = make_frame(observations)
    return weigh_observations(frame, VERSIONS, ReliabilityPolicy(**policy), excluded, NOW)


@pytest.mark.parametrize(
    ("strange", "why"),
    [
        ({"contract_digest": "c1:" + "f" * 64}, "of an unknown contract"),
        ({"tool_id": "npm:gone::x"}, "of an unknown contract"),
        ({"contract_digest": ""}, "of an unknown contract"),
        ({"at": NOW + 2 * DAY}, "from the future"),
    ],
)
def test_what_cannot_be_placed_counts_nothing_and_is_told(
    strange: dict[str, Any], why: str
) -> None:
    found = weigh([observe(), observe(success=False, **strange)])
    assert [observation.success for observation in list_observations(found.frame)] == [True]
    assert found.left_out[why] == 1


def test_a_call_from_before_its_contract_counts_as_made_when_that_was_first_seen() -> None:
    found = weigh([observe(at=0.0), observe()])
    assert found.frame["at"].min() == FIRST
    assert found.left_out["from before their contract"] == 1
    assert found.frame.height == 2


def test_a_call_told_of_twice_counts_once_and_the_last_word_stands() -> None:
    told = observe(call_id="1", source="token:a")
    later = replace(told, at=told.at + 1, success=False)
    found = weigh([later, told, told, replace(told, source="token:b")])
    assert [(o.source, o.success) for o in list_observations(found.frame)] == [
        ("token:b", True),
        ("token:a", False),
    ]
    assert found.left_out["told of twice"] == 2


def test_a_flood_counts_as_much_as_its_daily_limit_and_leaves_others_alone() -> None:
    flood = [observe(success=False, source="token:flood") for _ in range(500)]
    found = weigh([*flood, observe(source="token:ada"), observe()], per_day=20)
    total = dict(found.frame.group_by("source").agg(pl.col("weight").sum()).iter_rows())
    assert total["token:flood"] == pytest.approx(20)
    assert (total["token:ada"], total["execution"]) == (1, 1)
    assert found.left_out["of a flood"] == 500


def test_claims_of_a_token_count_together_as_one_call_on_however_many_days() -> None:
    claims = [
        observe(
            success=False, weight=0.25, claimed=True, source="token:liar", at=NOW - at % 9 * DAY
        )
        for at in range(80)
    ]
    seen = [observe(source="token:liar"), observe(weight=0.25, claimed=True, source="token:ada")]
    found = weigh([*claims, *seen])
    by = ["source", "claimed"]
    total = {
        tuple(key): n for *key, n in found.frame.group_by(by).agg(pl.sum("weight")).iter_rows()
    }
    assert total["token:liar", True] == pytest.approx(1)
    assert (total["token:liar", False], total["token:ada", True]) == (1, 0.25)
    assert found.left_out["of a flood"] == 80


def test_a_source_that_is_included_again_counts_as_it_did() -> None:
    told = [observe(source="token:a", call_id=str(i)) for i in range(30)] + [observe()]
    before, without, again = weigh(told), weigh(told, ("token:a",)), weigh(told)
    assert without.left_out["of excluded sources"] == 30
    assert without.frame["source"].to_list() == ["execution"]
    assert again.frame.equals(before.frame)


def test_a_source_counts_by_its_weight() -> None:
    found = weigh([observe(source="token:a"), observe()], weights={"token:a": 0.5})
    assert dict(found.frame.select("source", "weight").iter_rows()) == {
        "token:a": 0.5,
        "execution": 1.0,
    }


def test_no_observation_at_all_is_none() -> None:
    found = weigh([])
    assert found.frame.height == 0
    assert not any(found.left_out.values())
