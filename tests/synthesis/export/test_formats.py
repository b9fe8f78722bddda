"""Exports as their readers read them: `datasets`, TRL's trainer, chat templates with tools."""

import json
from copy import copy
from pathlib import Path
from typing import Any

import pytest

from assets.contracts.canonical import canonicalize_contract
from assets.synthesis.export.formats import FORMATS
from assets.synthesis.export.selection import ExportChoice
from assets.synthesis.export.write import export
from assets.synthesis.tables import read_goldens
from tests.support.small_caller import make_small_tokenizer
from tests.synthesis.export_rows import (
    golden,
    pair,
    published,
    tool,
)
from training.prompts.call_text import parse_calls
from training.prompts.render import render_conversation, render_tool_schema
from training.sets.split import TRAIN, split_of
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
def test_datasets_reads_back_what_was_written(
    warehouse: Warehouse, tmp_path: Path, name: str
) -> None:
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
        verb = call.tool.split(".")[0]
        assert (
            offered[call.tool]["parameters"]
            == canonicalize_contract(tool(call.server_id, verb))["inputSchema"]
        )
    calls = [c["function"] for m in row["messages"] for c in m.get("tool_calls", ())
            if m.get("weight") != 0]  # fmt: skip
    assert [call["arguments"] for call in calls] == [call.arguments for call in read_goldens(was)]
    assert (row["license"], row["simulated"]) == ("MIT", was["simulated"])


def test_hf_streams(warehouse: Warehouse, tmp_path: Path) -> None:
    published(warehouse)
    rows = load(made(warehouse, tmp_path / "out", "hf"), streaming=True, split=TRAIN)
    assert next(iter(rows))["tools"][0]["type"] == "function"


@pytest.mark.parametrize("template", ["qwen3", "qwen2_5", "llama3_1"])
def test_chat_templates_show_the_tools_and_the_call(
    warehouse: Warehouse, tmp_path: Path, template: str
) -> None:
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


def test_a_row_renders_as_the_training_renders_it(warehouse: Warehouse, tmp_path: Path) -> None:
    published(warehouse, [pair("npm:file", "single")])
    [row] = load(made(warehouse, tmp_path / "out", "trl"), split=TRAIN)
    tokenizer = _tokenizer("qwen2_5")
    item = golden("npm:file", "find", {"title": "A", "file_only": {"deep": None}})
    call = {"name": item["tool"], "arguments": item["arguments"]}
    tools = json.loads(row["tools"])
    assert render_tool_schema(canonicalize_contract(tool("npm:file", "find"))) in tools
    _, completion = render_conversation(tokenizer, tools, row["prompt"][0]["content"], [call])
    both = tokenizer.apply_chat_template(
        [*row["prompt"], *row["completion"]], tools=tools, tokenize=False
    )
    assert both.endswith(completion)
    assert parse_calls(completion).calls == [call]


def test_trl_trains_on_the_completion_alone(
    small_caller: Path, warehouse: Warehouse, tmp_path: Path
) -> None:
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
