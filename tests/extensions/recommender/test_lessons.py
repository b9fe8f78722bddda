"""What a line of the log teaches: the trust limits of reliability, one line at a time."""

from collections import defaultdict
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.outcomes.policy import ReliabilityPolicy
from extensions.recommender.online_learner import KEPT, LessonLog

NOW, TOOL = 1_000_000.0, "npm:a::t"
POLICY = ReliabilityPolicy()


def search(token: str = "ann", search_id: str = "s1", **more: Any) -> dict[str, Any]:
    words = {"words": "tell the weather", "search_id": search_id}
    return {"at": NOW, "token": token, "status": "searched", **words, **more}


def call(token: str = "ann", call_id: str = "c1", **more: Any) -> dict[str, Any]:
    about = {"tool_id": TOOL, "contract_digest": "c1:x", "search_id": "s1", "query": "q1:1"}
    line = {"at": NOW, "token": token, "status": "ok", "call_id": call_id}
    return {**line, **about, **more}


def report(reported: str, call_id: str | None = "c1", token: str = "ann", **more: Any) -> Any:
    said = {"status": "reported", "reported": reported}
    return call(token, **{"call_id": call_id, **said, **more})


def read(*lines: Any, policy: ReliabilityPolicy = POLICY, **more: Any) -> LessonLog:
    made = LessonLog(policy, **{"since": 0.0, **more})
    for line in (search(), search("bo"), *lines):
        made.add_line(line, NOW)
    return made


def tell(lessons: LessonLog) -> list[tuple[str, bool, float]]:
    return [(one.source, one.success, one.weight) for one in lessons.kept]


FAILED = {"status": "tool_error", "blame": "tool"}


@pytest.mark.parametrize(
    ("lines", "taught"),
    [
        ([call()], [True]),
        ([call(**FAILED)], [False]),
        ([call(status="failed", blame="server")], [False]),
        ([call(status="failed", blame="upstream")], []),
        ([call(status="invalid_arguments", blame="caller")], []),
        ([call(status="refused", blame="us")], []),
        ([call(search_id="of another")], []),
        ([call(search_id=None)], []),
        ([call(), report("failed")], [False]),
        ([call(), report("wrong_tool")], [False]),
        ([call(), report("worked")], [True]),
        ([call(), report("failed"), report("worked")], [True]),
        ([call(), report("failed"), report("failed")], [False]),
        ([call(), call(**FAILED)], [True]),
        ([call(**FAILED), report("worked")], [False]),
        ([call(status="refused", blame="us"), report("worked")], []),
        ([report("splendid")], []),
    ],
)
def test_a_call_teaches_once_and_the_last_word_on_it_counts(
    lines: list[dict[str, Any]], taught: list[bool]
) -> None:
    assert [one.success for one in read(*lines).kept] == taught


def test_a_report_of_no_call_is_a_claim_one_of_a_token_tool_query_and_day() -> None:
    claims = [report(said, None) for said in ("worked", "failed", "worked", "failed")]
    assert tell(read(*claims)) == [("token:ann", False, POLICY.claims)]
    later = report("worked", None, at=NOW - 86_400)
    assert len(read(*claims, later).kept) == 2
    assert tell(read(report("failed", "never made"))) == [("token:ann", False, POLICY.claims)]


def test_one_token_says_nothing_of_anothers_call() -> None:
    found = read(call("bo"), report("failed", "c1", "ann"))
    assert tell(found) == [("token:bo", True, 1.0), ("token:ann", False, POLICY.claims)]


def test_what_is_from_the_future_or_was_learnt_before_teaches_nothing() -> None:
    assert read(call(at=NOW + 1_000)).left_out["from the future"] == 1
    assert read(call(at=NOW + 60)).kept
    assert not read(call(), since=NOW).kept


def test_a_source_without_weight_teaches_nothing_and_a_weighed_one_less() -> None:
    silent = ReliabilityPolicy(weights={"token:ann": 0.0})
    assert tell(read(call(), call("bo"), policy=silent)) == [("token:bo", True, 1.0)]
    weighed = ReliabilityPolicy(weights={"token:ann": 0.5, "token:bo": 3.0})
    weights = [weight for *_, weight in tell(read(call(), call("bo"), policy=weighed))]
    assert weights == [0.5, 1.0]


def test_a_flood_counts_as_a_day_of_calls_of_a_tool_and_of_ten() -> None:
    one = [call(call_id=f"c{at}", **FAILED) for at in range(500)]
    found = read(*one, call("bo"))
    assert sum(lesson.weight for lesson in found.kept if lesson.source == "token:ann") == 20
    assert (found.left_out["of a flood"], found.kept[-1].source) == (480, "token:bo")
    many = [call(call_id=f"c{at}", tool_id=f"npm:a::t{at}", **FAILED) for at in range(500)]
    assert sum(lesson.weight for lesson in read(*many).kept) == 200
    tomorrow = [call(call_id="next", at=NOW - 86_400)]
    assert len(read(*one, *tomorrow).kept) == 21


def test_claims_of_a_token_count_together_as_one_call_of_a_tool_and_ten_of_all() -> None:
    def claim(at: int, tool: str = TOOL) -> Any:
        return report("failed", None, query=f"q1:{at}", at=NOW - at % 9 * 86_400, tool_id=tool)

    found = read(*map(claim, range(80)), call())
    assert tell(found) == [("token:ann", False, 0.25)] * 4 + [("token:ann", True, 1.0)]
    many = read(*(claim(at, f"npm:a::t{at % 20}") for at in range(80)))
    assert sum(lesson.weight for lesson in many.kept) == 10


def test_only_the_newest_are_kept() -> None:
    policy = ReliabilityPolicy(per_day=1e9)
    calls = [call(call_id=f"c{at}") for at in range(KEPT + 10)]
    found = read(*calls, policy=policy)
    assert len(found.kept) == KEPT + 10 - found.dropped
    found.add_line(report("failed", "c0"), NOW)  # of one that is gone
    assert found.take_revised() is None
    found.add_line(report("failed", f"c{KEPT}"), NOW)
    assert found.take_revised() == KEPT - found.dropped
    assert found.take_revised() is None


ODD = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=3), inner),
    max_leaves=4,
)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_a_line_holds_it_costs_no_other(data: st.DataObject) -> None:
    base = data.draw(st.sampled_from([search(), call(), call(**FAILED), report("failed")]))
    odd = {**base, **data.draw(st.dictionaries(st.sampled_from([*base, "client"]), ODD))}
    found = read(odd, call("bo", "other"))
    assert tell(found)[-1] == ("token:bo", True, 1.0)


LINES = st.lists(
    st.builds(
        lambda kind, token, number, tool: kind(token, f"c{number}", tool_id=f"npm:a::t{tool}"),
        st.sampled_from(
            [
                call,
                lambda token, name, **more: call(token, name, **FAILED, **more),
                lambda token, name, **more: report("failed", name, token, **more),
                lambda token, name, **more: report("worked", None, token, **more),
            ]
        ),
        st.sampled_from(["ann", "bo"]),
        st.integers(0, 40),
        st.integers(0, 2),
    ),
    max_size=120,
)


@given(LINES, st.floats(0.5, 5))
@settings(max_examples=40, deadline=None)
def test_no_source_says_more_than_its_limit_and_leaving_it_out_leaves_the_others(
    lines: list[dict[str, Any]], per_day: float
) -> None:
    policy = ReliabilityPolicy(per_day=per_day)
    found = read(*lines, policy=policy)
    spent: dict[Any, float] = defaultdict(float)
    for one in found.kept:
        spent[one.source, one.tool_id] += one.weight
    assert all(weight <= per_day + 1e-9 for weight in spent.values())
    silent = ReliabilityPolicy(per_day=per_day, weights={"token:ann": 0.0})
    without = read(*lines, policy=silent)
    assert without.kept == [one for one in found.kept if one.source == "token:bo"]
    again = read(*lines, *[line for line in lines if line["status"] != "reported"], policy=policy)
    assert again.kept == found.kept
