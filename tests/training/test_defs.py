"""The assets of training in Dagster: a real script by Pipes, and a failure that says why."""

import shutil
import sys
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

import training.defs
from orchestration.pipes import TrainingScripts
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


def fill(
    warehouse: Warehouse, train_rows: list[dict], test_rows: list[dict], pool: dict[str, dict]
) -> Warehouse:
    frame = TRAINING_SET.frame([*train_rows, *test_rows])
    save_pool(warehouse.home, TRAINING_SET.digest(frame), pool)
    warehouse.tables.promote(warehouse.tables.stage(TRAINING_SET, frame), "test", [])
    return warehouse


@pytest.fixture
def filled(
    warehouse: Warehouse, train_rows: list[dict], test_rows: list[dict], pool: dict[str, dict]
) -> Warehouse:
    return fill(warehouse, train_rows, test_rows, pool)


@pytest.fixture(scope="module")
def trained_root(
    tmp_path_factory: pytest.TempPathFactory,
    train_rows: list[dict],
    test_rows: list[dict],
    pool: dict[str, dict],
) -> Path:
    """Folder of `home` and `state` after a retriever was trained; tests copy it."""
    root = tmp_path_factory.mktemp("adapter")
    warehouse = Warehouse(home=root / "home", state=root / "state")
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "executable", find_python())
        assert train(fill(warehouse, train_rows, test_rows, pool), "retriever").success
    warehouse.ledger.close()
    return root


@pytest.fixture
def trained(trained_root: Path, tmp_path: Path) -> Warehouse:
    root = shutil.copytree(trained_root, tmp_path / "root")
    return Warehouse(home=root / "home", state=root / "state")


class OwnProcess:
    """Runs a training in this process: what the asset does of it is asked, not Pipes again."""

    def launch(self, _context: object, _script: str, job: Path) -> dict[str, Any]:
        return train_retriever(read_job(job), lambda _: None)


def train(
    warehouse: Warehouse, role: str, scripts: object = None, **settings: object
) -> dg.ExecuteInProcessResult:
    chosen = RetrieverSettings(epochs=2, tools=8, first_layer=5, threads=1, **settings)  # type: ignore[arg-type]
    resources = {
        "warehouse": warehouse,
        "trainer": TrainerPolicy(
            retriever=chosen, caller=CallerSettings(), caller_base="/no/such/model"
        ),
        "scripts": scripts or TrainingScripts(),
    }
    asset = getattr(training.defs, f"{role}_adapter")
    return dg.materialize([asset], resources=resources, raise_on_error=False)


def logged(result: dg.ExecuteInProcessResult, warehouse: Warehouse) -> str:
    [check] = [
        evaluation for evaluation in result.get_asset_check_evaluations() if not evaluation.passed
    ]
    assert warehouse.tables.head(check.asset_key.to_user_string()) is None
    return check.description or ""


def test_an_adapter_is_trained_once_and_published_with_its_losses(trained: Warehouse) -> None:
    [row] = trained.tables.read(make_adapter_table("retriever")).to_dicts()
    assert row["loss_last"] < row["loss_first"]
    assert read_model_card(trained.home, row["model"])
    assert train(trained, "retriever").success
    assert trained.ledger.counts() == {("train:retriever", "done"): 1}


def test_a_lost_model_is_trained_again(trained: Warehouse) -> None:
    [row] = trained.tables.read(make_adapter_table("retriever")).to_dicts()
    for path in sorted((trained.home / "models" / row["model"]).iterdir()):
        path.unlink()
    assert train(trained, "retriever", OwnProcess()).success
    assert read_model_card(trained.home, row["model"])
    assert trained.ledger.counts() == {("train:retriever", "done"): 2}


def test_a_gpu_that_is_not_there_is_told_and_publishes_nothing(
    filled: Warehouse, capfd: pytest.CaptureFixture[str]
) -> None:
    assert "training failed" in logged(train(filled, "retriever", device="cuda"), filled)
    assert "set device to auto or cpu" in capfd.readouterr().err


def test_a_base_model_that_is_not_there_is_named(
    filled: Warehouse,
) -> None:
    log = logged(train(filled, "caller"), filled)
    assert "training failed" in log
    assert "/no/such/model: no such folder" in log
