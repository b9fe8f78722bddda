"""The rows of reliability: order does not matter, floods are bounded, new versions start afresh."""

import json
from dataclasses import replace
from random import Random
from typing import Any

import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.estimate import CallEvidence, VersionChange
from assets.outcomes.reliability.measure import (
    ListedTool,
    ToolKnowledge,
    measure_tools,
    sum_evidence,
)
from assets.outcomes.reliability.table import RELIABILITY
from tests.outcomes.reliability.observing import (
    DAY,
    DIGEST,
    NOW,
    TOOL,
    Observation,
    make_frame,
    observe,
)

POLICY = ReliabilityPolicy()
NEW = "c1:" + "b" * 64
SECOND = "npm:files::write_file"
LISTED = ListedTool("npm:files", DIGEST, "files & documents")
KNOWN = ToolKnowledge({TOOL: LISTED, SECOND: LISTED})


def measure(
    observations: list[Observation], by_name: ToolKnowledge = KNOWN
) -> list[dict[str, Any]]:
    return measure_tools(make_frame(observations), by_name, POLICY, NOW).rows


def find_row(rows: list[dict[str, Any]], tool: str = "read_file", digest: str = DIGEST) -> dict:
    [result] = [row for row in rows if (row["tool"], row["contract_digest"]) == (tool, digest)]
    return result


observations = st.builds(
    observe,
    st.booleans(),
    at=st.floats(NOW - 400 * DAY, NOW),
    source=st.sampled_from(["execution", "token:a", "token:b"]),
    seconds=st.one_of(st.none(), st.floats(0, 10)),
    kind=st.sampled_from(["ok", "crashed", "wrong_tool"]),
)


@settings(max_examples=25)
@given(st.lists(observations, max_size=30), st.randoms(use_true_random=False))
def test_the_order_of_observations_does_not_matter(
    stored: list[Observation], random: Random
) -> None:
    shuffled = random.sample(stored, len(stored))
    assert measure(shuffled) == measure(stored)
    RELIABILITY.frame(measure(stored))


def test_an_empty_history_is_the_prior_alone() -> None:
    row = find_row(measure([]))
    assert (row["n"], row["calls"], row["mean"]) == (0, 0, row["prior"])
    assert row["low"] < row["mean"] < row["high"]
    assert (row["failures"], row["p50_s"], row["last_at"]) == ("{}", None, None)


@pytest.mark.parametrize("success", [True, False])
def test_a_tool_that_always_or_never_worked_keeps_an_interval(success: bool) -> None:
    row = find_row(measure([observe(success, kind="crashed")] * 50))
    assert (row["calls"], row["failed"]) == (50, 0 if success else 50)
    assert row["mean"] > 0.9 if success else row["mean"] < 0.1
    assert 0 <= row["low"] < row["high"] <= 1
    assert json.loads(row["failures"]) == ({} if success else {"crashed": 50})


def test_old_calls_count_less() -> None:
    frame = make_frame([observe(at=NOW - 30 * DAY), observe(False)])
    assert sum_evidence(frame, POLICY, NOW) == {(TOOL, DIGEST): CallEvidence(0.5, 1.0)}


@settings(max_examples=25)
@given(st.floats(0, 4000), st.floats(0, 4000), st.floats(0.1, 3650))
def test_an_older_call_never_counts_more(item: float, other: float, half_life: float) -> None:
    old, new = sorted((NOW - item * DAY, NOW - other * DAY))
    frame = make_frame([observe(at=old), observe(False, at=new)])
    result = sum_evidence(frame, ReliabilityPolicy(half_life_days=half_life), NOW)[TOOL, DIGEST]
    assert 0 <= result.worked <= result.failed <= 1


def test_that_a_tool_was_the_wrong_one_says_nothing_of_its_working() -> None:
    row = find_row(measure([observe(), observe(False, kind="wrong_tool")]))
    assert (row["calls"], row["failed"]) == (1, 0)


def test_a_flood_of_false_failures_is_bounded_by_what_others_saw() -> None:
    honest = [observe(source=f"token:{i % 4}", at=NOW - i * 600) for i in range(400)]
    flood = [observe(False, source="token:flood") for _ in range(20_000)]
    assert find_row(measure([*honest, *flood]))["mean"] >= 0.49


@pytest.mark.parametrize("calls", [0, 16])
def test_claims_of_one_token_move_a_mean_by_what_one_call_would(calls: int) -> None:
    observed = [observe(at % 4 != 0) for at in range(calls)]
    observed += [observe(at % 4 != 0, tool_id=SECOND) for at in range(100)]
    claims = [observe(False, source="token:liar", weight=1 / 80, claimed=True)] * 80
    before, after = (
        find_row(measure(stored))["mean"] for stored in (observed, [*observed, *claims])
    )
    assert 0 < before - after <= 1 / (5 + calls) + 0.01  # and what it moves the rate of all


@pytest.mark.parametrize("cls", ["wording", "breaking"])
def test_a_new_contract_starts_from_a_prior_shrunk_by_the_class_of_the_change(cls: str) -> None:
    tool_knowledge = ToolKnowledge(
        {**KNOWN.tools, TOOL: replace(LISTED, contract_digest=NEW)},
        {(TOOL, NEW): VersionChange((TOOL, DIGEST), cls)},
    )
    rows = measure([observe(False)] * 40 + [observe(tool_id=SECOND)] * 40, tool_knowledge)
    new, old = find_row(rows, digest=NEW), find_row(rows)
    assert (new["n"], new["changed"], new["current"], old["current"]) == (0, cls, True, False)
    assert old["mean"] < new["mean"]
    assert new["mean"] < 0.2 if cls == "wording" else new["mean"] > 0.3
    assert new["carried"] == (20 if cls == "wording" else 4)


def test_latency_is_of_calls_that_worked() -> None:
    timed = [observe(seconds=float(i)) for i in range(1, 102)]
    row = find_row(measure([*timed, observe(False, seconds=900.0)]))
    assert (row["p50_s"], row["p95_s"]) == (51.0, 96.0)


def test_an_id_that_names_no_tool_is_passed_over() -> None:
    assert len(measure([observe(tool_id="nothing")])) == 2
    assert isinstance(RELIABILITY.frame(measure([])), pl.DataFrame)
