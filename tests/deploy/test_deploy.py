"""The files of a deployment, held against the program, and `make clean`."""

import os
import re
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest
import yaml

from orchestration.runs.instance import SLOTS
from orchestration.settings.load import load_settings
from tests.support.cases import cases
from tests.support.paths import ROOT

COMPOSE = yaml.safe_load((ROOT / "deploy/compose.yaml").read_text())
VALUES = yaml.safe_load((ROOT / "deploy/helm/values.yaml").read_text())
[CODE] = VALUES["dagster-user-deployments"]["deployments"]


def test_services_run_programs_that_the_image_has_and_so_has_what_set_up_needs_of_debian():
    wanted = re.findall(r"wanted\+=\((\S+)\)", (ROOT / "scripts/setup.sh").read_text())
    image = (ROOT / "deploy/Dockerfile").read_text()
    installed = re.search(r"--no-install-recommends (.*?) \\", image)
    assert installed
    assert {*wanted, "nodejs", "npm", "make"} <= {*installed[1].split()}
    programs = Path(sys.executable).parent
    for name in ("web", "daemon"):
        service = COMPOSE["services"][name]
        assert (programs / service["command"][0]).is_file()
        assert service["image"] == CODE["image"]["repository"] == "toolmill"
        assert (ROOT / service["command"][service["command"].index("-w") + 1]).is_file()


@cases(
    "given",
    COMPOSE["x-toolmill"]["environment"],
    {one["name"]: one["value"] for one in CODE["env"]},
    ids=["compose", "helm"],
)
def test_their_environment_is_settings_of_ours(given, monkeypatch, tmp_path):
    for name, value in given.items():
        if name.startswith("TOOLMILL_"):
            monkeypatch.setenv(name, re.sub(r"\$\{\w+:-(.*)\}", r"\1", value))
    monkeypatch.chdir(tmp_path)
    settings = load_settings()
    assert (settings.source, settings.home) == ("live", Path("/var/lib/toolmill"))


def test_the_image_starts_with_the_instance_of_its_home(tmp_path):
    programs = Path(sys.executable).parent
    env = {
        "PATH": f"{programs}:{os.environ['PATH']}",
        "TOOLMILL_HOME": str(tmp_path / "home"),
        "DAGSTER_POSTGRES_URL": "",
    }
    command = [str(ROOT / "deploy/start.sh"), "sh", "-c", "echo $DAGSTER_HOME"]
    done = subprocess.run(command, env=env, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    folder = Path(done.stdout.strip())
    assert folder == tmp_path / "home/state/dagster"
    with dg.DagsterInstance.from_config(str(folder)) as instance:
        pools = {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()}
    assert pools.items() >= SLOTS.items()
    assert (folder / "dagster.yaml").read_bytes() == (ROOT / "dagster.yaml").read_bytes()


def test_runs_queue_in_a_cluster_as_they_do_here_and_its_code_server_serves_the_workspace():
    ours = yaml.safe_load((ROOT / "dagster.yaml").read_text())
    there = VALUES["dagsterDaemon"]["runCoordinator"]["config"]["queuedRunCoordinator"]
    assert there["maxConcurrentRuns"] == ours["concurrency"]["runs"]["max_concurrent_runs"]
    assert there["tagConcurrencyLimits"] == ours["concurrency"]["runs"]["tag_concurrency_limits"]
    assert VALUES["dagsterDaemon"]["runRetries"]["maxRetries"] == ours["run_retries"]["max_retries"]
    [source] = yaml.safe_load((ROOT / "workspace.yaml").read_text())["load_from"]
    assert CODE["dagsterApiGrpcArgs"] == ["-m", source["python_module"]["module_name"]]
    assert CODE["name"] == source["python_module"]["location_name"]


def write_snake_case(config: dict) -> dict:
    """The names of a chart's values as Dagster's configuration has them."""
    return {re.sub("([A-Z])", lambda m: "_" + m[1].lower(), name): config[name] for name in config}


@pytest.mark.slow
def test_the_run_launcher_takes_its_configuration():
    dagster_k8s = pytest.importorskip("dagster_k8s", reason="pip install dagster-k8s")
    from dagster._config import process_config, resolve_to_config_type

    launcher = VALUES["runLauncher"]["config"]["k8sRunLauncher"]
    snake = write_snake_case(launcher)
    snake["env_secrets"] = [one["name"] for one in snake["env_secrets"]]
    snake |= {"service_account_name": "d", "instance_config_map": "d", "dagster_home": "/d"}
    configs = write_snake_case(snake["run_k8s_config"])
    snake["run_k8s_config"] = {name: write_snake_case(of) for name, of in configs.items()}
    kind = resolve_to_config_type(dagster_k8s.K8sRunLauncher.config_type())
    result = process_config(kind, snake)
    assert result.success, result.errors


# --- `make clean` removes what Toolmill made, and no folder of somebody else's
def clean(home: Path) -> "subprocess.CompletedProcess[str]":
    command = ["make", "-C", str(ROOT), "clean", f"TOOLMILL_HOME={home}"]
    return subprocess.run(command, capture_output=True, text=True, check=False)


def test_a_home_goes_whole_an_absent_one_is_none_and_a_folder_that_is_no_home_stays(tmp_path):
    made = tmp_path / "made"
    (made / "tables").mkdir(parents=True)
    marked = tmp_path / "marked"
    marked.mkdir()
    (marked / "home.json").write_text('{"layout": 1}')
    for home in (made, marked, tmp_path / "absent"):
        assert clean(home).returncode == 0
        assert not home.exists()
    (tmp_path / "home.json").write_text('{"mine": true}')
    (tmp_path / "thesis.txt").write_text("years")
    done = clean(tmp_path)
    assert done.returncode == 2
    assert "Toolmill made nothing there" in done.stderr
    assert (tmp_path / "thesis.txt").read_text() == "years"
