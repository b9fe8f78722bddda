import os
import subprocess
import sys
from pathlib import Path

import pytest

from assets.servers.sandbox import toolchain
from assets.servers.sandbox.toolchain import Toolchain, ToolMissing, find_toolchain


def test_the_runtimes_of_this_host_are_found():
    found = find_toolchain()
    assert found.python.exists()
    assert found.uv.exists()
    assert any(found.python.is_relative_to(bind) for bind in (*found.binds, Path("/usr")))


def test_an_environment_made_of_copies_gives_the_interpreter_it_was_made_from(tmp_path):
    made = tmp_path / "copies"
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", made], check=True)
    code = (
        "from assets.servers.sandbox.toolchain import find_toolchain;"
        " print(find_toolchain().python)"
    )
    told = subprocess.run(
        [made / "bin" / "python", "-c", code],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert Path(told.stdout.strip()) == find_toolchain().python


def test_no_token_reaches_the_fetch_phase(monkeypatch):
    monkeypatch.setenv("UV_INDEX_URL", "https://user:hunter2@index.example.org/simple")
    monkeypatch.setenv("HTTPS_PROXY", "http://u:hunter2@proxy.example.org:3128")
    monkeypatch.setenv("NPM_TOKEN", "hunter2")
    monkeypatch.setenv("PIP_INDEX_URL", "https://u:hunter2@index.example.org/simple")
    env, _ = toolchain._read_fetch_settings(None)
    assert "hunter2" not in str(env)
    assert env["HTTPS_PROXY"] == "http://proxy.example.org:3128"
    assert env["UV_INDEX_URL"] == "https://index.example.org/simple"


def test_pips_settings_are_told_to_uv(monkeypatch, tmp_path):
    config = tmp_path / "pip.conf"
    config.write_text(
        "[global]\nindex-url = https://mirror.example.org/simple\n"
        "extra-index-url = file:///srv/one/simple\n  file:///srv/two/simple\n"
    )
    monkeypatch.setenv("PIP_CONFIG_FILE", str(config))
    env, paths = toolchain._read_fetch_settings(None)
    assert env["UV_DEFAULT_INDEX"] == "https://mirror.example.org/simple"
    assert env["UV_INDEX"] == "file:///srv/one/simple file:///srv/two/simple"
    assert {Path("/srv/one"), Path("/srv/two")} <= set(paths)


def test_a_host_without_node_says_how_to_get_it():
    with pytest.raises(ToolMissing, match=r"Node\.js 20"):
        Toolchain(Path("/p"), "3.11", Path("/uv")).require_node()


def test_an_artefact_of_npm_depends_on_nodes_major_version_only():
    one = Toolchain(Path("/p"), "3.11", Path("/uv"), node_version="20.1.0")
    two = Toolchain(Path("/q"), "3.12", Path("/uv"), node_version="20.9.3")
    assert one.identity("npm") == two.identity("npm")
    assert one.identity("pypi") != two.identity("pypi")


def test_another_python_is_found_by_its_minor_version_or_named_as_missing():
    found = Toolchain(Path("/p"), "3.11.7", Path("/uv"), pythons={"3.12": Path("/q")})
    assert (found.python_for(None), found.python_for("3.12")) == (Path("/p"), Path("/q"))
    with pytest.raises(ToolMissing, match=r"needs Python 3\.14, this host has 3\.11\.7, 3\.12"):
        found.python_for("3.14")
    assert found.identity("pypi", "3.12") != found.identity("pypi")


def test_other_pythons_are_looked_for_where_installers_put_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    for minor in ("3.11", "3.12", "3.13"):
        folder = tmp_path / "versions" / f"{minor}.1" / "bin"
        folder.mkdir(parents=True)
        (folder / f"python{minor}").write_text("")
        (folder / f"python{minor}").chmod(0o755 if minor != "3.13" else 0o644)
    found = toolchain._find_other_pythons((3, 11))
    assert found["3.12"] == tmp_path / "versions" / "3.12.1" / "bin" / "python3.12"
    assert "3.11" not in found
    assert found.get("3.13") != tmp_path / "versions" / "3.13.1" / "bin" / "python3.13"
