"""A target that somebody names: how it is probed, refused, and what it imports."""

import subprocess
import sys

import pytest

from assets.servers.adhoc import TargetError, probe_target
from assets.servers.deploy.policy import DeployPolicy
from tests.support.cases import cases
from tests.support.untrusted_server import CONVERSATION, POLICY, PREAMBLE, require_sandbox


@pytest.fixture
def probe(warehouse, tmp_path):
    require_sandbox()
    tmp_path.chmod(0o755)

    def run(target=None, **facts):
        policy = DeployPolicy(warehouse.home, POLICY, CONVERSATION)
        return probe_target(target, policy, ledger=warehouse.ledger, run_date="n1", **facts)

    return run


def _folder(tmp_path, source):
    folder = tmp_path / "mine"
    folder.mkdir()
    folder.chmod(0o755)
    (folder / "main.py").write_text(PREAMBLE + source)
    return folder


def test_a_folder_is_seen_at_its_own_path_and_its_tools_are_listed(probe, tmp_path):
    folder = _folder(tmp_path, "serve([tool(os.getcwd()), tool(os.environ['KEY']), {'name': 1}])")
    answer = probe(directory=folder, command=["python", "main.py"], env={"KEY": "v"})
    assert answer["status"] == "ok", answer["hint"]
    assert list(answer["contract_digests"]) == [str(folder), "v", "1"]
    assert answer["contract_digests"]["v"].startswith("c1:")
    assert (answer["contract_digests"]["1"], answer["server_id"]) == (None, "private:mine")


def test_a_server_that_dies_is_classified(probe, tmp_path):
    folder = _folder(tmp_path, "sys.exit('API key required')")
    answer = probe(directory=folder, command=["python3", "main.py"])
    assert (answer["status"], answer["tools"]) == ("needs_secret", [])
    assert "API key required" in answer["stderr_tail"]


@cases("target", "", "npm:", "pip:x", "npm:a b", "ftp://x")
def test_what_is_no_target_says_what_is(probe, target):
    with pytest.raises(TargetError, match="expected npm:NAME"):
        probe(target)


def test_a_folder_that_cannot_be_used_is_refused(probe, tmp_path, monkeypatch):
    monkeypatch.setenv("HOME", str(tmp_path))
    with pytest.raises(TargetError, match="the server's own folder"):
        probe(directory=tmp_path, command=["python", "main.py"])
    with pytest.raises(TargetError, match="needs a command"):
        probe(directory=tmp_path)
    with pytest.raises(TargetError, match="no such folder"):
        probe(directory=tmp_path / "none", command=["python"])


HEAVY = ("dagster", "polars", "pandas", "pyarrow", "lancedb", "torch", "great_expectations")
LAUNCH = ("deploy.deploy", "calls.caller", "probe.remote_probe", "recipes.recipe", "oauth_login")


@cases(
    "modules",
    [f"assets.servers.{module}" for module in LAUNCH],
    ["serving.meta"],
    ["serving.repair.ladder"],
)
def test_launching_serving_and_repairing_import_nothing_heavy(modules):
    source = (
        "import importlib, json, sys\n"
        f"for name in {modules!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {HEAVY!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert (done.returncode, done.stdout) == (0, "[]\n"), done.stderr
