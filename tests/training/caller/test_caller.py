"""The caller's path: a small base, LoRA, generation, and what is refused."""

import json
import shutil
from dataclasses import asdict
from pathlib import Path

import pytest

from tests.training.small_base import make_base
from training.caller.bases import load_caller
from training.caller.generation import generate_completions
from training.caller.settings import resolve_caller_settings
from training.caller.smollm2 import SMOLLM2, TEMPLATE, name_smollm2_base
from training.caller.train import resolve_base, train_caller
from training.runtime.model_store import (
    CARD,
    TrainingFailed,
    get_model_folder,
    make_model_name,
    read_job,
    write_job,
)

SETTINGS = asdict(resolve_caller_settings(SMOLLM2, batch=8, threads=1, learning_rate=5e-3))


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> str:
    template = TEMPLATE.read_text(encoding="utf-8")
    return str(make_base(tmp_path_factory.mktemp("base"), template=template))


@pytest.fixture(scope="module")
def trained(base: str, trained_home: Path, train_rows: list[dict]) -> dict:
    _, path = write_job(trained_home, "caller", base, "set-1", SETTINGS, train_rows)
    return train_caller(read_job(path), lambda _: None)


def test_the_loss_falls_and_the_base_is_named(base: str, trained: dict, trained_home: Path) -> None:
    assert trained["loss_last"] < trained["loss_first"]
    assert trained["base"] == base
    assert [path.name for path in (trained_home / "models").iterdir()] == [trained["name"]]


def test_a_finished_caller_is_not_trained_again(
    base: str, trained: dict, trained_home: Path, train_rows: list[dict]
) -> None:
    _, path = write_job(trained_home, "caller", base, "set-1", SETTINGS, train_rows)
    assert train_caller(read_job(path), lambda _: pytest.fail("trained again"))["cached"]


def test_the_base_that_is_used_is_part_of_the_adapters_name() -> None:
    here = resolve_base(SMOLLM2)
    assert here == name_smollm2_base() == resolve_base(here)
    names = {make_model_name("caller", base, "set-2", SETTINGS) for base in (here, "smollm2:x")}
    assert len(names) == 2
    pinned = f"Qwen/Qwen3-0.6B@{'0' * 40}"
    assert resolve_base(pinned) == pinned


@pytest.mark.parametrize(
    ("base", "message"),
    [
        ("smollm2:0123", "other: its base smollm2:0123 is not the one of this package, smollm2:"),
        ("tiny", "^caller other was trained on the tiny base, which is gone; train again:"
                 " materialize caller_adapter$"),
    ],
)  # fmt: skip
def test_an_adapter_over_a_base_that_is_gone_is_refused(
    trained: dict, trained_home: Path, base: str, message: str
) -> None:
    folder = get_model_folder(trained_home, "other")
    shutil.copytree(get_model_folder(trained_home, trained["name"]), folder)
    (folder / CARD).write_text(json.dumps({**trained, "name": "other", "base": base}))
    with pytest.raises(TrainingFailed, match=message):
        load_caller(trained_home, "other")
    shutil.rmtree(folder)


def test_prompts_of_unequal_length_are_answered_alike_alone_and_together(
    trained: dict, trained_home: Path
) -> None:
    model, tokenizer, _ = load_caller(trained_home, trained["name"])
    prompts = ["<|im_start|>user\na", "<|im_start|>user\nfind two files called 'Blue Sky' now"]
    together = generate_completions(model, tokenizer, prompts, max_new=6)
    alone = [generate_completions(model, tokenizer, [prompt], max_new=6)[0] for prompt in prompts]
    assert together == alone


@pytest.mark.parametrize(
    ("base", "kept", "message"),
    [("/no/such/model", 4, "no such folder"), (SMOLLM2, 0, "training split is empty")],
)
def test_what_cannot_be_trained_is_named(
    tmp_path: Path, train_rows: list[dict], base: str, kept: int, message: str
) -> None:
    _, path = write_job(tmp_path, "caller", base, "s", SETTINGS, train_rows[:kept])
    with pytest.raises(TrainingFailed, match=message):
        train_caller(read_job(path), lambda _: None)


def test_a_base_without_a_chat_template_is_refused(tmp_path: Path, train_rows: list[dict]) -> None:
    bare = make_base(tmp_path / "bare", template=None)
    _, path = write_job(tmp_path, "caller", str(bare), "s", SETTINGS, train_rows)
    with pytest.raises(TrainingFailed, match="no chat template"):
        train_caller(read_job(path), lambda _: None)
