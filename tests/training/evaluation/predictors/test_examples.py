"""Which train pairs may stand before a request, and which would give its answer away."""

import json
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from tests.vectors.conftest import WordEmbedder
from training.evaluation.similar_examples import select_similar_examples


def row(
    pair_id: str, instruction: str, split: str = "train", server: str = "npm:a", **more: Any
) -> dict[str, Any]:
    tool, arguments = more.pop("tool", "read"), more.pop("arguments", {"path": pair_id})
    calls = [{"name": tool, "contract_digest": "c1:x", "arguments": arguments}]
    facts = {"pair_id": pair_id, "server_id": server, "tool": tool, "split": split}
    return facts | {"instruction": instruction, "calls": json.dumps(calls)} | more


TRAIN = [
    row("t1", "read the big file of the ship"),
    row("t2", "read the small file of the harbour", server="npm:b"),
    row("t3", "what time is it in Oslo", server="npm:c", tool="time", arguments={"zone": "Oslo"}),
]
NEAR = "read the old file of the harbour"


def ids(of: dict[str, Any], train: list[dict[str, Any]] = TRAIN, n: int = 3) -> list[str]:
    (found,) = select_similar_examples([of], train, WordEmbedder().embed, n, 0.999)
    names = {one["instruction"]: one["pair_id"] for one in reversed(train)}
    return [names[instruction] for instruction, _ in found]


def test_the_nearest_stands_last_with_its_calls() -> None:
    (found,) = select_similar_examples(
        [row("q", NEAR, "seen_tool")], TRAIN, WordEmbedder().embed, 2
    )
    assert [text for text, _ in found] == [TRAIN[0]["instruction"], TRAIN[1]["instruction"]]
    assert found[1][1] == [{"name": "read", "arguments": {"path": "t2"}}]


@pytest.mark.parametrize("split", ["unseen_server", "unseen_tool", "unseen_time"])
def test_a_server_is_never_shown_to_its_own_unseen_requests(split: str) -> None:
    assert "t2" in ids(row("q", NEAR, "seen_tool", "npm:b"))
    assert ids(row("q", NEAR, split, "npm:b")) == ["t3", "t1"]


def test_a_conversation_is_no_example() -> None:
    talk = {**TRAIN[1], "messages": '[{"role": "user", "content": "read"}]'}
    assert ids(row("q", NEAR, "seen_tool"), [TRAIN[0], talk, TRAIN[2]]) == ["t3", "t1"]


def test_the_own_pair_and_its_words_are_never_shown() -> None:
    assert ids(TRAIN[1]) == ["t3", "t1"], "its own pair"
    asked = row("q", "Read the small file, of the Harbour!", "seen_tool", arguments={"path": "z"})
    assert ids(asked) == ["t3", "t1"], "another pair with its words"


def test_a_near_duplicate_is_not_shown() -> None:
    asked = row("q", "the small small file of the harbour read", "seen_tool")
    (far,) = select_similar_examples([asked], TRAIN, WordEmbedder().embed, 3, 0.9)
    (near,) = select_similar_examples([asked], TRAIN, WordEmbedder().embed, 3, 0.99)
    assert len(near) == len(far) + 1


def test_the_very_call_that_is_right_is_not_shown() -> None:
    asked = row("q", NEAR, "seen_tool", arguments={"path": "t2"})
    assert ids(asked) == ["t3", "t1"]
    bare = [row("t1", "list all of it", tool="list", arguments={})]
    assert ids(row("q", "list it", "seen_tool", tool="list", arguments={}), bare) == ["t1"]


def test_only_train_pairs_are_shown_and_none_twice() -> None:
    train = [
        *TRAIN,
        row("t4", NEAR + " again", "unseen_server"),
        row("t5", TRAIN[1]["instruction"]),
    ]
    assert ids(row("q", NEAR, "seen_tool"), train) == ["t3", "t1", "t2"]


def test_a_request_that_needs_no_tool_is_an_example_of_that() -> None:
    none = row("t9", "say the harbour is old") | {"calls": "[]", "arguments": None}
    (found,) = select_similar_examples(
        [row("q", NEAR, "seen_tool")], [none], WordEmbedder().embed, 1
    )
    assert found == (("say the harbour is old", []),)


def test_one_tool_does_not_fill_the_prompt() -> None:
    many = [row(f"m{i}", f"read the old file number {i}") for i in range(5)]
    assert len(ids(row("q", NEAR, "seen_tool"), many, n=5)) == 2


def test_without_train_rows_there_are_no_examples() -> None:
    assert select_similar_examples([row("q", NEAR)], [], WordEmbedder().embed, 3) == [()]
    assert select_similar_examples([row("q", NEAR)], TRAIN, WordEmbedder().embed, 0) == [()]
    assert select_similar_examples([], TRAIN, WordEmbedder().embed, 3) == []


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 2), st.integers(0, 9)), max_size=8),
    st.sampled_from(["seen_tool", "unseen_tool", "unseen_server", "unseen_time"]),
    st.integers(0, 4),
)
def test_whatever_the_pairs_the_rule_holds(
    made: list[tuple[int, int, int]], split: str, n: int
) -> None:
    words = ["read", "old", "file", "harbour", "ship", "time"]
    train = [
        row(f"t{at}", f"{words[a]} {words[b]} {words[a + 1]}", server=f"s{b}", arguments={"v": v})
        for at, (a, b, v) in enumerate(made)
    ]
    asked = row("q", "read file harbour", split, "s1", arguments={"v": 4})
    (found,) = select_similar_examples([asked], train, WordEmbedder().embed, n)
    of = {(one["instruction"], one["calls"]): one for one in train}
    assert len(found) <= n
    vectors = WordEmbedder()
    for instruction, calls in found:
        assert calls[0]["arguments"] != {"v": 4}
        near = vectors.embed([instruction]) @ vectors.embed(["read file harbour"]).T
        assert float(np.squeeze(near)) < 0.95
        whose = {
            one["server_id"]
            for (text, held), one in of.items()
            if text == instruction and json.loads(held)[0]["arguments"] == calls[0]["arguments"]
        }
        assert split == "seen_tool" or whose != {"s1"}
