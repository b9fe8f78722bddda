"""Exports as their readers read them: `datasets`, TRL's trainer, chat templates with tools."""

import json
from copy import copy
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract
from assets.contracts.validate import validate_call
from assets.synthesis.export.examples import TrainingExample, UnusableExample, write_preferences
from assets.synthesis.export.formats import FORMATS
from assets.synthesis.export.selection import ExportChoice, ExportError
from assets.synthesis.export.write import export
from assets.synthesis.tables import JUDGEMENTS, PAIRS, read_goldens
from tests.support.cases import cases
from tests.support.small_caller import make_small_tokenizer
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
    tool,
)
from training.prompts.call_text import parse_calls
from training.prompts.render import render_conversation, render_tool_schema
from training.sets.split import TEST, TRAIN, split_of
from warehouse.store import Warehouse


def load(folder: Path, **options: Any) -> Any:
    """`datasets.load_dataset` of an exported folder, as its own users call it."""
    datasets = pytest.importorskip("datasets")
    datasets.disable_progress_bars()
    return datasets.load_dataset(str(folder), cache_dir=str(folder.parent / "cache"), **options)


def made(warehouse: Warehouse, folder: Path, name: str) -> Path:
    choice = ExportChoice(4e9, split_of, lambda rows: set())
    export(warehouse.tables, folder, name, choice, "2026-01-02")
    return folder


@pytest.mark.parametrize("name", sorted(FORMATS))
def test_datasets_reads_back_what_was_written(warehouse, tmp_path, name):
    pairs = {item["pair_id"]: item for item in published(warehouse)}
    folder = made(warehouse, tmp_path / "out", name)
    result = load(folder)
    assert set(result) == {"train", "test"}
    assert set(result["train"].column_names) == set(FORMATS[name].columns)
    if name == "hf":
        for row in result["train"]:
            _same_tools_and_calls(row, pairs[row["pair_id"]])
        return
    for split, rows in result.items():
        text = (folder / "data" / f"{split}.jsonl").read_text()
        assert [dict(row) for row in rows] == [json.loads(line) for line in text.splitlines()]


def _same_tools_and_calls(row: dict[str, Any], was: dict[str, Any]) -> None:
    """No key was added or lost on the way, whatever other tools' schemas hold."""
    offered = {item["function"]["name"]: item["function"] for item in row["tools"]}
    for call in read_goldens(was):
        contract = canonicalize_contract(tool(call.server_id, call.tool.split(".")[0]))
        assert offered[call.tool]["parameters"] == contract["inputSchema"]
    calls = [c["function"] for m in row["messages"] for c in m.get("tool_calls", ())
            if m.get("weight") != 0]  # fmt: skip
    assert [call["arguments"] for call in calls] == [call.arguments for call in read_goldens(was)]
    assert (row["license"], row["simulated"]) == ("MIT", was["simulated"])


def test_datasets_reads_lines_of_one_turn_to_learn_apart(warehouse, tmp_path):
    published(warehouse)
    folder = made(warehouse, tmp_path / "out", "sharegpt")
    result = load(folder, name="last_turn")
    assert {split: [row["task"] for row in rows] for split, rows in result.items()} == {
        "train": ["recovery", "recovery"], "test": ["recovery"],
    }  # fmt: skip


def test_openai_gets_descriptions_and_schemas_that_its_api_takes():
    tuple_item = {"type": "array", "items": [{"type": "number"}]}
    parameters = {"type": "object", "properties": {"at": tuple_item, "all": {"type": "array"}}}
    function = {"name": "a.b", "description": "d" * 1_500, "parameters": parameters}
    example = TrainingExample([ASKED, answer("No.")], [{"type": "function", "function": function}])
    [line] = FORMATS["openai"].lines(example)
    [sent] = [tool["function"] for tool in line["tools"]]
    assert (sent["name"], len(sent["description"])) == ("a_b", 1_024)
    number = {"type": "number"}
    assert sent["parameters"]["properties"] == {
        "at": {"type": "array", "prefixItems": [number], "items": {}},
        "all": {"type": "array", "items": {}},
    }


@cases("template", "qwen3", "qwen2_5", "llama3_1")
def test_chat_templates_show_the_tools_and_the_call(warehouse, tmp_path, template):
    published(warehouse)
    rows = load(made(warehouse, tmp_path / "out", "messages"), split=TRAIN)
    tokenizer = _tokenizer(template)
    for row in rows:
        if template == "llama3_1" and row["task"] == "parallel":
            continue  # that template takes one call a turn
        text = tokenizer.apply_chat_template(row["messages"], tools=row["tools"], tokenize=False)
        for offered in row["tools"]:
            assert json.dumps(offered["function"]["name"]) in text
        for message in row["messages"]:
            for call in message.get("tool_calls", ()):
                assert json.dumps(call["function"]["name"]) in text.split("user", 1)[1]


def test_a_row_renders_as_the_training_renders_it(warehouse, tmp_path):
    published(warehouse, [pair("npm:file", "single")])
    [row] = load(made(warehouse, tmp_path / "out", "trl"), split=TRAIN)
    tokenizer = _tokenizer("qwen2_5")
    item = golden("npm:file", "find", {"title": "A", "file_only": {"deep": None}})
    call = {"name": item["tool"], "arguments": item["arguments"]}
    tools = json.loads(row["tools"])
    assert render_tool_schema(canonicalize_contract(tool("npm:file", "find"))) in tools
    _, completion = render_conversation(tokenizer, tools, row["prompt"][0]["content"], [call])
    turns = [*row["prompt"], *row["completion"]]
    assert tokenizer.apply_chat_template(turns, tools=tools, tokenize=False).endswith(completion)
    assert parse_calls(completion).calls == [call]


def test_trl_trains_on_the_completion_alone(small_caller, warehouse, tmp_path):
    trl = pytest.importorskip("trl")
    published(warehouse)
    rows = load(made(warehouse, tmp_path / "out", "trl"), split=TRAIN)
    tokenizer = _tokenizer("qwen3_training")
    settings = trl.SFTConfig(
        output_dir=str(tmp_path / "run"), max_steps=1, per_device_train_batch_size=2,
        max_length=None, report_to=[], use_cpu=True, save_strategy="no", disable_tqdm=True,
        logging_strategy="no", bf16=False,
    )  # fmt: skip
    trainer = trl.SFTTrainer(
        model=str(small_caller), args=settings, train_dataset=rows, processing_class=tokenizer
    )
    for prepared, row in zip(trainer.train_dataset, rows, strict=True):
        whole = tokenizer.decode(prepared["input_ids"])
        learnt = tokenizer.decode([label for label in prepared["labels"] if label != -100])
        for offered in json.loads(row["tools"]):
            assert offered["function"]["name"] in whole
        [message] = row["completion"]
        for call in message.get("tool_calls", ()):
            assert json.dumps(call["function"]["arguments"], ensure_ascii=False) in learnt
        assert row["prompt"][0]["content"] not in learnt
    assert trainer.train().training_loss > 0


def _tokenizer(template: str) -> Any:
    trl = pytest.importorskip("trl")
    tokenizer = copy(make_small_tokenizer())
    folder = Path(trl.__file__).parent / "chat_templates"
    tokenizer.chat_template = (folder / f"{template}.jinja").read_text()
    return tokenizer


SCHEMA = {"type": "object", "properties": {"n": {"type": "integer"}}}
TOOL = {"type": "function", "function": {"name": "find", "description": "", "parameters": SCHEMA}}
ASKED = {"role": "user", "content": "Find."}
NUMBERS = st.one_of(st.integers(0, 2), st.floats(0, 2), st.text(max_size=1))
WORDS = st.sampled_from(["Which one?", "None of these."])
ANSWERS = st.one_of(WORDS, st.fixed_dictionaries({"n": NUMBERS}))


def answer(value: Any, **more: Any) -> dict[str, Any]:
    if isinstance(value, str):
        return {"role": "assistant", "content": value, **more}
    call = {"id": "c", "type": "function", "function": {"name": "find", "arguments": value}}
    return {"role": "assistant", "content": None, "tool_calls": [call], **more}


def prefer(warehouse: Warehouse, folder: Path) -> dict[str, list[dict[str, Any]]]:
    files = (made(warehouse, folder, "dpo") / "data").glob("*.jsonl")
    return {file.stem: [json.loads(line) for line in file.open()] for file in files}


def refused(server: str, arguments: Any, **columns: Any) -> dict[str, Any]:
    """A row that asks as `pair(server, "single")` does and calls otherwise."""
    call = golden(server, "find", arguments)
    request = {"role": "user", "content": pair(server, "single")["instruction"]}
    messages = [request, called(("c0", call, arguments))]
    return pair(server, "single", calls=dump_text([call]), messages=dump_text(messages), **columns)


def test_what_a_server_refused_is_rejected_for_the_call_after_it(warehouse, tmp_path):
    published(warehouse)
    result = prefer(warehouse, tmp_path / "out")
    servers = {TRAIN: set(TRAIN_SERVERS), TEST: set(TEST_SERVERS)}
    assert {split: {row["server_id"] for row in rows} for split, rows in result.items()} == servers
    for row in (row for rows in result.values() for row in rows):
        assert (row["source"], row["task"]) == ("draft", "recovery")
        assert [item["role"] for item in row["prompt"]] == ["user"]
        [right], [wrong] = row["chosen"], row["rejected"]
        assert wrong["tool_calls"][0]["function"]["arguments"] == {}
        call = right["tool_calls"][0]["function"]
        tools = {item["function"]["name"]: item["function"] for item in json.loads(row["tools"])}
        schema = {"inputSchema": tools[call["name"]]["parameters"]}
        assert not validate_call(schema, call["arguments"])
        assert "weight" not in wrong


def test_what_the_judge_refused_is_rejected_where_the_words_are_the_same(warehouse, tmp_path):
    server = TRAIN_SERVERS[0]
    other = refused(server, {"title": "A"})
    same = refused(TRAIN_SERVERS[1], json.loads(pair(TRAIN_SERVERS[1], "single")["arguments"]))
    unlike = refused(TEST_SERVERS[0], {"title": 1}, instruction="Other words.")
    rows, kept = [other, {**same, "pair_id": "p1:same"}, unlike], published(warehouse)
    publish(warehouse, PAIRS, [*kept, *rows])
    rejected = [judgement(row, "reject") for row in rows]
    publish(warehouse, JUDGEMENTS, [*map(judgement, kept), *rejected])
    made_rows = [item for part in prefer(warehouse, tmp_path / "out").values() for item in part]
    [row] = [row for row in made_rows if row["source"] == "judgement"]
    assert row["server_id"] == server
    [wrong] = row["rejected"]
    assert wrong["tool_calls"][0]["function"]["arguments"] == {"title": "A"}
    card = (tmp_path / "out" / "README.md").read_text()
    assert "- source: draft: 3, judgement: 1" in card
    assert "`rejected`" in card
    assert "no answer to the same words was refused" in card


def test_without_anything_refused_there_is_nothing_to_export(warehouse, tmp_path):
    published(warehouse, [pair(TRAIN_SERVERS[0], "single")])
    with pytest.raises(ExportError, match="no answer to the same words was refused"):
        prefer(warehouse, tmp_path / "out")


@given(st.lists(ANSWERS, max_size=3), ANSWERS)
@settings(max_examples=40)
def test_a_refused_answer_never_says_what_is_preferred(wrong, right):
    turns, refusals = [ASKED, answer(right)], list(map(answer, wrong))
    example = TrainingExample(turns, [TOOL], {"split": TRAIN}, refusals)
    try:
        lines = list(write_preferences(example))
    except UnusableExample:
        lines = []
    for line in lines:
        assert line["prompt"] == [ASKED]
        chosen, rejected = ([read(item) for item in line[side]] for side in ("chosen", "rejected"))
        assert chosen == [read(answer(right))]
        assert chosen != rejected
    assert len(lines) == sum(item != right for item in wrong)  # 1 and 1.0 are the same


def read(message: dict[str, Any]) -> Any:
    calls = message.get("tool_calls")
    return calls[0]["function"]["arguments"] if calls else message["content"]


@pytest.mark.slow
def test_trl_trains_on_it(small_caller, warehouse, tmp_path):
    trl, datasets = pytest.importorskip("trl"), pytest.importorskip("datasets")
    transformers = pytest.importorskip("transformers")
    published(warehouse)
    prefer(warehouse, tmp_path / "out")
    datasets.disable_progress_bars()
    rows = datasets.load_dataset(str(tmp_path / "out"), cache_dir=str(tmp_path / "cache"))
    base = str(small_caller)
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
