"""The course of a caller's training: killed, damaged, starved and misled, on a small local base."""

import json
import os
import resource
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any
from unittest.mock import Mock

import pytest

from tests.support.cases import cases
from tests.support.python_process import PythonProcess
from tests.training.small_base import TEMPLATE, make_base, make_rows
from training.caller.bases import load_caller
from training.caller.generation import generate_completions
from training.caller.settings import resolve_caller_settings
from training.caller.train import train_caller
from training.runtime import checkpoints
from training.runtime.model_store import (
    TrainingFailed,
    TrainingJob,
    get_model_folder,
    read_job,
    read_model_card,
    write_job,
)

CHOSEN: dict[str, Any] = {"learning_rate": 5e-3, "rank": 4, "batch": 2, "accumulate": 2}
CHOSEN |= {"threads": 1, "context": 400, "candidates": 3}
ROWS = make_rows(24)  # 6 updates of 4 rows an epoch
FEW = ROWS[:8]  # 2 updates


@pytest.fixture(scope="module")
def base(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_base(tmp_path_factory.mktemp("base"))


def job_of(home: Path, base: Path | str, rows: list[dict] = ROWS, **changed: Any) -> Path:
    values = asdict(resolve_caller_settings("local", **CHOSEN | {"checkpoint_steps": 2} | changed))
    return write_job(home, "caller", str(base), "set", values, rows)[1]


def train(path: Path, report: Callable[[dict], None] = lambda _: None) -> dict[str, Any]:
    return train_caller(read_job(path), report)


def weights(home: Path, made: dict[str, Any]) -> bytes:
    return (get_model_folder(home, made["name"]) / "adapter_model.safetensors").read_bytes()


@pytest.fixture(scope="module")
def whole(base: Path, tmp_path_factory: pytest.TempPathFactory) -> tuple[bytes, dict[str, Any]]:
    """An uninterrupted training: (weights, card)."""
    home = tmp_path_factory.mktemp("whole")
    made = train(job_of(home, base))
    return weights(home, made), made


@pytest.fixture(scope="module")
def still(base: Path, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The card of a short training without dropout, whose dice differ by how it is packed."""
    return train(job_of(tmp_path_factory.mktemp("still"), base, FEW, dropout=0.0))


def stop_at(step: int, error: BaseException) -> Callable[[dict], None]:
    def report(figures: dict) -> None:
        if figures.get("step") == step:
            raise error

    return report


def test_the_card_says_what_was_learned_from_what_and_how(whole):
    _, made = whole
    assert made["profile"] == "mcp-flow"
    assert made["steps"] == len(made["losses"]) == 6
    assert made["loss_last"] < made["loss_first"]
    assert made["lessons"]["rows"] == 24
    assert made["lessons"]["completion_tokens"] > 24
    assert made["tokens"] == made["lessons"]["prompt_tokens"] + made["lessons"]["completion_tokens"]
    assert (made["packing"], made["packing_efficiency"], made["resumed_from"]) == (True, 1.0, None)
    assert made["base_identity"]["vocab_size"] > 0
    assert {"tokens_per_s", "step_ms", "peak_mb", "passes", "processes"} <= made.keys()


@cases(
    "means",
    *({"packing": False}, {"pass_tokens": 200}),
    *({"gradient_checkpointing": True}, {"attention": "sdpa"}),
)
def test_however_it_is_trained_the_same_is_learned(base, tmp_path, still, means):
    made = train(job_of(tmp_path, base, FEW, dropout=0.0, **means))
    assert made["name"] == still["name"]
    assert made["packing"] is means.get("packing", True)
    assert made["losses"] == pytest.approx(still["losses"], abs=2e-4)


def test_killed_mid_epoch_it_goes_on_to_the_same_weights(base, tmp_path, whole):
    path = job_of(tmp_path, base)
    root = checkpoints.get_checkpoint_root(tmp_path, read_job(path).name)
    code = (  # stands still after the fifth update, so that the kill never comes too late
        "import sys, time\n"
        "from pathlib import Path\n"
        "from training.caller.train import train_caller\n"
        "from training.runtime.model_store import read_job\n"
        "wait = lambda figures: time.sleep(600) if figures.get('step') == 5 else None\n"
        "train_caller(read_job(Path(sys.argv[1])), wait)\n"
    )
    started = PythonProcess([sys.executable, "-c", code, str(path)], start_new_session=True)
    deadline = time.monotonic() + 120
    while checkpoints.find_newest_checkpoint(root) is None or not (root / "step-00000004").exists():
        assert started.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.1)
    os.killpg(started.pid, signal.SIGKILL)
    started.wait()
    assert read_model_card(tmp_path, root.name) is None
    steps: list[int] = []
    made = train(path, lambda figures: steps.append(figures["step"]) if "step" in figures else None)
    assert steps == [5, 6]
    assert (made["resumed_from"], made["steps"], made["losses"]) == (4, 6, whole[1]["losses"])
    assert weights(tmp_path, made) == whole[0]
    assert not root.exists()


def test_a_damaged_newest_checkpoint_gives_way_to_the_one_before(base, tmp_path, whole):
    path = job_of(tmp_path, base)
    with pytest.raises(KeyboardInterrupt):
        train(path, stop_at(5, KeyboardInterrupt()))
    root = checkpoints.get_checkpoint_root(tmp_path, read_job(path).name)
    assert len(list(root.iterdir())) == 2
    [damaged] = (root / "step-00000004").rglob("optimizer.pt")
    damaged.write_bytes(damaged.read_bytes()[:-100])
    notes: list[str] = []
    made = train(path, lambda figures: notes.append(figures["note"]) if "note" in figures else None)
    assert made["resumed_from"] == 2
    assert "step-00000004 is passed over" in notes[0]
    assert "goes on after step 2" in notes[1]
    assert made["notes"] == notes
    assert weights(tmp_path, made) == whole[0]


def test_a_loss_that_is_not_a_number_is_told_and_good_state_stays(base, tmp_path):
    path = job_of(tmp_path, base, learning_rate=1e30, checkpoint_steps=1, warmup=0.5)
    with pytest.raises(TrainingFailed, match=r"loss is nan at step \d.*lower learning_rate"):
        train(path)
    assert read_model_card(tmp_path, read_job(path).name) is None
    assert not list((tmp_path / "models").glob("*"))


def test_too_little_memory_is_told_with_advice_and_state_stays(base, tmp_path):
    import torch

    path = job_of(tmp_path, base)
    advice = r"out of memory on cpu.*pass held up to \d rows of \d+ tokens.*pass_tokens.*context"
    for raised in (
        torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 20.00 GiB"),
        RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried"),
        MemoryError(),
    ):  # the second and the third go on after the checkpoint of the first
        with pytest.raises(TrainingFailed, match=advice + ".*goes on after step 2"):
            train(path, stop_at(3, raised))
    root = checkpoints.get_checkpoint_root(tmp_path, read_job(path).name)
    assert checkpoints.find_newest_checkpoint(root)


def test_a_disk_that_fills_up_mid_way_is_told_and_goes_on_later(base, tmp_path, whole):
    path = job_of(tmp_path, base)
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)

    def fills(figures: dict) -> None:
        if figures.get("step") == 3:  # optimizer.pt is larger than this, what lies there is not
            resource.setrlimit(resource.RLIMIT_FSIZE, (12_000, hard))

    try:
        with pytest.raises(TrainingFailed, match=r"disk full: checkpoint of step 4.*after step 2"):
            train(path, fills)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    root = checkpoints.get_checkpoint_root(tmp_path, read_job(path).name)
    assert [each.name for each in root.iterdir()] == ["step-00000002"]
    made = train(path)
    assert made["resumed_from"] == 2
    assert weights(tmp_path, made) == whole[0]


def test_a_finished_adapter_that_fits_no_disk_is_not_trained_again(base, tmp_path, monkeypatch):
    path, full = job_of(tmp_path, base), Mock(side_effect=OSError(28, "No space left on device"))
    with monkeypatch.context() as patched:
        patched.setattr("training.caller.train.save_model", full)
        with pytest.raises(TrainingFailed, match="the finished adapter did not fit"):
            train(path)
    steps: list[dict] = []
    made = train(path, steps.append)
    assert [figures for figures in steps if "step" in figures] == []
    assert made["resumed_from"] == made["steps"] == 6


@pytest.fixture(scope="module")
def adapted(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, dict[str, Any]]:
    """(home, card) of a short training on a base of its own, `own`."""
    home = tmp_path_factory.mktemp("adapted")
    return home, train(job_of(home, make_base(home / "own"), FEW))


def test_an_adapter_for_another_base_is_refused_by_name_with_a_card_and_without(adapted, tmp_path):
    home, made = adapted
    folder = get_model_folder(home, made["name"])
    model, tokenizer, _ = load_caller(home, made["name"])
    assert len(generate_completions(model, tokenizer, ["[user] find\n"], max_new=3)) == 1
    folder = shutil.copytree(folder, tmp_path / "models" / made["name"])
    wide = str(make_base(tmp_path / "wide", width=64))
    (folder / "model.json").write_text(json.dumps({**made, "base_name": wide}))
    with pytest.raises(TrainingFailed, match=r"own'.*another model: hidden_size 64 instead of 32"):
        load_caller(tmp_path, made["name"])
    from training.caller.bases import load_adapter

    folder = shutil.copytree(get_model_folder(home, made["name"]), tmp_path / "adapter")
    (folder / "model.json").unlink()
    assert load_adapter(folder)[0]
    with pytest.raises(TrainingFailed, match=r"does not go onto .*wide.*it names .* as its base"):
        load_adapter(folder, wide)
    with pytest.raises(TrainingFailed, match="holds no adapter"):
        load_adapter(tmp_path)


def test_a_tokenizer_without_a_pad_token_trains_all_the_same(tmp_path):
    assert train(job_of(tmp_path, make_base(tmp_path / "bare", pad=False), FEW))["steps"] == 2


@cases("template", None, TEMPLATE.replace("tools", "nothing"))
def test_a_tokenizer_that_shows_no_tools_is_refused(tmp_path, template):
    bare = make_base(tmp_path / "bare", template=template)
    with pytest.raises(TrainingFailed, match="chat template"):
        train(job_of(tmp_path, bare))


def test_a_long_row_loses_distractors_and_one_too_long_is_counted(base, tmp_path):
    rows = [dict(row) for row in FEW]
    rows[0]["instruction"] = "Please find the file " + "with these words " * 200
    made = train(job_of(tmp_path, base, rows, context=260))
    assert made["lessons"]["too_long"] == 1
    assert made["lessons"]["dropped_distractors"] > 0
    assert made["lessons"]["tokens_max"] <= 260
    with pytest.raises(TrainingFailed, match="none of 8 training rows fits context 20"):
        train(job_of(tmp_path, base, rows, context=20))


@cases(
    "changed, message",
    ({"rnak": 4}, "'rnak' is unknown"),
    ({"batch": 0}, "batch is 0"),
    ({"learning_rate": -1}, "learning_rate is -1"),
    ({"dropout": 1.0}, "dropout is 1.0"),
    ({"candidates": 0}, "candidates is 0"),
    ({"targets": ("no_such_layer",)}, "no layers named no_such_layer"),
)
def test_a_setting_that_cannot_be_used_is_named(base, tmp_path, changed, message):
    values = json.loads(json.dumps(asdict(resolve_caller_settings("local", **CHOSEN)) | changed))
    job = TrainingJob("caller", "n", tmp_path, "set", str(base), values, ROWS)
    with pytest.raises(TrainingFailed, match=message):
        train_caller(job, lambda _: None)


@pytest.mark.slow
def test_two_processes_learn_what_one_does(base, tmp_path):
    alone = train(job_of(tmp_path / "one", base, dropout=0.0))
    path = job_of(tmp_path / "two", base, dropout=0.0)
    command = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    ran = subprocess.run(
        [*command, "-m", "training.caller.script", str(path)],
        capture_output=True, text=True, timeout=300,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr[-2000:]
    made = read_model_card(tmp_path / "two", read_job(path).name)
    assert made
    assert made["processes"] == 2
    assert made["losses"] == pytest.approx(alone["losses"], abs=2e-4)
    assert len(ran.stdout.strip().splitlines()) == 1  # one process tells
