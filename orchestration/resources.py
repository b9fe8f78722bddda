"""Resources: what the factories make of the settings, when a run starts."""

import os
import shlex
import shutil
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import lru_cache, partial
from pathlib import Path
from typing import Any

import dagster as dg
from dagster._core.errors import DagsterExecutionInterruptedError, DagsterPipesExecutionError

from orchestration.factories import (
    make_crawl_policies,
    make_embedder,
    make_executor,
    make_launcher,
    make_trainer,
    make_world_tasks,
    make_writer,
    open_warehouse,
)
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings
from orchestration.settings.schema import RAY, SUBPROCESS, TrainingPlace
from warehouse.extensions import load_hook
from warehouse.home import is_own_instance
from warehouse.store import Warehouse

ROOT = Path(__file__).resolve().parents[1]
# The run's log shows the loss; progress bars and library notices would hide it.
QUIET = {
    "HF_HUB_DISABLE_PROGRESS_BARS": "1",
    "TRANSFORMERS_VERBOSITY": "error",
    "PYTHONWARNINGS": "ignore",
    "TQDM_DISABLE": "1",
}
_GPU = "nvidia.com/gpu"
_KILLED = (
    " (killed from outside, most often for want of memory: lower pass_tokens, batch or context; the"
    " next run goes on from the last checkpoint)"
)


class NoSuchPlace(ValueError):
    """A place that is unknown, or whose package or setting is missing; the message says which."""


class TrainingScripts:
    def __init__(self, place: TrainingPlace | None = None, client: Any = None) -> None:
        self.place = place or TrainingPlace()
        self._client = client or open_client(self.place)

    def launch(self, context: Any, script: str, job: Path) -> dict[str, Any]:
        """Runs the module `script` on `job`, loss lines in the run's log; returns its last message,
        the card. Raises DagsterPipesExecutionError with the code and a hint."""
        if self.place.bucket is None:
            return self._run(context, script, job)
        train = load_hook("train_over_bucket")
        return train(self.place.bucket, job, partial(self._run, context, script, job))

    def _run(
        self, context: Any, script: str, job: Path, carrier: Sequence[str] = ()
    ) -> dict[str, Any]:
        invocation = build_invocation(self.place, script, job, carrier)
        try:
            ran = self._client.run(context=context, **invocation)
        except (DagsterExecutionInterruptedError, NoSuchPlace):
            raise
        except Exception as error:  # each client has errors of its own; assets know one
            message = str(error) or type(error).__name__
            hint = _KILLED if message.rstrip(".").endswith((" -9", " 137")) else ""
            raise DagsterPipesExecutionError(
                f"{script} on {self.place.runs_on}: {message}{hint}"
            ) from error
        cards = [each for each in ran.get_custom_messages() if isinstance(each, dict)]
        return cards[-1] if cards else {}


def open_client(place: TrainingPlace) -> Any:
    """The Pipes client of a place. Raises NoSuchPlace naming the package or setting it lacks."""
    if place.runs_on == SUBPROCESS:
        return dg.PipesSubprocessClient()
    if place.runs_on == RAY:
        try:
            from dagster_ray import PipesRayJobClient  # pyright: ignore[reportMissingImports]
        except ImportError as error:
            raise _explain_lack("dagster-ray", "'toolmill[ray]'", error) from error
        return PipesRayJobClient(address=place.ray_address)
    if not (place.image or place.pod.get("containers")):
        raise NoSuchPlace(
            "training runs on kubernetes but no image is set: expected a container image with"
            " toolmill[train] in training.place.image"
        )
    try:
        from dagster_k8s import PipesK8sClient  # pyright: ignore[reportMissingImports]
    except ImportError as error:
        raise _explain_lack("dagster-k8s", "dagster-k8s==0.29.27", error) from error
    return PipesK8sClient()


def build_invocation(
    place: TrainingPlace, script: str, job: Path, carrier: Sequence[str] = ()
) -> dict[str, Any]:
    """carrier: words for Python that come before the command, which they run."""
    here = place.runs_on == SUBPROCESS
    python = sys.executable if here else place.python
    command = _build_command(python, place.processes, script, job)
    # A script alone ends with its run; the launcher of several needs to be told to.
    wrap = shutil.which("setpriv") if here and place.processes > 1 else None
    command = [wrap, "--pdeathsig", "KILL", *command] if wrap else command
    command = [python, *carrier, *command] if carrier else command
    if here:
        return {"command": command, "cwd": str(ROOT), "env": QUIET}
    if place.runs_on == RAY:
        submitted: dict[str, Any] = {
            "entrypoint": shlex.join(command),
            "runtime_env": {"env_vars": dict(QUIET)},
        }
        if place.gpus:
            submitted["entrypoint_num_gpus"] = place.gpus
        return {"submit_job_params": submitted}
    invocation: dict[str, Any] = {"command": command, "env": dict(QUIET)}
    if place.namespace:
        invocation["namespace"] = place.namespace
    spec = dict(place.pod)
    containers = [dict(each) for each in spec.get("containers", [{}])]
    if place.gpus:
        limits = {**containers[0].get("resources", {}).get("limits", {}), _GPU: str(place.gpus)}
        containers[0]["resources"] = {**containers[0].get("resources", {}), "limits": limits}
    return {**invocation, "image": place.image, "base_pod_spec": {**spec, "containers": containers}}


def _build_command(python: str, processes: int, script: str, job: Path) -> list[str]:
    several = ["-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={processes}"]
    return [python, *(several if processes > 1 else []), "-m", script, str(job)]


def _explain_lack(package: str, install: str, error: ImportError) -> NoSuchPlace:
    return NoSuchPlace(
        f"training runs elsewhere but {package} is not installed ({error}):"
        f" .venv/bin/uv pip install {install}, or set training.place.runs_on to subprocess"
    )


HOME_TAG = "toolmill/home"  # of runs in an instance of several homes; as metadata, of assets


def build_default_resources() -> Mapping[str, Any]:
    """Every resource of the code location, made from the settings when a run starts."""
    return {
        "warehouse": dg.ResourceDefinition(_make_warehouse),
        "crawlers": _make_resource(make_crawl_policies),
        "launcher": _make_resource(make_launcher),
        "embedder": _make_resource(make_embedder),
        "writer": _make_resource(  # commands that judge or read need no worlds
            lambda settings: replace(make_writer(settings), worlds=make_world_tasks(settings))
        ),
        "executor": _make_resource(make_executor),
        "reliability_policy": _make_resource(lambda settings: settings.reliability),
        "trainer": _make_resource(make_trainer),
        "scripts": _make_resource(lambda settings: TrainingScripts(settings.training.place)),
    }


def _make_warehouse(context: dg.InitResourceContext) -> Warehouse:
    """The stores of one run, tagged with its home where other homes share the Dagster instance."""
    settings = _load_for(context)
    instance, run = context.instance, context.run_id
    root = Path(instance.root_directory) if instance else None
    if instance and root and run and not is_own_instance(root, settings.state_path()):
        instance.add_run_tags(run, {HOME_TAG: str(settings.home_path())})
    return open_warehouse(settings, run or "-")


def _make_resource(build: Callable[[Settings], Any]) -> dg.ResourceDefinition:
    def made(context: dg.InitResourceContext) -> Any:
        return build(_load_for(context))

    return dg.ResourceDefinition(made)


def _load_for(context: dg.InitResourceContext) -> Settings:
    """The settings as they were when the run's first resource was made."""
    if context.run_id is None:
        return load_settings()
    return _load_once(context.run_id, hash(frozenset(os.environ.items())))


@lru_cache(maxsize=1)
def _load_once(run: str, environment: int) -> Settings:
    return load_settings()
