"""`toolmill dev` writes to the named home, says which it is, and leaves nothing running."""

import os
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import dagster as dg
import httpx2
import psutil
import pytest

from orchestration.resources import HOME_TAG
from orchestration.runs.instance import SLOTS
from orchestration.settings.load import SettingsError
from tests.support.cases import cases
from tests.support.paths import ROOT
from tests.support.postgres import find_free_port
from tests.support.python_process import run_python
from warehouse.home import HomeUnavailable

QUERY = """{ assetNodes { assetKey { path } metadataEntries { label
  ... on PathMetadataEntry { path } } } }"""


def started_by(home: Path) -> list[psutil.Process]:
    result = []
    for process in psutil.process_iter():
        try:
            if process.environ().get("TOOLMILL_HOME") == str(home):
                result.append(process)
        except psutil.Error:
            continue
    return [each for each in result if each.status() != psutil.STATUS_ZOMBIE]


@pytest.mark.slow
def test_dev_uses_the_named_home_whatever_dotenv_says_and_sigterm_ends_it_all(tmp_path):
    named, other = tmp_path / "named", tmp_path / "other"
    (tmp_path / ".env").write_text(f"TOOLMILL_HOME={other}\n")
    port = find_free_port()
    env = {**os.environ, "TOOLMILL_HOME": str(named), "PYTHONPATH": str(ROOT)}
    env["TOOLMILL_DEMO__BASE_PORT"] = "0"
    command = [sys.executable, "-m", "orchestration", "dev", "--port", str(port)]
    with (tmp_path / "log").open("wb") as log:
        dev = subprocess.Popen(command, env=env, cwd=tmp_path, stdout=log, stderr=log)
    try:
        text = page(port, dev, tmp_path / "log")
        assert str(named) in text
        assert "toolmill/home" in text
        assert len(started_by(named)) > 3
        dev.send_signal(signal.SIGTERM)
        assert dev.wait(timeout=60) == 0
        assert started_by(named) == []
    finally:
        for process in started_by(named):
            process.kill()
    assert f"home: {named}" in (tmp_path / "log").read_text()
    assert not other.exists()
    with dg.DagsterInstance.from_config(str(named / "state" / "dagster")) as instance:
        limits = {limit.name: limit.limit for limit in instance.event_log_storage.get_pool_limits()}
    assert limits.items() >= SLOTS.items()


def test_a_taken_port_is_one_line_before_anything_starts(tmp_path):
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        env = {**os.environ, "TOOLMILL_HOME": str(tmp_path / "home"), "PYTHONPATH": str(ROOT)}
        command = ["-m", "orchestration", "dev", "--port", str(port)]
        done = run_python(*command, env=env, cwd=tmp_path, timeout=60)
    assert done.returncode == 1
    assert done.stderr.strip().splitlines()[-1] == (
        f"port {port} on 127.0.0.1 is taken (Address already in use); end the other program, or"
        " choose another with --port"
    )
    assert "Dagster UI" not in done.stderr


def page(port: int, dev: subprocess.Popen, log: Path) -> str:
    """What the UI is told of the code location, once it is loaded."""
    until = time.monotonic() + 180
    while time.monotonic() < until:
        assert dev.poll() is None, log.read_text()[-2000:]
        try:
            url = f"http://127.0.0.1:{port}/graphql"
            text = httpx2.post(url, json={"query": QUERY}, timeout=20).text
        except httpx2.HTTPError:
            text = ""
        if "listings" in text or "errors" in text:
            return text
        time.sleep(0.5)
    raise AssertionError(log.read_text()[-2000:])


@pytest.fixture
def load(monkeypatch: pytest.MonkeyPatch, tmp_path: Path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "named"))
    from orchestration.code_location import load_definitions

    return load_definitions


def test_the_code_location_shows_the_home(load, tmp_path):
    defs = load()
    for spec in defs.resolve_all_asset_specs():
        assert spec.metadata[HOME_TAG].value == str(tmp_path / "named")
    assert defs.resolve_job_def("nightly").name == "nightly"


@cases("name", "TOOLMILL_HOME", "TOOLMILL_STATE", "TOOLMILL_CONFIG")
def test_the_code_location_refuses_a_dotenv_that_hides_the_named_home(load, tmp_path, name):
    (tmp_path / ".env").write_text(f"OPENAI_API_KEY=x\n{name}=/elsewhere\n")
    with pytest.raises(SettingsError, match=rf"\.env sets {name}, which Dagster loads over"):
        load()
    (tmp_path / ".env").write_text("OPENAI_API_KEY=x\n")
    load()


def test_the_code_location_refuses_a_home_of_the_version_before(load, tmp_path):
    (tmp_path / "named" / "tables").mkdir(parents=True)
    with pytest.raises(HomeUnavailable, match="holds tables, and no home"):
        load()


def test_the_code_location_goes_to_where_dev_was_started(load, tmp_path, monkeypatch):
    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / ".env").write_text("TOOLMILL_HOME=/elsewhere\n")
    monkeypatch.setenv("TOOLMILL_WORKDIR", str(tmp_path / "mine"))
    load()
    assert Path.cwd() == tmp_path / "mine"
