"""The caller's path: tiny base made once, LoRA, generation, measured beside the baseline."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from training.caller.batches import collate
from training.caller.settings import settings_for
from training.caller.tiny.base import TINY, find_base
from training.caller.tiny.text import make_tokenizer
from training.caller.train import (
    CallerSettings,
    generate,
    load_caller,
    resolved_base,
    train_caller,
)
from training.runtime.model_store import TrainingFailed, card, model_name, read_job, write_job

SHAPE = {"vocabulary": 400, "width": 32, "layers": 1, "heads": 2, "steps": 6, "batch": 4}
SETTINGS = asdict(settings_for(TINY, batch=8, threads=1, tiny=SHAPE))


@pytest.fixture(scope="module")
def trained(trained_home: Path, train_rows: list[dict]) -> dict:
    _, path = write_job(trained_home, "caller", TINY, "set-1", SETTINGS, train_rows)
    return train_caller(read_job(path), lambda _: None)


def test_the_loss_falls_and_the_base_is_named(trained: dict, trained_home: Path) -> None:
    assert trained["loss_last"] < trained["loss_first"]
    base = card(trained_home, trained["base_name"])
    assert base is not None
    assert base["role"] == TINY
    assert base["loss_last"] < base["loss_first"]
    assert trained["pretraining"]["steps"] == 6
    assert "contracts" not in trained["pretraining"]


def test_a_finished_caller_is_not_trained_again(
    trained: dict, trained_home: Path, train_rows: list[dict]
) -> None:
    _, path = write_job(trained_home, "caller", TINY, "set-1", SETTINGS, train_rows)
    assert train_caller(read_job(path), lambda _: pytest.fail("trained again"))["cached"]


def test_another_set_of_nearly_the_same_contracts_keeps_the_base(
    trained: dict, trained_home: Path, train_rows: list[dict]
) -> None:
    fewer = train_rows[:-6]
    _, path = write_job(trained_home, "caller", TINY, "set-2", SETTINGS, fewer)
    steps: list[dict] = []
    again = train_caller(read_job(path), steps.append)
    assert again["name"] != trained["name"]
    assert again["base_name"] == trained["base_name"]
    assert all("pretrain_loss" not in step for step in steps)


def test_a_base_that_saw_other_contracts_is_not_reused(trained_home: Path, trained: dict) -> None:
    assert find_base(trained_home, {f"c1:{i}": {} for i in range(9)}) is None


def test_the_base_that_is_used_is_part_of_the_adapters_name(
    trained: dict, trained_home: Path, train_rows: list[dict], tmp_path: Path
) -> None:
    settings, fewer = CallerSettings(**SETTINGS), train_rows[:-6]
    here = resolved_base(trained_home, TINY, fewer, settings)
    elsewhere = resolved_base(tmp_path, TINY, fewer, settings)
    assert here == f"tiny:{trained['base_name']}"
    assert elsewhere.startswith("tiny:")
    assert elsewhere != here
    names = {model_name("caller", base, "set-2", SETTINGS) for base in (here, elsewhere)}
    assert len(names) == 2
    assert resolved_base(tmp_path, "Qwen/Qwen3-0.6B", fewer, settings) == "Qwen/Qwen3-0.6B"


def test_prompts_of_unequal_length_are_answered_alike_alone_and_together(
    trained: dict, trained_home: Path
) -> None:
    model, tokenizer, _ = load_caller(trained_home, trained["name"])
    prompts = ["<|user|>a<|call|>", "<|user|>find two files called 'Blue Sky' now<|call|>"]
    together = generate(model, tokenizer, prompts, max_new=6)
    alone = [generate(model, tokenizer, [prompt], max_new=6)[0] for prompt in prompts]
    assert together == alone


def test_the_loss_covers_the_call_only_and_a_long_prompt_never_cuts_it() -> None:
    tokenizer = make_tokenizer(["find a file"], 300)
    batch = collate(tokenizer, [("find a", ' {"name"'), ("find " * 100, ' {"name"')], 20, "cpu")
    told = tokenizer(' {"name"', add_special_tokens=False)["input_ids"]
    for ids, labels in zip(batch["input_ids"].tolist(), batch["labels"].tolist(), strict=True):
        kept = [label for label in labels if label != -100]
        assert kept == told
        assert len(ids) == 20
    assert batch["attention_mask"][0].sum() < 20


@pytest.mark.parametrize(
    ("base", "kept", "message"),
    [("/no/such/model", 4, "does not load"), (TINY, 0, "training split is empty")],
)
def test_what_cannot_be_trained_is_named(
    tmp_path: Path, train_rows: list[dict], base: str, kept: int, message: str
) -> None:
    _, path = write_job(tmp_path, "caller", base, "s", SETTINGS, train_rows[:kept])
    with pytest.raises(TrainingFailed, match=message):
        train_caller(read_job(path), lambda _: None)


def test_a_base_without_a_chat_template_is_refused(
    trained: dict, trained_home: Path, train_rows: list[dict], tmp_path: Path
) -> None:
    import shutil

    from transformers import AutoTokenizer

    bare = tmp_path / "bare"
    shutil.copytree(trained_home / "models" / trained["base_name"], bare)
    tokenizer = AutoTokenizer.from_pretrained(str(bare))
    tokenizer.chat_template = None
    for name in ("chat_template.jinja",):
        (bare / name).unlink(missing_ok=True)
    tokenizer.save_pretrained(str(bare))
    _, path = write_job(tmp_path, "caller", str(bare), "s", SETTINGS, train_rows)
    with pytest.raises(TrainingFailed, match="no chat template"):
        train_caller(read_job(path), lambda _: None)


def test_any_local_folder_is_a_base(
    trained: dict, trained_home: Path, train_rows: list[dict], tmp_path: Path
) -> None:
    base = str(trained_home / "models" / trained["base_name"])
    settings = {**SETTINGS, "candidates": 2, "context": 256}
    _, path = write_job(tmp_path, "caller", base, "s", settings, train_rows[:8])
    made = train_caller(read_job(path), lambda _: None)
    assert made["base_name"] == base
    assert made["pretraining"] is None
    assert json.loads((tmp_path / "models" / made["name"] / "model.json").read_text())["pairs"] == 8
