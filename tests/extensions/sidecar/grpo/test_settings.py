"""Batches that do not come out even are refused by name, also out of a job's file."""

import json
from dataclasses import asdict

import pytest

from extensions.sidecar.settings import SMALL_GRPO, GrpoSettings
from training.runtime.model_store import TrainingFailed, read_hyper_parameters


def test_settings_of_a_job_are_read_back() -> None:
    held = json.loads(json.dumps(asdict(SMALL_GRPO)))
    assert read_hyper_parameters("sidecar", GrpoSettings, held) == SMALL_GRPO


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"pass_rows": 5}, "divisor of prompts"),
        ({"group": 1}, "group"),
        ({"beta": -1}, "beta"),
        ({"temperature": 0}, "temperature"),
        ({"colour": 1}, "colour"),
    ],
)
def test_what_cannot_be_trained_with_is_refused(changed: dict[str, object], named: str) -> None:
    with pytest.raises(TrainingFailed, match=named):
        read_hyper_parameters("sidecar", GrpoSettings, changed)
