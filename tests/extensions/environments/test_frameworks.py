"""The exported package in the frameworks that it is for, each in an environment of its own.

Their packages come from the index once; nothing that is played then leaves loopback.
"""

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from extensions.environments.export import export_environment
from extensions.environments.tasks import select_tasks
from tests.extensions.environments.release_home import fill_home
from training.releases.release import find_release
from warehouse.home import claim_home
from warehouse.store import Warehouse

NAME = "some_env"
PINNED = {
    "openenv": ["openenv==0.10.0", "rfc8785==0.1.4"],
    "verifiers": ["verifiers==0.4.0", "rfc8785==0.1.4"],
}
HERE = Path(__file__).parent


@pytest.fixture
def out(warehouse: Warehouse, tmp_path: Path) -> Path:
    claim_home(warehouse.home)
    release = find_release(warehouse.home, fill_home(warehouse))
    made = select_tasks(warehouse, release["training_set"])
    export_environment(made, tmp_path / NAME, release, None)
    return tmp_path / NAME


@pytest.fixture(scope="module", params=list(PINNED))
def framework(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Any:
    """(name, interpreter) of an environment with one framework."""
    folder = tmp_path_factory.mktemp(request.param) / "venv"
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    install = [str(folder / "bin/pip"), "install", "-q", *PINNED[request.param]]
    subprocess.run(install, check=True, timeout=900, capture_output=True)
    return request.param, folder / "bin/python"


def play(python: Path, script: str, out: Path, *arguments: str) -> dict[str, Any]:
    """The last line that a script beside this file prints."""
    paths = f"{out.parent}{os.pathsep}{HERE}"
    away = {"HF_HUB_OFFLINE": "1", "GRADIO_ANALYTICS_ENABLED": "False", "HOME": str(out.parent)}
    done = subprocess.run(
        [str(python), str(HERE / script), NAME, *arguments],
        env={**os.environ, "PYTHONPATH": paths, **away},
        cwd=out.parent,
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    assert done.returncode == 0, done.stderr[-3_000:]
    return json.loads(done.stdout.splitlines()[-1])


@pytest.mark.slow
@pytest.mark.registry
def test_their_own_evaluators_tell_reference_from_perturbed(framework: Any, out: Path) -> None:
    name, python = framework
    if name == "verifiers":
        rewards = {
            kind: play(python, "verifiers_rollouts.py", out, kind, "10")
            for kind in ("reference", "perturbed")
        }
        assert [run["errors"] for run in rewards.values()] == [[], []]
        assert set(rewards["reference"]["rewards"].values()) == {1.0}
        assert len(rewards["perturbed"]["rewards"]) == 4
        assert max(rewards["perturbed"]["rewards"].values()) < 1
        assert rewards["perturbed"]["misses"] > 0
        return
    told = play(python, "openenv_rollouts.py", out)
    assert told["scores"]["reference"] == [1.0] * 4
    assert len(told["scores"]["perturbed"]) == 4
    assert max(told["scores"]["perturbed"]) < 1
    assert told["over_mcp"]["done"] is True
    ended, other = told["states"]
    assert (ended["done"], other["done"]) == (True, False)
    assert ended["task_id"] != other["task_id"]
