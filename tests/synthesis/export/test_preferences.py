"""Preference pairs: one prompt, a valid answer, a refused one that says something else."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.validate import validate_call
from assets.synthesis.export.examples import TrainingExample, UnusableExample, write_preferences
from assets.synthesis.export.selection import ExportChoice, ExportError
from assets.synthesis.export.write import export
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from tests.synthesis.export_rows import (
    TEST_SERVERS,
    TRAIN_SERVERS,
    called,
    dump_text,
    golden,
    judgement,
    pair,
    publish,
    published,
)
from training.caller.tiny.base import find_tiny_base_folder
from training.sets.split import TEST, TRAIN, split_of
from warehouse.store import Warehouse

TOOL = {
    "type": "function",
    "function": {
        "name": "find",
        "description": "",
        "parameters": {"type": "object", "properties": {"n": {"type": "integer"}}},
    },
}
ASKED = {"role": "user", "content": "Find."}
ANSWERS = st.one_of(
    st.sampled_from(["Which one?", "None of these."]),
    st.fixed_dictionaries(
        {"n": st.one_of(st.integers(0, 2), st.floats(0, 2), st.text(max_size=1))}
    ),
)


def answer(given: Any, **more: Any) -> dict[str, Any]:
    if isinstance(given, str):
        return {"role": "assistant", "content": given, **more}
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": given}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


def prefer(warehouse: Warehouse, folder: Path, **options: Any) -> dict[str, list[dict[str, Any]]]:
    choice = ExportChoice(
        **{"as_of": 4e9, "split_of": split_of, "held": lambda rows: set(), **options}
    )
    export(warehouse.tables, folder, "dpo", choice, "2026-01-02")
    files = (folder / "data").glob("*.jsonl")
    return {file.stem: [json.loads(line) for line in file.open()] for file in files}


def refused(server: str, arguments: Any, **columns: Any) -> dict[str, Any]:
    """A row that asks as `pair(server, "single")` does and calls otherwise."""
    call = golden(server, "find", arguments)
    asked = {"role": "user", "content": pair(server, "single")["instruction"]}
    messages = [asked, called(("c0", call, arguments))]
    return pair(server, "single", calls=dump_text([call]), messages=dump_text(messages), **columns)


def publish_refused(warehouse: Warehouse, rows: list[dict[str, Any]]) -> None:
    kept = published(warehouse)
    publish(warehouse, PAIRS, [*kept, *rows])
    publish(warehouse, JUDGEMENTS, [*map(judgement, kept), *(judgement(r, "reject") for r in rows)])


def test_what_a_server_refused_is_rejected_for_the_call_after_it(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    published(warehouse)
    found = prefer(warehouse, tmp_path / "out")
    servers = {TRAIN: set(TRAIN_SERVERS), TEST: set(TEST_SERVERS)}
    assert {split: {one["server_id"] for one in rows} for split, rows in found.items()} == servers
    for row in (one for rows in found.values() for one in rows):
        assert (row["source"], row["task"]) == ("draft", "recovery")
        assert [one["role"] for one in row["prompt"]] == ["user"]
        [right], [wrong] = row["chosen"], row["rejected"]
        assert wrong["tool_calls"][0]["function"]["arguments"] == {}
        call = right["tool_calls"][0]["function"]
        tools = {one["function"]["name"]: one["function"] for one in json.loads(row["tools"])}
        schema = {"inputSchema": tools[call["name"]]["parameters"]}
        assert not validate_call(schema, call["arguments"])
        assert "weight" not in wrong


def test_what_the_judge_refused_is_rejected_where_the_words_are_the_same(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    server = TRAIN_SERVERS[0]
    other = refused(server, {"title": "A"})
    same = refused(TRAIN_SERVERS[1], json.loads(pair(TRAIN_SERVERS[1], "single")["arguments"]))
    unlike = refused(TEST_SERVERS[0], {"title": 1}, instruction="Other words.")
    publish_refused(warehouse, [other, {**same, "pair_id": "p1:same"}, unlike])
    rows = [one for part in prefer(warehouse, tmp_path / "out").values() for one in part]
    [row] = [one for one in rows if one["source"] == "judgement"]
    assert row["server_id"] == server
    [wrong] = row["rejected"]
    assert wrong["tool_calls"][0]["function"]["arguments"] == {"title": "A"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "- source: draft: 3, judgement: 1" in card
    assert "`rejected`" in card
    assert "no answer to the same words was refused" in card


def test_without_anything_refused_there_is_nothing_to_export(
    warehouse: Warehouse, tmp_path: Path
) -> None:
    published(warehouse, [pair(TRAIN_SERVERS[0], "single")])
    with pytest.raises(ExportError, match="no answer to the same words was refused"):
        prefer(warehouse, tmp_path / "out")


@given(st.lists(ANSWERS, max_size=3), ANSWERS)
@settings(max_examples=40)
def test_a_refused_answer_never_says_what_is_preferred(wrong: list[Any], right: Any) -> None:
    example = TrainingExample(
        [ASKED, answer(right)], [TOOL], {"split": TRAIN}, list(map(answer, wrong))
    )
    try:
        lines = list(write_preferences(example))
    except UnusableExample:
        lines = []
    for line in lines:
        assert line["prompt"] == [ASKED]
        chosen, rejected = ([read(one) for one in line[side]] for side in ("chosen", "rejected"))
        assert chosen == [read(answer(right))]
        assert chosen != rejected
    assert len(lines) == sum(not is_same(one, right) for one in wrong)


def is_same(one: Any, other: Any) -> bool:
    """Whether two answers say the same: 1 and 1.0 do."""
    return type(one) is type(other) and one == other


def read(message: dict[str, Any]) -> Any:
    calls = message.get("tool_calls")
    return calls[0]["function"]["arguments"] if calls else message["content"]


@pytest.mark.slow
def test_trl_trains_on_it(warehouse: Warehouse, tmp_path: Path) -> None:
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    published(warehouse)
    prefer(warehouse, tmp_path / "out")
    datasets.disable_progress_bars()
    rows = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    base = str(find_tiny_base_folder())
    trainer = trl.DPOTrainer(
        model=base,
        args=trl.DPOConfig(
            output_dir=str(tmp_path / "dpo"), max_steps=1, per_device_train_batch_size=2,
            use_cpu=True, bf16=False, report_to="none", save_strategy="no", disable_tqdm=True,
        ),
        train_dataset=rows[TRAIN],
        processing_class=transformers.AutoTokenizer.from_pretrained(base),
    )  # fmt: skip
    assert trainer.train().global_step == 1
