"""A launch needs none of the packages that tables, vectors and models are made with."""

import json
import subprocess
import sys

HEAVY = ("dagster", "polars", "pandas", "pyarrow", "lancedb", "torch", "great_expectations")
LAUNCH = ("deploy.deploy", "calls.caller", "probe.remote_probe", "recipes.recipe", "oauth_login")


def heavy_after(*modules: str) -> list[str]:
    """Which heavy packages a fresh interpreter has loaded once it has imported the modules."""
    source = (
        "import importlib, json, sys\n"
        f"for name in {list(modules)!r}: importlib.import_module(name)\n"
        f"print(json.dumps([name for name in {list(HEAVY)!r} if name in sys.modules]))"
    )
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_launching_a_server_imports_nothing_heavy():
    assert heavy_after(*(f"assets.servers.{module}" for module in LAUNCH)) == []
