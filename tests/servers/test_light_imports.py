"""A launch needs none of the packages that tables, vectors and models are made with."""

import json
import subprocess
import sys

import pytest

HEAVY = ("dagster", "polars", "pandas", "pyarrow", "lancedb", "torch", "great_expectations")
LAUNCH = (
    *("deploy.deploy", "deploy.policy", "calls.caller"),
    *("probe.remote_probe", "recipes.recipe", "oauth_login"),
)


def heavy_after(*modules: str) -> list[str]:
    """Which heavy packages a fresh interpreter has loaded once it has imported the modules."""
    source = (
        "import importlib, json, sys\n"
        f"for name in {list(modules)!r}: importlib.import_module(name)\n"
        f"print(json.dumps([one for one in {list(HEAVY)!r} if one in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize("module", LAUNCH)
def test_launching_a_server_imports_nothing_heavy(module):
    assert heavy_after(f"assets.servers.{module}") == []


def test_the_check_can_fail():
    assert "polars" in heavy_after("assets.servers.deploy.deployment_table")
