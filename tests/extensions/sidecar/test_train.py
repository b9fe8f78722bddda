"""A sidecar is trained as a process of its own would: from a job, over a small base."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from extensions.sidecar.revision_data import KnownContracts, build_rows, choose_rows
from extensions.sidecar.settings import (
    SMALL_GRPO,
    GrpoOptions,
    GrpoSettings,
    SidecarOptions,
    get_sidecar_profile,
)
from extensions.sidecar.train import train_sidecar
from tests.extensions.sidecar.examples import place
from tests.training.small_base import make_base
from training.adapter_table import check_adapter_rules, make_adapter_row
from training.caller.smollm2 import SMOLLM2
from training.runtime.model_store import TrainingFailed, get_model_folder, read_job, write_job

SETTINGS = asdict(replace(get_sidecar_profile(SMOLLM2), threads=1, batch=4))


def test_the_loss_falls_and_the_card_says_how(
    tmp_path: Path, train_rows: list[dict], pool: dict[str, Any]
) -> None:
    rows = choose_rows(build_rows(place(train_rows, pool, 24), KnownContracts()), 24)
    base = str(make_base(tmp_path / "base"))
    settings = {**SETTINGS, "learning_rate": 5e-3}
    _, path = write_job(tmp_path, "sidecar", base, "set-1", settings, list(map(vars, rows)))
    made = train_sidecar(read_job(path), lambda _: None)
    assert made["loss_last"] < made["loss_first"]
    assert (made["role"], made["base"], made["algorithm"]) == ("sidecar", base, "sft")
    assert made["pairs"] == len(rows) == made["lessons"]["rows"]


@pytest.mark.slow
@pytest.mark.parametrize("algorithm", ["sft+grpo", "grpo"])
def test_rewards_come_after_examples_or_alone(
    algorithm: Any,
    small_caller: Path,
    tmp_path: Path,
    train_rows: list[dict],
    pool: dict[str, Any],
) -> None:
    pytest.importorskip("trl")
    few = GrpoOptions(steps=2, group=2, prompts=2, pass_rows=4, max_new=8)
    settings = asdict(SidecarOptions(algorithm=algorithm, grpo=few).resolve(threads=1, batch=4))
    rows = choose_rows(build_rows(place(train_rows, pool, 12), KnownContracts()), 12)
    _, path = write_job(
        tmp_path, "sidecar", str(small_caller), "set-1", settings, list(map(vars, rows))
    )
    made = train_sidecar(read_job(path), lambda _: None)
    assert made["algorithm"] == algorithm
    assert make_adapter_row(made)["steps"] == (2 if algorithm == "grpo" else 3)
    rewarded = made["grpo"]
    assert len(rewarded["curve"]) == 2
    assert {"corrected", "copied", "harmed"} <= rewarded["before"].keys()
    assert check_adapter_rules(tmp_path, made)[2].passed
    folder = get_model_folder(tmp_path, made["name"])
    assert not (folder / "ref").exists()


def test_what_is_not_used_names_no_model() -> None:
    assert SidecarOptions(grpo=GrpoOptions(steps=3)).resolve().grpo is None
    small = SidecarOptions(algorithm="sft+grpo", grpo=GrpoOptions(steps=3)).resolve().grpo
    assert small == replace(SMALL_GRPO, steps=3)
    real = SidecarOptions(base="Qwen/Qwen3-4B@" + "0" * 40, algorithm="grpo").resolve()
    assert real.grpo == GrpoSettings()


def test_a_job_that_holds_no_rows_of_ours_is_named(small_caller: Path, tmp_path: Path) -> None:
    _, path = write_job(
        tmp_path, "sidecar", str(small_caller), "set-1", SETTINGS, [{"pair_id": "a"}]
    )
    with pytest.raises(TrainingFailed, match="make the data again"):
        train_sidecar(read_job(path), lambda _: None)


def test_a_real_base_has_the_callers_profile() -> None:
    real = SidecarOptions(base="Qwen/Qwen3-4B@" + "0" * 40).resolve(seed=3)
    assert (real.profile, real.rows, real.context, real.seed) == ("mcp-flow", 20_000, 8192, 3)
    small = SidecarOptions(rows=10).resolve()
    assert (small.profile, small.rows, small.algorithm) == ("smollm2", 10, "sft")
