"""Where a training script runs: a process here, a Ray job or a Kubernetes pod."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

SUBPROCESS, RAY, KUBERNETES = "subprocess", "ray", "kubernetes"
PLACES = (SUBPROCESS, RAY, KUBERNETES)


@dataclass(frozen=True)
class Place:
    """Where scripts run, and with what. `processes` of one script train together."""

    runs_on: str = SUBPROCESS
    processes: int = 1
    gpus: int = 0  # that a Ray job or a pod asks for
    ray_address: str | None = None
    image: str | None = None
    namespace: str | None = None
    python: str = "python"  # on the other machine; here it is this one
    pod: Mapping[str, Any] = field(default_factory=dict)  # base pod spec: volumes, node selector
