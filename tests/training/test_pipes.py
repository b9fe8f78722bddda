"""The places where a training script runs: really here, and what Ray and Kubernetes are given."""

import json
import re
import shutil
import sys
from pathlib import Path
from types import ModuleType, SimpleNamespace
from typing import Any

import dagster as dg
import pytest
from dagster._core.errors import DagsterPipesExecutionError

import training.defs
from orchestration.resources import (
    QUIET,
    NoSuchPlace,
    TrainingPlace,
    TrainingScripts,
    build_invocation,
    open_client,
)
from tests.support.cases import cases
from tests.support.python_process import find_python
from training.adapter_table import make_adapter_table
from training.caller.settings import CallerSettings
from training.policies import TrainerPolicy
from training.retriever.settings import RetrieverSettings
from training.retriever.train import train_retriever
from training.runtime.model_store import read_job, read_model_card
from training.sets.pool import save_pool
from training.sets.training_set import TRAINING_SET
from warehouse.store import Warehouse

SCRIPT = """
import sys
from training.runtime.model_store import TrainingFailed
from training.runtime.script_frame import run_script

def train(job, report):
    if job.base == "bad":
        raise TrainingFailed("caller: the base is bad; take another")
    if job.base == "killed":
        import os, signal
        os.kill(os.getpid(), signal.SIGKILL)
    for step in range(1, 1001):
        report({"step": step, "steps": 1000, "loss": 1 / step})
    return {"name": job.name, "losses": [1 / step for step in range(1, 1001)], "settings": {}}

if __name__ == "__main__":
    sys.exit(run_script("caller", train))
"""


@pytest.fixture
def script(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    (tmp_path / "small_script.py").write_text(SCRIPT)
    monkeypatch.setenv("PYTHONPATH", str(tmp_path))
    return "small_script"


def run(script: str, folder: Path, base: str) -> tuple[dg.ExecuteInProcessResult, list[dict]]:
    job = folder / "job.json"
    held = {"role": "caller", "name": "n1", "home": str(folder), "training_set": "s"}
    job.write_text(json.dumps({**held, "base": base, "settings": {}, "rows": []}))
    cards: list[dict] = []

    @dg.asset
    def trained(context: dg.AssetExecutionContext) -> dg.MaterializeResult:
        cards.append(TrainingScripts().launch(context, script, job))
        return dg.MaterializeResult(metadata={"loss": cards[-1]["losses"]})

    return dg.materialize([trained], raise_on_error=False), cards


def test_a_script_really_runs_and_its_card_and_loss_come_back(script, tmp_path, capfd):
    result, [card] = run(script, tmp_path, "good")
    assert (card["name"], len(card["losses"])) == ("n1", 200)
    assert (card["losses"][0], card["losses"][-1]) == (1.0, 0.001)
    [made] = result.asset_materializations_for_node("trained")
    assert made.metadata["loss"].value == card["losses"]
    err = capfd.readouterr().err
    assert "caller step=1 steps=1000 loss=1.0" in err
    assert "caller step=1000 steps=1000 loss=0.001" in err


@cases("base, message", ("bad", "code 1"), ("killed", "code -9 .*want of memory.*checkpoint"))
def test_a_script_that_fails_or_dies_is_told(script, tmp_path, base, message, capfd):
    result, cards = run(script, tmp_path, base)
    assert not result.success
    assert cards == []
    [failed] = [event for event in result.all_events if event.is_step_failure]
    error = failed.step_failure_data.error
    assert error
    assert error.cause
    assert re.search(f"DagsterPipesExecutionError.*{message}", error.cause.message)
    if base == "bad":
        assert "the base is bad; take another" in capfd.readouterr().err


class Client:
    def __init__(self, *messages: Any, fails: Exception | None = None, **made: Any) -> None:
        self.messages, self.fails, self.made, self.given = messages, fails, made, {}

    def run(self, **given: Any) -> Any:
        self.given = given
        if self.fails:
            raise self.fails
        return SimpleNamespace(get_custom_messages=lambda: self.messages)


def test_a_ray_job_is_given_the_same_script(tmp_path):
    job, client = tmp_path / "a job.json", Client({"name": "m"})
    place = TrainingPlace("ray", gpus=2, processes=2, ray_address="http://head:8265")
    made = TrainingScripts(place, client).launch("ctx", "training.caller.script", job)
    assert made == {"name": "m"}
    run = "python -m torch.distributed.run --standalone --nproc-per-node=2"
    params = {"entrypoint": f"{run} -m training.caller.script '{job}'", "entrypoint_num_gpus": 2}
    params["runtime_env"] = {"env_vars": QUIET}
    assert client.given == {"context": "ctx", "submit_job_params": params}


def test_a_pod_is_given_the_image_the_command_and_its_gpus(tmp_path):
    volumes = [{"name": "home", "persistent_volume_claim": {"claim_name": "toolmill"}}]
    mounts = {"volume_mounts": [{"name": "home", "mount_path": "/data"}]}
    pod = {"volumes": volumes, "containers": [mounts]}
    place = TrainingPlace("kubernetes", gpus=1, image="mill:1", namespace="ml", pod=pod)
    client = Client({"name": "m"})
    TrainingScripts(place, client).launch("ctx", "training.retriever.script", tmp_path / "j.json")
    assert client.given["command"] == [
        "python", "-m", "training.retriever.script", str(tmp_path / "j.json")
    ]  # fmt: skip
    assert (client.given["image"], client.given["namespace"]) == ("mill:1", "ml")
    [container] = client.given["base_pod_spec"]["containers"]
    assert container == {**mounts, "resources": {"limits": {"nvidia.com/gpu": "1"}}}
    assert client.given["base_pod_spec"]["volumes"] == volumes
    assert place.pod["containers"] == [mounts]  # the setting itself stays as it was


def test_clients_take_what_their_packages_take_and_fail_alike(monkeypatch, tmp_path):
    ray, k8s = ModuleType("dagster_ray"), ModuleType("dagster_k8s")
    ray.PipesRayJobClient = k8s.PipesK8sClient = Client  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "dagster_ray", ray)
    monkeypatch.setitem(sys.modules, "dagster_k8s", k8s)
    opened = open_client(TrainingPlace("ray", ray_address="http://head:8265"))
    assert opened.made == {"address": "http://head:8265"}
    assert isinstance(open_client(TrainingPlace("kubernetes", image="mill:1")), Client)
    assert isinstance(open_client(TrainingPlace()), dg.PipesSubprocessClient)
    client = Client(fails=RuntimeError("RayJob pipes-x failed with status FAILED"))
    with pytest.raises(DagsterPipesExecutionError, match="on ray: RayJob pipes-x failed"):
        TrainingScripts(TrainingPlace("ray"), client).launch(None, "s", tmp_path)
    assert TrainingScripts(TrainingPlace("ray"), Client()).launch(None, "s", tmp_path) == {}


@cases(
    "place, message",
    (TrainingPlace("ray"), r"dagster-ray is not installed.*toolmill\[ray\]"),
    (TrainingPlace("kubernetes", image="mill:1"), "dagster-k8s is not installed.*runs_on"),
    (TrainingPlace("kubernetes"), "no image is set"),
)
def test_a_place_that_cannot_be_had_is_named(place, message, monkeypatch):
    monkeypatch.setitem(sys.modules, "dagster_ray", None)
    monkeypatch.setitem(sys.modules, "dagster_k8s", None)
    with pytest.raises(NoSuchPlace, match=message):
        open_client(place)


def test_several_processes_here_end_with_their_run(tmp_path):
    alone, two = (
        build_invocation(TrainingPlace(processes=n), "training.caller.script", tmp_path)["command"]
        for n in (1, 2)
    )
    several = ["-m", "torch.distributed.run", "--standalone", "--nproc-per-node=2"]
    wrap, script = shutil.which("setpriv"), ["-m", "training.caller.script", str(tmp_path)]
    ends = [wrap, "--pdeathsig", "KILL"] if wrap else []
    assert two == [*ends, sys.executable, *several, *script]
    assert alone == [sys.executable, *script]
    carried = build_invocation(TrainingPlace(processes=2), "x", tmp_path, ["-m", "carrier", "--"])
    assert carried["command"][:4] == [sys.executable, "-m", "carrier", "--"]
    assert carried["command"][4:] == [*two[:-2], "x", str(tmp_path)]


def fill(warehouse: Warehouse, train_rows: list, test_rows: list, pool: dict) -> Warehouse:
    frame = TRAINING_SET.frame([*train_rows, *test_rows])
    save_pool(warehouse.home, TRAINING_SET.digest(frame), pool)
    warehouse.tables.promote(warehouse.tables.stage(TRAINING_SET, frame), "test", [])
    return warehouse


@pytest.fixture(scope="module")
def trained_root(tmp_path_factory, train_rows: list, test_rows: list, pool: dict) -> Path:
    """Folder of `home` and `state` after a retriever was trained; tests copy it."""
    root = tmp_path_factory.mktemp("adapter")
    warehouse = Warehouse(home=root / "home", state=root / "state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", find_python())
        filled = fill(warehouse, train_rows, test_rows, pool)
        assert train(filled, "retriever").success
    warehouse.ledger.close()
    return root


@pytest.fixture
def trained(trained_root: Path, tmp_path: Path) -> Warehouse:
    root = shutil.copytree(trained_root, tmp_path / "root")
    return Warehouse(home=root / "home", state=root / "state")


def train(
    warehouse: Warehouse, role: str, scripts: object = None, **settings: object
) -> dg.ExecuteInProcessResult:
    chosen = RetrieverSettings(epochs=2, tools=8, first_layer=5, threads=1, **settings)  # type: ignore[arg-type]
    trainer = TrainerPolicy(retriever=chosen, caller=CallerSettings(), caller_base="/no/such/model")
    given = {"warehouse": warehouse, "trainer": trainer, "scripts": scripts or TrainingScripts()}
    asset = getattr(training.defs, f"{role}_adapter")
    return dg.materialize([asset], resources=given, raise_on_error=False)


def test_an_adapter_is_trained_once_published_with_its_losses_and_again_once_it_is_lost(trained):
    [row] = trained.tables.read(make_adapter_table("retriever")).to_dicts()
    assert row["loss_last"] < row["loss_first"]
    assert read_model_card(trained.home, row["model"])
    assert train(trained, "retriever").success
    assert trained.ledger.counts() == {("train:retriever", "done"): 1}
    for path in sorted((trained.home / "models" / row["model"]).iterdir()):
        path.unlink()
    here = SimpleNamespace(launch=lambda _, __, job: train_retriever(read_job(job), lambda _: None))
    assert train(trained, "retriever", here).success
    assert read_model_card(trained.home, row["model"])
    assert trained.ledger.counts() == {("train:retriever", "done"): 2}


@cases(
    "role, settings, why",
    ("retriever", {"device": "cuda"}, "set device to auto or cpu"),
    ("caller", {}, "/no/such/model: no such folder"),
)
def test_a_failed_training_publishes_nothing(
    train_rows, test_rows, pool, warehouse, role, settings, why, capfd
):
    fill(warehouse, train_rows, test_rows, pool)
    result = train(warehouse, role, **settings)
    [check] = [check for check in result.get_asset_check_evaluations() if not check.passed]
    assert warehouse.tables.head(check.asset_key.to_user_string()) is None
    log = check.description or ""
    assert "training failed" in log
    assert why in log + capfd.readouterr().err
