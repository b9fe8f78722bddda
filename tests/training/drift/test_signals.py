"""Each signal on planted drift and on none; several tests together; nothing to measure."""

import json
from collections.abc import Sequence
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from training.drift.champion_signals import measure_caller_decay, measure_retriever_decay
from training.drift.decide import DriftSignal, compute_holm, judge_signals
from training.drift.shifts import (
    LEAST,
    SampleMember,
    choose_tools,
    compare_hits,
    compare_shares,
    measure_accept_shift,
    measure_embedding_shift,
    measure_mmd,
    measure_query_shift,
)


def draw_unit(n: int, shift: float, seed: int) -> np.ndarray:
    """n unit vectors of 16 dimensions around a centre that is moved by `shift`."""
    vectors = np.random.default_rng(seed).normal(size=(n, 16))
    vectors[:, 0] += 2 + shift
    vectors[:, 1] += shift
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def test_mmd_sees_a_shift_and_none_where_there_is_none() -> None:
    same = measure_mmd(draw_unit(60, 0, 1), draw_unit(60, 0, 2), 200)
    other = measure_mmd(draw_unit(60, 0, 1), draw_unit(60, 2, 2), 200)
    assert same.p_value > 0.05 > other.p_value
    assert other.value > 10 * abs(same.value)
    assert other == measure_mmd(draw_unit(60, 0, 1), draw_unit(60, 2, 2), 200)  # the same again
    with pytest.raises(ValueError, match="each side needs two"):
        measure_mmd(draw_unit(1, 0, 1), draw_unit(9, 0, 2))


def test_mmd_of_vectors_that_are_all_alike_is_none() -> None:
    found = measure_mmd(np.ones((5, 4)), np.ones((7, 4)), 50)
    assert found.value == pytest.approx(0)
    assert found.p_value == 1


def test_shares_are_compared_by_clusters() -> None:
    even = [(5, 10)] * 20
    assert compare_shares(even, [(9, 10)] * 20).p_value < 0.01
    # One server's hundred pairs are one observation.
    assert compare_shares(even, [(95, 100)]).p_value > 0.01
    with pytest.raises(ValueError, match="shares of nothing"):
        compare_shares(even, [])


@settings(max_examples=25, deadline=None)
@given(st.lists(st.tuples(st.booleans(), st.booleans()), min_size=1, max_size=60))
def test_lost_hits_are_tested_one_sided(pairs: Sequence[tuple[bool, bool]]) -> None:
    before, after = [a for a, _ in pairs], [b for _, b in pairs]
    found, back = compare_hits(before, after), compare_hits(after, before)
    assert found.value == pytest.approx(-back.value)
    assert 0 < found.p_value <= 1
    assert found.low <= found.value <= found.high
    assert found.p_value + back.p_value >= 1 - 1e-12


def test_holm_is_what_it_is_in_the_books() -> None:
    assert compute_holm([0.01, None, 0.04, 0.03]) == pytest.approx([0.03, None, 0.06, 0.06])
    assert compute_holm([]) == []


def test_a_signal_fires_by_its_threshold_and_by_all_tests_together() -> None:
    def one(value: float | None, p: float | None, threshold: float = 0.1) -> DriftSignal:
        return DriftSignal("x", value, 10, threshold, "", p_value=p)

    fired = [
        judged.fired
        for judged in judge_signals(
            [one(0.2, 0.001), one(0.2, 0.04), one(0.05, 0.001), one(0.2, None), one(None, None)],
            0.05,
        )
    ]
    assert fired == [True, True, False, True, False]
    assert not judge_signals([one(0.2, 0.03), one(0.2, 0.03)], 0.05)[0].fired  # 0.06 together
    assert not judge_signals([one(0.0, None, 0.0)], 0.05)[0].fired  # nothing moved


def members(
    servers: int, digest: str = "1", first: int = 0, tools: int = 3
) -> dict[str, SampleMember]:
    return {
        f"s{server}::t{tool}": SampleMember(f"s{server}", digest, f"text-{server}-{tool}-{digest}")
        for server in range(first, first + servers)
        for tool in range(tools)
    }


def test_tools_are_compared_one_a_server() -> None:
    then = members(30)
    now = {**members(25), **members(5, "2"), **members(4, first=30)}
    before, after = choose_tools(then, now, 100)
    assert len(before) == 25  # 20 that stayed, and 5 that are gone, as they were trained on
    assert len(after) == 9
    assert {name.split("-")[1] for name in before} & {name.split("-")[1] for name in after} == set()
    few = choose_tools(then, now, 3)
    assert [len(side) for side in few] == [3, 3]
    assert few == choose_tools(dict(reversed(then.items())), now, 3)


def test_an_embedding_shift_is_seen_and_too_few_servers_are_said() -> None:
    then, now = members(40), {**members(40), **members(20, first=40)}

    def read(shift: float):
        def vectors(names: Sequence[str]) -> np.ndarray:
            new = [int(name.split("-")[1]) >= 40 for name in names]
            rows = [
                draw_unit(1, shift * one, hash_of(name))[0]
                for one, name in zip(new, names, strict=True)
            ]
            return np.array(rows)

        return vectors

    assert measure_embedding_shift(then, now, read(2.0), 0.01).p_value < 0.01
    assert measure_embedding_shift(then, now, read(0.0), 0.01).p_value > 0.01
    few = measure_embedding_shift(then, then, read(0.0), 0.01)
    assert few.value is None
    assert "0 servers have new or changed tools" in few.why


def hash_of(name: str) -> int:
    return int.from_bytes(name.encode()) % 2**32


def test_a_query_shift_is_seen_and_too_few_searches_are_said() -> None:
    found = measure_query_shift(draw_unit(40, 0, 1), draw_unit(40, 2, 2), 0.01)
    assert found.p_value < 0.01
    assert measure_query_shift(np.zeros((0, 0)), draw_unit(LEAST, 0, 1), 0.01).value is None


def judged(server: str, start: int, accepted: int, n: int) -> list[dict[str, Any]]:
    return [
        {
            "pair_id": f"{server}-{start + at}",
            "server_id": server,
            "verdict": "accept" if at < accepted else "reject",
        }
        for at in range(n)
    ]


def test_an_accept_rate_that_fell_is_seen() -> None:
    then = [row for server in range(20) for row in judged(f"s{server}", 0, 8, 10)]
    came = [row for server in range(20) for row in judged(f"s{server}", 100, 4, 10)]
    known = {row["pair_id"] for row in then}
    found = measure_accept_shift(known, [*then, *came], 0.05)
    assert found.value == pytest.approx(0.4)
    assert found.p_value < 0.01
    assert (
        "40.0% of 200 pairs that were judged since are accepted, 80.0% of 200 before" in found.why
    )
    assert measure_accept_shift(known, then, 0.05).value is None


def item(n: int, rank: int) -> dict[str, Any]:
    return {"pair_id": str(n), "server_id": "s", "tool": f"t{n}", "rank": rank}


def test_frozen_items_that_are_no_longer_found_are_lost() -> None:
    frozen = [item(n, 1 if n < 90 else 9) for n in range(100)]
    current = {("s", f"t{n}"): f"text {n}" for n in range(80)}  # twenty tools are gone
    asked: list[str] = []

    def rank(items: Sequence[Any]) -> dict[str, int]:
        asked.extend(row["positive"] for row in items)
        return {row["pair_id"]: 20 if int(row["pair_id"]) < 16 else 1 for row in items}

    found = measure_retriever_decay(frozen, rank, current, 0.02)
    assert found.n == 80 == len(asked)
    assert found.value == pytest.approx(16 / 80)
    assert found.p_value < 0.001
    assert "of 100 frozen items 20 lost their tool; 80 of the others" in found.why
    assert measure_retriever_decay(frozen, rank, current, 0.02, most=10).n <= 10
    assert measure_retriever_decay([], rank, current, 0.02).why == "it was never measured"
    assert measure_retriever_decay(frozen, rank, {}, 0.02).value is None


def test_right_calls_that_fit_nothing_now_are_lost() -> None:
    right = [{"calls": [{"name": f"t{n}", "arguments": {}}]} for n in range(10)]
    found = measure_caller_decay(right, lambda row, call: call["name"] != "t3", 0.02)
    assert (found.value, found.n) == (0.1, 10)
    assert json.loads(json.dumps(found.as_row()))["high"] < 0.5
    assert measure_caller_decay([], lambda row, call: True, 0.02).value is None
