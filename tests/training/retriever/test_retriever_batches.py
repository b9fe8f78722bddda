"""What a retriever may learn from, and that no right answer is ever a wrong one."""

import json
from collections import Counter
from dataclasses import replace

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from training.retriever.batches import (
    collect_tools,
    find_twin_texts,
    iterate_batches,
    list_right_texts,
    select_teachable_rows,
)
from training.retriever.settings import RANDOM, RetrieverSettings

SETTINGS = RetrieverSettings(epochs=2, tools=3, negatives=2)


def row(tool: int, instruction: str, near: tuple[int, ...] = (), **more: object) -> dict:
    return {
        "pair_id": f"{tool}-{instruction}",
        "contract_digest": f"c{tool}",
        "positive": f"text {tool}",
        "instruction": instruction,
        "negatives": json.dumps([f"c{one}" for one in near]),
        **more,
    }


worlds = st.lists(
    st.builds(
        row,
        st.integers(0, 7),
        st.text("abc", min_size=1, max_size=2),
        st.lists(st.integers(0, 9), max_size=6).map(tuple),
    ),
    min_size=2,
    max_size=24,
    unique_by=lambda one: one["pair_id"],
)


@given(worlds, st.integers(0, 3), st.booleans(), st.integers(1, 9))
def test_no_right_answer_is_a_wrong_one(rows: list, kinds: int, hard: bool, seed: int) -> None:
    texts = sorted({one["positive"] for one in rows})
    # Vectors of a few kinds: equal ones are twins.
    turned = np.eye(8)[[int(text[-1]) % (kinds + 1) for text in texts]]
    twin = find_twin_texts(texts, turned, collect_tools(rows))
    right = list_right_texts(rows, twin)
    settings = replace(SETTINGS, seed=seed, distractors="hard" if hard else RANDOM)
    made = list(iterate_batches(rows, settings, right))
    allowed = {one["instruction"]: set() for one in rows}
    for one, found in zip(rows, right, strict=True):
        assert one["positive"] in found
        assert twin[one["positive"]] <= found
        allowed[one["instruction"]] |= found
    for batch in made:
        assert len(batch.texts) == len(set(batch.texts)) > 1
        for query, target, also in zip(batch.queries, batch.targets, batch.also_right, strict=True):
            masked = {batch.texts[at] for at in also}
            wrong = set(batch.texts) - masked - {batch.texts[target]}
            assert not wrong & allowed[query]
            assert target not in also
    taught = Counter(query for batch in made for query in batch.queries)
    if len(texts) > settings.tools:
        rest = len(texts) % settings.tools
        least = len(rows) * settings.epochs if rest != 1 else 0
        assert sum(taught.values()) >= least


@given(st.integers(1, 9), st.integers(1, 5), st.integers(0, 3))
def test_sets_share_no_batch_and_lose_no_pair(each: int, size: int, seed: int) -> None:
    rows = [
        row(10 * of + at, f"q{of}{at}", (10 * of + 9,), set=f"set {of}")
        for of in range(3)
        for at in range(each)
    ]
    rows += [row(10 * of + 9, f"n{of}", set=f"set {of}") for of in range(3)]
    made = list(iterate_batches(rows, replace(SETTINGS, tools=size, seed=seed)))
    for batch in made:
        assert len({int(text.split()[1]) // 10 for text in batch.texts}) == 1
    taught = Counter(query for batch in made for query in batch.queries)
    asked = {one["instruction"]: SETTINGS.epochs for one in rows if one["instruction"][0] == "q"}
    assert asked.items() <= taught.items()


def test_a_negative_comes_from_the_confusable_audit_and_is_no_twin() -> None:
    rows = [row(0, "a", (1, 2)), row(1, "b"), row(2, "c"), row(3, "d")]
    texts = [f"text {at}" for at in range(4)]
    vectors = np.eye(4)
    vectors[1] = vectors[0]  # tool 1 is tool 0 under another name
    right = list_right_texts(rows, find_twin_texts(texts, vectors, collect_tools(rows)))
    settings = replace(SETTINGS, tools=1, negatives=3, epochs=1)
    of_first = next(
        batch for batch in iterate_batches(rows, settings, right) if batch.queries == ["a"]
    )
    assert of_first.texts == ["text 0", "text 2"]
    loose = next(batch for batch in iterate_batches(rows, settings) if batch.queries == ["a"])
    assert set(loose.texts) == {"text 0", "text 1", "text 2"}


def test_tools_of_one_name_and_description_are_one_tool() -> None:
    contract = json.dumps({"name": "list_files", "description": "List the files of a folder"})
    other = json.dumps({"name": "listFiles", "description": "List the  files of a folder"})
    rows = [row(0, "a", contract=contract), row(1, "b", contract=other), row(2, "c", contract="{}")]
    found = find_twin_texts(["text 0", "text 1", "text 2"], np.eye(3), collect_tools(rows))
    assert found["text 0"] == {"text 0", "text 1"}
    assert found["text 2"] == {"text 2"}


def test_calls_and_words_name_further_right_tools() -> None:
    calls = json.dumps([{"contract_digest": "c0"}, {"contract_digest": "c2"}])
    rows = [row(0, "a", calls=calls), row(1, "Same  words"), row(2, "c"), row(3, "same words")]
    right = list_right_texts(rows, {})
    assert right[0] == {"text 0", "text 2"}
    assert right[1] == right[3] == {"text 1", "text 3"}


def test_the_pools_trained_tools_are_negatives_and_its_twins_are_none() -> None:
    def held(name: str, split: str, *twin: str) -> dict:
        contract = {"name": name, "description": f"about {name}", "inputSchema": {}}
        return {"contract": contract, "split": split, "twins": list(twin)}

    pool = {
        "c0": held("zero", "train", "c8"),
        "c7": held("seven", "train"),
        "c8": held("eight", "train"),
        "c9": held("nine", "unseen_tool"),
    }
    rows = [row(0, "a", (7, 8, 9)), row(1, "b")]
    tools = collect_tools(rows, pool)
    assert set(tools) == {"c0", "c1", "c7", "c8"}
    texts = sorted({tool.text for tool in tools.values()})
    right = list_right_texts(rows, find_twin_texts(texts, np.eye(len(texts)), tools), tools)
    settings = replace(SETTINGS, tools=1, negatives=3, epochs=1)
    made = next(
        batch for batch in iterate_batches(rows, settings, right, tools) if batch.queries == ["a"]
    )
    assert made.texts == ["text 0", tools["c7"].text]


def test_only_train_rows_with_one_call_teach() -> None:
    rows = [
        row(0, "a", split="train", task="single"),
        row(0, "b", split="train", task="lookalike"),
        row(0, "c", split="train", task="parallel"),
        row(0, "d", split="train", task="no_tool"),
        row(0, "e", split="unseen_tool", task="single"),
        row(0, " ", split="train", task="single"),
        row(0, "f"),  # rows of before there were tasks
    ]
    kept, left = select_teachable_rows(rows)
    assert [one["instruction"] for one in kept] == ["a", "b", "f"]
    assert sum(left.values()) == 4
    assert left["not of the train split"] == 1


def test_random_negatives_are_not_those_of_the_audit() -> None:
    rows = [row(at, f"q{at}", ((at + 1) % 40,)) for at in range(40)]
    settings = replace(SETTINGS, tools=1, negatives=1, epochs=1)
    hard = [batch.texts[1] for batch in iterate_batches(rows, settings)]
    drawn = [
        batch.texts[1] for batch in iterate_batches(rows, replace(settings, distractors=RANDOM))
    ]
    by_row = {one["positive"]: f"text {(int(one['positive'][5:]) + 1) % 40}" for one in rows}
    assert all(
        batch.texts[1] == by_row[batch.texts[0]] for batch in iterate_batches(rows, settings)
    )
    assert hard != drawn
    assert len(set(drawn)) > 15
