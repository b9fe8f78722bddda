"""The caller's path: the shipped tiny base, LoRA, generation, measured beside the baseline."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from training.caller.bases import load_caller
from training.caller.generation import generate_completions
from training.caller.settings import resolve_caller_settings
from training.caller.tiny.base import FOLDER, TINY, read_tiny_base_digest
from training.caller.train import resolve_base, train_caller
from training.runtime.model_store import (
    CARD,
    TrainingFailed,
    get_model_folder,
    make_model_name,
    read_job,
    write_job,
)

SETTINGS = asdict(resolve_caller_settings(TINY, batch=8, threads=1))


@pytest.fixture(scope="module")
def trained(trained_home: Path, train_rows: list[dict]) -> dict:
    _, path = write_job(trained_home, "caller", TINY, "set-1", SETTINGS, train_rows)
    return train_caller(read_job(path), lambda _: None)


def test_the_loss_falls_and_the_base_is_named(trained: dict, trained_home: Path) -> None:
    assert trained["loss_last"] < trained["loss_first"]
    assert (trained["base"], trained["base_name"]) == (TINY, read_tiny_base_digest())
    assert [path.name for path in (trained_home / "models").iterdir()] == [trained["name"]]


def test_a_finished_caller_is_not_trained_again(
    trained: dict, trained_home: Path, train_rows: list[dict]
) -> None:
    _, path = write_job(trained_home, "caller", TINY, "set-1", SETTINGS, train_rows)
    assert train_caller(read_job(path), lambda _: pytest.fail("trained again"))["cached"]


def test_the_base_that_is_used_is_part_of_the_adapters_name() -> None:
    here = resolve_base(TINY)
    assert here == f"tiny:{read_tiny_base_digest()}"
    names = {make_model_name("caller", base, "set-2", SETTINGS) for base in (here, "tiny:other")}
    assert len(names) == 2
    pinned = f"Qwen/Qwen3-0.6B@{'0' * 40}"
    assert resolve_base(pinned) == pinned


def test_an_adapter_over_another_tiny_base_is_refused(trained: dict, trained_home: Path) -> None:
    folder = get_model_folder(trained_home, "other")
    shutil.copytree(get_model_folder(trained_home, trained["name"]), folder)
    card = {**trained, "name": "other", "base_name": "0" * 64}
    (folder / CARD).write_text(json.dumps(card))
    with pytest.raises(TrainingFailed, match=r"caller other: its tiny base 0{12}.*train it again"):
        load_caller(trained_home, "other")
    shutil.rmtree(folder)


def test_prompts_of_unequal_length_are_answered_alike_alone_and_together(
    trained: dict, trained_home: Path
) -> None:
    model, tokenizer, _ = load_caller(trained_home, trained["name"])
    prompts = ["<|user|>a<|call|>", "<|user|>find two files called 'Blue Sky' now<|call|>"]
    together = generate_completions(model, tokenizer, prompts, max_new=6)
    alone = [generate_completions(model, tokenizer, [prompt], max_new=6)[0] for prompt in prompts]
    assert together == alone


@pytest.mark.parametrize(
    ("base", "kept", "message"),
    [("/no/such/model", 4, "no such folder"), (TINY, 0, "training split is empty")],
)
def test_what_cannot_be_trained_is_named(
    tmp_path: Path, train_rows: list[dict], base: str, kept: int, message: str
) -> None:
    _, path = write_job(tmp_path, "caller", base, "s", SETTINGS, train_rows[:kept])
    with pytest.raises(TrainingFailed, match=message):
        train_caller(read_job(path), lambda _: None)


def test_a_base_without_a_chat_template_is_refused(tmp_path: Path, train_rows: list[dict]) -> None:
    from transformers import AutoTokenizer

    bare = tmp_path / "bare"
    shutil.copytree(FOLDER, bare)
    tokenizer = AutoTokenizer.from_pretrained(str(bare))
    tokenizer.chat_template = None
    (bare / "chat_template.jinja").unlink()
    tokenizer.save_pretrained(str(bare))
    _, path = write_job(tmp_path, "caller", str(bare), "s", SETTINGS, train_rows)
    with pytest.raises(TrainingFailed, match="no chat template"):
        train_caller(read_job(path), lambda _: None)


def test_any_local_folder_is_a_base(tmp_path: Path, train_rows: list[dict]) -> None:
    base = str(FOLDER)
    settings = {**SETTINGS, "candidates": 2, "context": 256}
    _, path = write_job(tmp_path, "caller", base, "s", settings, train_rows[:8])
    made = train_caller(read_job(path), lambda _: None)
    assert made["base"] == made["base_name"] == base
    assert json.loads((tmp_path / "models" / made["name"] / "model.json").read_text())["pairs"] == 8
