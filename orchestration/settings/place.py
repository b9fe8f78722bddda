"""Where a training script runs: a process here, a Ray job or a Kubernetes pod."""

from collections.abc import Mapping
from dataclasses import field
from typing import Annotated, Any, Literal

from pydantic import ConfigDict, Field
from pydantic.dataclasses import dataclass

SUBPROCESS, RAY, KUBERNETES = "subprocess", "ray", "kubernetes"


@dataclass(frozen=True, config=ConfigDict(extra="forbid"))
class Place:
    """Where training scripts run, and with what."""

    runs_on: Literal["subprocess", "ray", "kubernetes"] = SUBPROCESS
    processes: Annotated[int, Field(ge=1, description="that train one model together")] = 1
    gpus: Annotated[int, Field(ge=0, description="that a Ray job or a pod asks for")] = 0
    ray_address: Annotated[str | None, Field(description="of the Ray cluster's job server")] = None
    image: Annotated[str | None, Field(description="of pods, with toolmill[train]")] = None
    namespace: Annotated[str | None, Field(description="of Kubernetes pods")] = None
    python: Annotated[str, Field(description="on the other machine; here it is this one")] = (
        "python"
    )
    pod: Annotated[
        Mapping[str, Any], Field(description="base pod spec: volumes, node selector")
    ] = field(default_factory=dict)
