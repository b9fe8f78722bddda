"""A copy in eight bits writes what the model writes, by the same grammars, and ends when told."""

import json
import os
from collections.abc import Iterator
from itertools import count
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from assets.contracts.validate import validate_call
from tests.training.conftest import raw_tool
from training.caller import fast_generation
from training.caller.fast_generation import (
    FastCopyFailed,
    FastModel,
    build_fast_copy,
    find_fast_copy,
    has_fast_runtime,
    is_built,
)
from training.caller.generation import CallGrammar, CallGrammars
from training.evaluation.loaded_model import FastGeneration, TorchGeneration
from training.prompts.render import render_conversation, render_tool_schema

TOOL = raw_tool("make", "file")


@pytest.fixture(scope="module")
def loaded(small_caller: Path) -> tuple[Any, Any]:
    from training.caller.bases import load_base

    return load_base(str(small_caller), "cpu")


@pytest.fixture(scope="module")
def copy(loaded: tuple[Any, Any], tmp_path_factory: pytest.TempPathFactory) -> Path:
    assert has_fast_runtime()
    folder = find_fast_copy(tmp_path_factory.mktemp("home"), "ab" * 32)
    build_fast_copy(folder, loaded[0].float(), loaded[1])
    return folder


def write_prompts(tokenizer: Any) -> list[str]:
    schemas = [render_tool_schema(TOOL)]
    texts = [f"Please make {n} files called '{name}'." for n in (2, 3) for name in ("Old Oak", "é")]
    return [render_conversation(tokenizer, schemas, text)[0] for text in texts]


def test_the_copy_writes_what_the_model_writes(loaded: tuple[Any, Any], copy: Path) -> None:
    model, tokenizer = loaded
    prompts = write_prompts(tokenizer)
    slow = TorchGeneration(model, tokenizer, "small", batch=1)(prompts, None, None, max_new=40)
    fast = FastGeneration(FastModel(copy), tokenizer)(prompts, None, None, max_new=40)
    assert sum(a == b for a, b in zip(slow, fast, strict=True)) >= 3
    assert not any("<|im_end|>" in text for text in fast)


def test_a_grammar_holds_the_copy_and_a_bad_one_does_not_stop_it(
    loaded: tuple[Any, Any], copy: Path
) -> None:
    tokenizer = loaded[1]
    grammars = CallGrammars(tokenizer, len(tokenizer))
    odd = {**TOOL, "inputSchema": {**TOOL["inputSchema"], "required": ["title", "count"]}}
    held = [grammars.write_grammar([odd], must_call=True)] * 3 + [CallGrammar("start: (((")]
    answers = FastGeneration(FastModel(copy), tokenizer)(
        write_prompts(tokenizer), grammars, held, max_new=120
    )
    for text in answers[:3]:
        call = json.loads(text)
        assert call["name"] == "make_file"
        assert validate_call(odd, call["arguments"]) == []
    assert answers[3]


def test_an_answer_ends_at_its_limit_and_when_nobody_waits_for_it(
    loaded: tuple[Any, Any], copy: Path
) -> None:
    model, tokenizer = FastModel(copy, threads=1), loaded[1]
    prompt = tokenizer("Say it again and again.", add_special_tokens=False)["input_ids"]
    assert len(model.generate(prompt, max_new=7)) <= 7
    asked: Iterator[int] = count()
    assert len(model.generate(prompt, max_new=50, is_over=lambda: next(asked) >= 3)) <= 3


def test_a_model_that_the_builder_does_not_know_is_refused(
    loaded: tuple[Any, Any], tmp_path: Path
) -> None:
    def save_other(folder: str) -> None:
        Path(folder).mkdir()
        (Path(folder) / "config.json").write_text('{"model_type": "other"}')

    model = SimpleNamespace(save_pretrained=save_other)
    with pytest.raises(FastCopyFailed, match="builds no fast copy"):
        build_fast_copy(tmp_path / "copy", model, loaded[1])
    assert list(tmp_path.iterdir()) == []


def test_copies_used_long_ago_go(tmp_path: Path) -> None:
    for at in range(6):
        folder = tmp_path / str(at)
        folder.mkdir()
        (folder / "genai_config.json").write_text("{}")
        os.utime(folder / "genai_config.json", (at, at))
    fast_generation._remove_old_copies(tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir() if is_built(path)) == [
        "2",
        "3",
        "4",
        "5",
    ]
