"""A replay answers what was recorded and nothing else, and its score tells what calls did."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.outcomes.recording import ReplayMiss, ReplayRecording, record_trajectories
from assets.outcomes.replay_environment import (
    CALLS_USEFUL,
    END,
    MOST_CALLS,
    VALID,
    ReplayEnvironment,
    score_calls,
)
from tests.outcomes.recorded import READ, WRITE, find_task, recording, rows
from tests.support.examples import examples

MADE = recording()
BOTH, ALONE = "Read /a, then write x into /b.", "What does /a say?"


def score(request: str, *calls: dict[str, Any]) -> Any:
    return score_calls(MADE, find_task(MADE, request), calls)[0]


def test_the_tasks_own_calls_are_worth_one_and_no_call_nothing() -> None:
    assert VALID + CALLS_USEFUL + END == 1
    assert score(BOTH, READ, WRITE).reward == 1.0
    assert score(ALONE, READ).reward == 1.0
    for request in (BOTH, ALONE):
        nothing = score(request)
        assert (nothing.reward, nothing.end, nothing.known) == (0.0, False, True)
    assert {task.request for task in MADE.tasks.values()} == {BOTH, ALONE}


def test_what_is_done_the_other_way_round_or_by_half_is_worth_less() -> None:
    half = score(BOTH, READ)
    assert half.reward == VALID + CALLS_USEFUL
    assert not half.end
    # Writing alone brings about the state that was asked for: the way there is the model's.
    assert score(BOTH, WRITE).end


def test_a_wrong_call_that_a_server_objected_to_is_answered_by_its_words() -> None:
    built, steps = score_calls(
        MADE, find_task(MADE, ALONE), [{"name": "read", "arguments": {"path": "/z"}}, READ]
    )
    assert [(step.text, step.outcome) for step in steps] == [
        ("no such file", "tool_error"), ("first", "useful"),
    ]  # fmt: skip
    assert built.end
    assert built.known
    assert built.reward == VALID + CALLS_USEFUL / 2 + END


@pytest.mark.parametrize(
    ("call", "outcome", "output"),
    [
        ({"name": "drop", "arguments": {}}, "unknown_tool", "no tool 'drop'; tools: read, write"),
        ({"name": "read", "arguments": {}}, "invalid_arguments", "path"),
        ({"name": "read", "arguments": ["/a"]}, "invalid_arguments", ""),
        ({"name": "read", "arguments": None}, "invalid_arguments", ""),
        ({"name": None}, "unknown_tool", "no tool 'None'"),
    ],
)
def test_a_call_that_no_server_would_be_sent_is_told_why(
    call: dict[str, Any], outcome: str, output: str
) -> None:
    built, [step] = score_calls(MADE, find_task(MADE, ALONE), [call])
    assert step.outcome == outcome
    assert output in step.text
    assert (built.reward, built.known) == (0.0, True)


def test_a_miss_is_told_and_never_made_up() -> None:
    built, [step] = score_calls(
        MADE, find_task(MADE, ALONE), [{"name": "read", "arguments": {"path": "/unseen"}}]
    )
    assert step.missed
    assert step.text.startswith("replay miss: read was never called with these arguments")
    assert (built.known, built.end, built.useful) == (False, False, 0.0)
    # In another state than the recorded one the same call is another call.
    built, [_, step] = score_calls(MADE, find_task(MADE, BOTH), [WRITE, READ])
    assert step.missed
    assert not built.known


def test_a_call_by_a_changed_contract_is_a_miss() -> None:
    environment = ReplayEnvironment(MADE)
    environment.reset(find_task(MADE, ALONE))
    step = environment.step("read", READ["arguments"], contract_digest="c1:newer")
    assert step.missed
    assert "it changed, or is another's" in step.text
    with pytest.raises(ReplayMiss) as missed:
        MADE.answer("c1:newer", {}, "s1")
    assert missed.value.kind == "unknown_contract"


def test_the_commonest_answer_is_replayed() -> None:
    moved = record_trajectories([*rows(), *rows("second"), *rows("second")])
    [read] = [item for item in moved.answers.values() if item.text in ("first", "second")]
    assert read.text == "second"


def test_a_rollout_ends_and_the_next_begins_anew() -> None:
    environment = ReplayEnvironment(MADE)
    with pytest.raises(RuntimeError, match="reset the environment"):
        environment.step("read", {})
    with pytest.raises(KeyError, match="no task 'other' is recorded"):
        environment.reset("other")
    environment.reset(find_task(MADE, BOTH))
    for _ in range(MOST_CALLS + 5):
        last = environment.step("read", READ["arguments"])
    assert last.outcome == "too_many_calls"
    assert len(environment.steps) == MOST_CALLS + 1
    environment.reset(find_task(MADE, BOTH))
    assert environment.score().reward == 0.0
    assert [tool["name"] for tool in environment.list_tools()] == ["read", "write"]


words = st.sampled_from(["read", "write", "drop", ""])
given_arguments = st.one_of(
    st.sampled_from([READ["arguments"], WRITE["arguments"]]),
    st.recursive(
        st.none() | st.integers() | st.floats() | st.text(max_size=4),
        lambda inner: st.dictionaries(st.sampled_from(["path", "content", "z"]), inner, max_size=3),
        max_leaves=4,
    ),
)


@examples(80)
@given(
    st.lists(
        st.builds(lambda n, a: {"name": n, "arguments": a}, words, given_arguments), max_size=6
    )
)
def test_whatever_is_called_the_score_is_between_0_and_1_and_the_same_again(
    calls: list[dict[str, Any]],
) -> None:
    for request in (BOTH, ALONE):
        built, steps = score_calls(MADE, find_task(MADE, request), calls)
        assert 0.0 <= built.reward <= 1.0
        assert built.known == (not any(step.missed for step in steps))
        assert len(steps) == len(calls)
        again, same = score_calls(MADE, find_task(MADE, request), calls)
        assert (again, same) == (built, steps)
        answers = {answer.text for answer in MADE.answers.values()}
        assert all(
            step.text in answers for step in steps if step.outcome in ("useful", "tool_error")
        )


def test_an_empty_recording_knows_nothing() -> None:
    empty = ReplayRecording()
    with pytest.raises(KeyError, match="known: none"):
        ReplayEnvironment(empty).reset("t1:x")
