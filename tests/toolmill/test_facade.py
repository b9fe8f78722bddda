"""`toolmill` is one name for all packages, in the checkout and in the wheel."""

import importlib
import shutil
import subprocess
import sys
import tomllib

import pytest

import toolmill
from assets.vectors.encoders.minilm import GENERAL_FOLDER as ENCODER
from tests.support.paths import ROOT
from training.caller.shipped import FOLDER as CALLER

USE = """
import toolmill, sys
from toolmill.serving import router
import serving.router
assert router is serving.router
assert toolmill.serving is serving and serving.__spec__.name == "serving"
import toolmill.warehouse.storage.digest as aliased
from warehouse.storage.digest import digest
assert aliased.digest is digest
print(toolmill.__version__, toolmill.__file__)
"""


def test_both_names_are_one_module_and_what_is_not_there_is_an_import_error():
    done = subprocess.run(
        [sys.executable, "-c", USE], cwd=ROOT, capture_output=True, text=True, check=True
    )
    assert "toolmill/__init__.py" in done.stdout
    for name in ("toolmill.nowhere", "toolmill.serving.nowhere"):
        with pytest.raises(ModuleNotFoundError, match=name):
            importlib.import_module(name)
    others = {"tests", "benchmarks", "toolmill"}
    assert {path.parent.name for path in ROOT.glob("*/__init__.py")} - others == {
        *toolmill.PACKAGES
    }


def test_the_wheel_holds_every_file_of_the_shipped_models():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    patterns = project["tool"]["setuptools"]["package-data"]["*"]
    for folder in (CALLER, ENCODER):
        files = [path for path in folder.rglob("*.*") if "__pycache__" not in path.parts]
        assert [path.name for path in files if f"*{path.suffix}" not in patterns] == []


@pytest.mark.slow
def test_the_wheel_imports_by_the_same_name(tmp_path):
    pip = [sys.executable, "-m", "pip"]
    # From a copy: setuptools leaves a build folder beside what it builds, and reads it next time.
    source = tmp_path / "source"
    for name in (*toolmill.PACKAGES, "toolmill"):
        shutil.copytree(ROOT / name, source / name, ignore=shutil.ignore_patterns("__pycache__"))
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(ROOT / name, source / name)
    build = [*pip, "wheel", "-q", "--no-deps", "-w", str(tmp_path), str(source)]
    subprocess.run(build, check=True, capture_output=True)
    [wheel] = tmp_path.glob("toolmill-*.whl")
    into = tmp_path / "site"
    subprocess.run(
        [*pip, "install", "-q", "--no-deps", "--target", str(into), str(wheel)],
        check=True,
        capture_output=True,
    )
    # -P: the working directory is not searched; the folder of the wheel comes before the checkout
    done = subprocess.run(
        [sys.executable, "-P", "-c", f"import sys; sys.path.insert(0, {str(into)!r})\n{USE}"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert str(into) in done.stdout
    assert (into / "requirements.lock").exists() is False
