"""A retriever's training that is killed, damaged, starved or misled goes on, or says why not."""

import errno
import json
import shutil
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.vectors.encoders.minilm import find_general_folder, make_general_name
from assets.vectors.encoders.weights import BASE
from tests.support.cases import cases
from tests.training.small_base import small_bert, stand_in_for_minilm
from training.retriever.gradient_cache import CachedText, EncoderPasses
from training.retriever.settings import NONE, RetrieverSettings, read_settings
from training.retriever.train import (
    begin_course,
    resolve_retriever_base,
    resolve_start,
    train_retriever,
)
from training.runtime import checkpoints
from training.runtime.model_store import (
    TrainingFailed,
    TrainingJob,
    get_model_folder,
    read_job,
    read_model_card,
    write_job,
)

SETTINGS = RetrieverSettings(
    epochs=3, tools=6, first_layer=1, threads=1, checkpoint_steps=2, device="cpu"
)


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return small_bert(tmp_path_factory.mktemp("bases") / "small")


@pytest.fixture
def base(small: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    return stand_in_for_minilm(monkeypatch, small)


def job(home: Path, base: str, rows: list, settings: RetrieverSettings = SETTINGS) -> Any:
    _, path = write_job(home, "retriever", base, "set", asdict(settings), rows)
    return read_job(path)


def train(job: TrainingJob) -> tuple[dict[str, Any], list[int]]:
    """(card, steps that were made)."""
    steps: list[int] = []
    return train_retriever(job, lambda at: steps.append(at["step"])), steps


def weights(home: Path, name: str) -> dict[str, np.ndarray]:
    from safetensors.numpy import load_file

    return load_file(str(get_model_folder(home, name) / "adapter_model.safetensors"))


def killed_after(step: int) -> Any:
    def report(at: dict) -> None:
        if at["step"] == step:
            raise KeyboardInterrupt

    return report


@pytest.fixture(scope="module")
def whole(small: Path, train_rows: list, tmp_path_factory: pytest.TempPathFactory) -> tuple:
    """(home, card) of a training that nothing stopped."""
    home = tmp_path_factory.mktemp("whole")
    with pytest.MonkeyPatch.context() as patch:
        base = stand_in_for_minilm(patch, small)
        return home, train_retriever(job(home, base, train_rows), lambda _: None)


def test_a_killed_training_ends_with_the_same_weights(whole, base, train_rows, tmp_path):
    home, made = whole
    asked = job(tmp_path, base, train_rows)
    with pytest.raises(KeyboardInterrupt):
        train_retriever(asked, killed_after(5))
    kept = shutil.copytree(tmp_path, tmp_path.with_name("other"))
    again, steps = train(job(tmp_path, base, train_rows))
    assert steps[0] == 5  # the step after the checkpoint of step 4
    assert again["steps"] == made["steps"] == steps[-1] == len(again["losses"])
    assert again["losses"] == made["losses"]
    ours, theirs = weights(tmp_path, again["name"]), weights(home, made["name"])
    assert all(np.array_equal(ours[key], theirs[key]) for key in theirs)
    assert again["tokens"] == made["tokens"]
    assert not checkpoints.get_checkpoint_root(tmp_path, again["name"]).exists()
    assert train(replace(asked, home=kept, rows=train_rows[:-4]))[1][0] == 1


def test_a_full_disk_is_said_and_what_was_kept_stays(small, train_rows, tmp_path, monkeypatch):
    import torch

    base, save = stand_in_for_minilm(monkeypatch, small), torch.save
    asked = job(tmp_path, base, train_rows)
    monkeypatch.setattr(torch, "save", full_after(1, save))
    with pytest.raises(TrainingFailed, match=r"disk full.*goes on after step 2"):
        train_retriever(asked, lambda _: None)
    monkeypatch.setattr(torch, "save", save)
    monkeypatch.setattr("training.retriever.train.save_model", full_after(0, None))
    with pytest.raises(TrainingFailed, match=r"disk full while saving.*goes on after step"):
        train_retriever(asked, lambda _: None)
    assert read_model_card(tmp_path, asked.name) is None
    monkeypatch.undo()
    stand_in_for_minilm(monkeypatch, small)
    assert train(asked)[1][0] > 2


def full_after(times: int, real: Any) -> Any:
    left = [times]

    def write(*given: Any) -> Any:
        left[0] -= 1
        if left[0] < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        return real(*given)

    return write


def test_too_little_memory_is_advised_on_and_state_kept(base, train_rows, tmp_path, monkeypatch):
    import torch

    asked, real, calls = job(tmp_path, base, train_rows), EncoderPasses.add_gradients, []

    def backward(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 4:
            raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB")
        return real(*given)

    monkeypatch.setattr(EncoderPasses, "add_gradients", backward)
    with pytest.raises(TrainingFailed, match=r"Lower hold_tokens.*goes on after step 2"):
        train_retriever(asked, lambda _: None)
    less = replace(SETTINGS, hold_tokens=64)  # the fix that is named goes on from there
    starved = job(tmp_path, base, train_rows, less)
    assert starved.name == asked.name
    assert train(starved)[1][0] == 3


def assert_one_gradient(
    home: Path, base: str, rows: list, list_items: Any, chosen: RetrieverSettings
) -> None:
    """Texts that are held one by one or all at a time give the same loss and gradients."""
    import torch

    found = []
    for hold in (1, 100_000):
        settings = replace(chosen, hold_tokens=hold)
        asked = job(home, resolve_retriever_base(base), rows, settings)
        course = begin_course(asked, asked.base, rows, settings)
        for name, weight in course.model.named_parameters():
            if "lora_B" in name:  # zero at first: nothing of the rest would be seen
                torch.nn.init.normal_(weight, generator=torch.Generator().manual_seed(1))
        torch.manual_seed(5)
        loss, tokens = course.passes.add_gradients(
            list_items(course.passes), lambda flat: (flat @ flat[-3:].T).exp().sum()
        )
        grads = [w.grad for w in course.model.parameters() if w.grad is not None]
        assert any(float(grad.abs().max()) > 1e-3 for grad in grads)
        found.append((loss, tokens, grads))
    (one, n, first), (other, m, second) = found
    assert n == m
    assert torch.allclose(one, other)
    assert all(torch.allclose(a, b, atol=1e-4) for a, b in zip(first, second, strict=True))


def test_what_is_computed_twice_gives_the_gradient_of_one_pass(base, train_rows, tmp_path):
    items = [CachedText(row["instruction"], 48) for row in train_rows]
    assert_one_gradient(tmp_path, base, train_rows, lambda _: items, SETTINGS)


def test_what_is_kept_of_the_frozen_layers_changes_nothing(base, train_rows, tmp_path):
    less, more = (
        train(
            job(tmp_path / str(size), base, train_rows, replace(SETTINGS, cache_mb=size, epochs=1))
        )
        for size in (0, 64)
    )
    assert less[0]["losses"] == pytest.approx(more[0]["losses"], abs=1e-3)


def test_a_training_starts_from_the_shipped_adapter_or_says_why_not(small, train_rows, tmp_path):
    from peft import get_peft_model_state_dict
    from safetensors.torch import load_file

    start, base = resolve_start("minilm"), f"sentence-transformers:{small}"
    assert start == make_general_name()
    chosen = RetrieverSettings(start=start, threads=1, device="cpu")
    course = begin_course(job(tmp_path, BASE, train_rows, chosen), BASE, train_rows[:4], chosen)
    held = load_file(str(find_general_folder() / "adapter_model.safetensors"))
    own = get_peft_model_state_dict(course.model)
    assert own.keys() == held.keys()
    assert all(own[name].equal(held[name]) for name in held)
    shape = json.loads((find_general_folder() / "adapter_config.json").read_text())
    assert (shape["r"], shape["lora_alpha"]) == (chosen.rank, chosen.alpha)
    assert resolve_start(base) == NONE
    for odd, of, message in (
        (replace(chosen, rank=4), BASE, "rank is 4, and the shipped adapter.* has 16"),
        (replace(chosen, alpha=8), BASE, "alpha is 8, and the shipped adapter.* has 32"),
        (replace(chosen, start="general@0123456789abcdef"), BASE, f"expected {start}"),
        (replace(chosen, first_layer=1), base, f"expected {start} over {BASE}"),
    ):
        with pytest.raises(TrainingFailed, match=message):
            begin_course(job(tmp_path, of, train_rows, odd), of, train_rows[:4], odd)


def test_a_base_that_changed_or_cannot_be_trained_is_refused(tmp_path):
    folder = small_bert(tmp_path / "small")
    named = resolve_retriever_base(f"sentence-transformers:{folder}")
    assert resolve_retriever_base(named) == named
    assert resolve_retriever_base("minilm") == "minilm-l6-v2"
    with pytest.raises(TrainingFailed, match=r"base .*small: expected minilm or sentence-"):
        resolve_retriever_base(str(folder))
    small_bert(shutil.rmtree(folder) or folder, seed=4)
    with pytest.raises(TrainingFailed, match=r"its files are .*, expected .*changed since"):
        resolve_retriever_base(named)


@cases(
    "changed, message",
    ({"epochs": 0}, "epochs is 0"),
    ({"tools": 2.5}, "tools is 2.5"),
    ({"temperature": 0}, "temperature is 0"),
    ({"distractors": "soft"}, "expected 'hard' or 'random'"),
    ({"lr": 1}, "'lr' is unknown"),
)
def test_a_setting_that_cannot_be_meant_is_named(changed, message):
    with pytest.raises(TrainingFailed, match=message):
        read_settings(changed)


def test_an_empty_split_or_other_tasks_alone_are_nothing_to_learn(base, train_rows, tmp_path):
    for rows in ([], train_rows[:1]):
        with pytest.raises(TrainingFailed, match=f"{len(rows)} training pairs of fewer than two"):
            train_retriever(job(tmp_path, base, rows), lambda _: None)
    parallel = [{**row, "task": "parallel"} for row in train_rows]
    with pytest.raises(TrainingFailed, match="task parallel"):
        train_retriever(job(tmp_path, base, parallel), lambda _: None)
