"""Reliability: floods are bounded, no token outweighs all, and the asset over a home."""

import json
from dataclasses import replace
from typing import Any

import dagster as dg
import polars as pl
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability import defs, table
from assets.outcomes.reliability.measure import (
    CARRIED,
    MOST_CARRIED,
    CallEvidence,
    ListedTool,
    RatePrior,
    ToolKnowledge,
    VersionChange,
    build_priors,
    carry_evidence,
    estimate_rate,
    list_versions,
    measure_home,
    measure_tools,
    read_changes,
    sum_evidence,
    unite_sources,
)
from tests.outcomes.reliability.observing import (
    DAY,
    DIGEST,
    NOW,
    TOOL,
    Observation,
    fill_home,
    make_frame,
    observe,
)
from tests.support.cases import cases
from warehouse.store import Warehouse

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
def test_the_order_of_observations_does_not_matter(stored, random):
    assert measure(random.sample(stored, len(stored))) == measure(stored)
    table.RELIABILITY.frame(measure(stored))


def test_an_empty_history_is_the_prior_and_calls_count_by_their_age_kind_and_seconds():
    row = find_row(measure([]))
    assert (row["n"], row["calls"], row["mean"]) == (0, 0, row["prior"])
    assert row["low"] < row["mean"] < row["high"]
    assert (row["failures"], row["p50_s"], row["last_at"]) == ("{}", None, None)
    assert len(measure([observe(tool_id="nothing")])) == 2  # an id that names no tool
    assert isinstance(table.RELIABILITY.frame(measure([])), pl.DataFrame)
    frame = make_frame([observe(at=NOW - 30 * DAY), observe(False)])
    assert sum_evidence(frame, POLICY, NOW) == {(TOOL, DIGEST): CallEvidence(0.5, 1.0)}
    row = find_row(measure([observe(), observe(False, kind="wrong_tool")]))
    assert (row["calls"], row["failed"]) == (1, 0)  # that it was the wrong tool says nothing
    timed = [observe(seconds=float(i)) for i in range(1, 102)]
    row = find_row(measure([*timed, observe(False, seconds=900.0)]))
    assert (row["p50_s"], row["p95_s"]) == (51.0, 96.0)


@cases("success", True, False)
def test_a_tool_that_always_or_never_worked_keeps_an_interval(success):
    row = find_row(measure([observe(success, kind="crashed")] * 50))
    assert (row["calls"], row["failed"]) == (50, 0 if success else 50)
    assert row["mean"] > 0.9 if success else row["mean"] < 0.1
    assert 0 <= row["low"] < row["high"] <= 1
    assert json.loads(row["failures"]) == ({} if success else {"crashed": 50})


@settings(max_examples=25)
@given(st.floats(0, 4000), st.floats(0, 4000), st.floats(0.1, 3650))
def test_an_older_call_never_counts_more(item, other, half_life):
    old, new = sorted((NOW - item * DAY, NOW - other * DAY))
    frame = make_frame([observe(at=old), observe(False, at=new)])
    result = sum_evidence(frame, ReliabilityPolicy(half_life_days=half_life), NOW)[TOOL, DIGEST]
    assert 0 <= result.worked <= result.failed <= 1


def test_a_flood_of_false_failures_is_bounded_by_what_others_saw():
    honest = [observe(source=f"token:{i % 4}", at=NOW - i * 600) for i in range(400)]
    flood = [observe(False, source="token:flood") for _ in range(20_000)]
    assert find_row(measure([*honest, *flood]))["mean"] >= 0.49


@cases("calls", 0, 16)
def test_claims_of_one_token_move_a_mean_by_what_one_call_would(calls):
    observed = [observe(at % 4 != 0) for at in range(calls)]
    observed += [observe(at % 4 != 0, tool_id=SECOND) for at in range(100)]
    claims = [observe(False, source="token:liar", weight=1 / 80, claimed=True)] * 80
    both = (observed, [*observed, *claims])
    before, after = (find_row(measure(stored))["mean"] for stored in both)
    assert 0 < before - after <= 1 / (5 + calls) + 0.01  # and what it moves the rate of all


@cases("cls", "wording", "breaking")
def test_a_new_contract_starts_from_a_prior_shrunk_by_the_class_of_the_change(cls):
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


counts = st.floats(0, 1e6)
shares = st.floats(0, 1)
evidence = st.builds(CallEvidence, counts, counts)
priors = st.builds(RatePrior, shares, st.floats(0.5, 100))


@given(evidence, priors, st.floats(0.01, 100))
def test_an_estimate_lies_within_its_interval_and_one_more_success_never_lowers_it(
    observed, prior, more
):
    result = estimate_rate(observed, prior)
    assert 0 <= result.low <= result.mean <= result.high <= 1
    assert result.n == observed.n
    assert estimate_rate(observed + CallEvidence(more, 0), prior).mean >= result.mean - 1e-9
    assert estimate_rate(observed + CallEvidence(0, more), prior).mean <= result.mean + 1e-9


def test_nothing_seen_is_the_prior_and_much_seen_is_what_was_seen():
    prior = RatePrior(0.9, 4)
    assert estimate_rate(CallEvidence(), prior).mean == 0.9
    assert estimate_rate(CallEvidence(0, 4000), prior).mean < 0.001
    wide, narrow = (estimate_rate(CallEvidence(*of), prior) for of in ((), (900, 100)))
    assert narrow.high - narrow.low < wide.high - wide.low


@given(evidence, st.floats(1, 1e4))
def test_a_flood_of_one_token_is_worth_no_more_than_all_others(others, alone):
    flood = {"token:flood": CallEvidence(0, 1e9), "execution": others}
    assert unite_sources(flood, alone).failed - others.failed <= max(alone, others.n) + 1e-3


@given(st.dictionaries(st.sampled_from(["token:a", "token:b", "execution"]), evidence))
def test_sources_that_are_few_calls_count_whole(stored):
    most = sum(item.n for item in stored.values()) + 1
    assert abs(unite_sources(stored, most).n - (most - 1)) <= 1e-6 * most


def test_a_new_tool_is_expected_to_work_as_its_server_does():
    servers = {f"{server}::{tool}": server for server in ("good", "bad") for tool in ("x", "new")}
    observed = {"good::x": CallEvidence(20, 0), "bad::x": CallEvidence(0, 20)}
    priors, overall = build_priors(servers, observed)
    assert priors["good::new"].mean == pytest.approx((20 + 5 * overall) / 25)
    assert priors["bad::new"].mean < 0.2
    priors, overall = build_priors({"a::x": "a", "b::y": "b"}, {})
    assert overall == 0.5
    assert [item.mean for item in priors.values()] == pytest.approx([0.5, 0.5])
    assert build_priors({}, {}) == ({}, 0.5)
    # A tool's own calls are no part of its prior but through all tools.
    servers = {"a::x": "a", **{f"s{i}::y": f"s{i}" for i in range(40)}}
    observed = {tool: CallEvidence(10, 0) for tool in servers}
    alone, _ = build_priors(servers, {**observed, "a::x": CallEvidence(0, 20)})
    assert alone["a::x"].mean > 0.9


A, B, C = (("npm:x::t", f"c1:{name}") for name in "abc")


def row(old: str, new: str, cls: str, day: str = "2026-01-01", renamed: str | None = None) -> dict:
    names = {"server_id": "npm:x", "tool": "t", "from_digest": old, "to_digest": new}
    return {**names, "run_date": day, "cls": cls, "renamed_from": renamed}


@pytest.mark.parametrize("cls", CARRIED)
def test_the_graver_the_change_the_less_is_carried(cls):
    carried = carry_evidence(B, {A: CallEvidence(8, 2)}, {B: VersionChange(A, cls)})
    assert carried.n == pytest.approx(10 * CARRIED[cls])
    assert sorted(CARRIED.values(), reverse=True) == list(CARRIED.values())
    carried = carry_evidence(B, {A: CallEvidence(9e5, 1e5)}, {B: VersionChange(A, "wording")})
    assert carried.n == pytest.approx(MOST_CARRIED)  # however much was seen
    assert carried.worked == pytest.approx(0.9 * MOST_CARRIED)


def test_changes_are_read_by_date_over_renames_and_a_chain_of_them_multiplies():
    observed = {A: CallEvidence(0, 10), B: CallEvidence(10, 0), C: CallEvidence(1, 0)}
    changes = {
        C: VersionChange(B, "compatible"),
        B: VersionChange(A, "compatible"),
        A: VersionChange(C, "wording"),
    }
    assert carry_evidence(C, observed, changes) == CallEvidence(5, 2.5)
    rows = [
        row("c1:b", "c1:c", "breaking", "2026-02-02"),
        row("c1:a", "c1:c", "wording", "2026-01-01"),
        row("", "c1:a", "compatible"),
        row("c1:c", "", "breaking"),
        row("c1:a", "c1:b", "compatible", renamed="old"),
    ]
    assert read_changes(rows) == {
        C: VersionChange(B, "breaking"),
        B: VersionChange(("npm:x::old", "c1:a"), "compatible"),
    }


def materialize(warehouse: Warehouse) -> dict[str, Any]:
    resources = {"warehouse": warehouse, "reliability_policy": ReliabilityPolicy()}
    result = dg.materialize([defs.reliability], resources=resources)
    [event] = result.asset_materializations_for_node("reliability")
    return {name: value.value for name, value in event.metadata.items()}


def test_it_publishes_versions_and_the_overlay(warehouse):
    assert materialize(warehouse)["least_reliable"] == "none"
    fill_home(warehouse)
    visible = materialize(warehouse)
    assert (visible["dagster/row_count"], visible["tools"], visible["called"]) == (3, 2, 1)
    assert "write_file" in visible["least_reliable"]
    assert "read_file" in visible["new_contracts"]
    assert (warehouse.home / "router" / "RELIABILITY.json").exists()
    version = warehouse.tables.head(table.RELIABILITY.name)
    assert materialize(warehouse)["version_moved"] is False
    assert warehouse.tables.head(table.RELIABILITY.name) == version
    row = {"server_id": "s", "tool": "t", "current": True, "low": 0.2, "mean": 0.5, "high": 0.9}
    assert defs.check_intervals([row]).passed
    assert not defs.check_intervals([row, {**row, "mean": 0.1}]).passed
    assert defs.check_current([row, {**row, "current": False}]).passed
    assert not defs.check_current([row, row]).passed


def test_executions_and_the_log_are_weighed_together(warehouse):
    fill_home(warehouse)
    result = measure_home(warehouse, POLICY)
    rows = {(row["tool"], row["contract_digest"][3]): row for row in result.measured.rows}
    assert result.sources == {"execution": 3, "token:ci": 4}
    old, new = rows["read_file", "a"], rows["read_file", "b"]
    assert (old["calls"], old["failed"], old["current"]) == (3, 1, False)
    assert (new["calls"], new["carried"], new["changed"]) == (0, 1.5, "compatible")
    called = rows["write_file", "c"]
    assert (called["calls"], called["failed"], called["p50_s"]) == (4, 1, 0.25)
    assert json.loads(called["failures"]) == {"reported_failed": 1}


def test_versions_are_known_from_when_they_were_first_seen():
    row = {"server_id": "s", "tool": "t", "contract_digest": "c1:b", "first_seen": "2026-01-02"}
    change = {"server_id": "s", "tool": "t", "from_digest": "c1:a", "to_digest": "c1:b"}
    later = {**change, "run_date": "2026-01-03", "renamed_from": None}
    versions = list_versions([row, {**row, "tool": "u", "first_seen": "soon"}], [later])
    group = versions.filter(pl.col("tool_id") == "s::t").select("contract_digest", "first_at")
    assert dict(group.iter_rows()) == {"c1:b": 1767312000.0, "c1:a": 0.0}
    assert versions.filter(pl.col("tool_id") == "s::u")["first_at"].to_list() == [0.0]
