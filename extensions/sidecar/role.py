"""The sidecar as a role: its gates and its training job from the settings."""

from typing import Any

from extensions.sidecar.settings import ROLE, SidecarOptions
from training.gates import Gate, Json, check_gain, check_no_worse
from training.role import ModelRole

LADDER = "ladder"  # the repair ladder alone serves until a sidecar is promoted


def _check_gates(summary: Json) -> list[Gate]:
    return [check_gain(summary.get("gain")), check_no_worse(summary.get("kept"), "kept")]


def _describe_job(options: SidecarOptions | None, device: str, seed: int) -> tuple[str, Any]:
    chosen = options or SidecarOptions()
    return chosen.base, chosen.resolve(device=device, seed=seed)


SIDECAR = ModelRole(ROLE, LADDER, _check_gates, describe_job=_describe_job)
