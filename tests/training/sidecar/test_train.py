"""A sidecar is trained as a process of its own would: from a job, over the shipped tiny base."""

from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

from tests.training.sidecar.examples import place
from training.caller.tiny.base import TINY
from training.runtime.model_store import TrainingFailed, read_job, write_job
from training.sidecar.data.build import Known, build_rows, choose_rows
from training.sidecar.rows import write_row
from training.sidecar.settings import SidecarOptions, get_sidecar_profile
from training.sidecar.train import train_sidecar

SETTINGS = asdict(replace(get_sidecar_profile(TINY), threads=1, batch=4))


def test_the_loss_falls_and_the_card_says_how(
    tmp_path: Path, train_rows: list[dict], pool: dict[str, Any]
) -> None:
    rows = choose_rows(build_rows(place(train_rows, pool, 24), Known()), 24)
    _, path = write_job(tmp_path, "sidecar", TINY, "set-1", SETTINGS, list(map(write_row, rows)))
    made = train_sidecar(read_job(path), lambda _: None)
    assert made["loss_last"] < made["loss_first"]
    assert (made["role"], made["base"], made["algorithm"]) == ("sidecar", TINY, "sft")
    assert made["pairs"] == len(rows) == made["lessons"]["rows"]


def test_a_job_that_holds_no_rows_of_ours_is_named(tmp_path: Path) -> None:
    _, path = write_job(tmp_path, "sidecar", TINY, "set-1", SETTINGS, [{"pair_id": "a"}])
    with pytest.raises(TrainingFailed, match="make the data again"):
        train_sidecar(read_job(path), lambda _: None)


def test_a_real_base_has_the_callers_profile() -> None:
    real = SidecarOptions(base="Qwen/Qwen3-4B@" + "0" * 40).resolve(seed=3)
    assert (real.profile, real.rows, real.context, real.seed) == ("mcp-flow", 20_000, 8192, 3)
    tiny = SidecarOptions(rows=10).resolve()
    assert (tiny.profile, tiny.rows, tiny.algorithm) == ("tiny", 10, "sft")
