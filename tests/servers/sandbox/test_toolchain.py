import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from assets.servers.sandbox import spec, toolchain
from assets.servers.sandbox.toolchain import HostToolchain, ToolMissing, find_toolchain
from tests.support.cases import cases


def test_the_runtimes_of_this_host_are_found_from_an_environment_of_copies_too(tmp_path):
    found = find_toolchain()
    assert found.python.exists()
    assert found.uv.exists()
    assert any(found.python.is_relative_to(bind) for bind in (*found.binds, Path("/usr")))
    made = tmp_path / "copies"
    subprocess.run([sys.executable, "-m", "venv", "--copies", "--without-pip", made], check=True)
    code = "from assets.servers.sandbox import toolchain; print(toolchain.find_toolchain().python)"
    env = {**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)}
    output = subprocess.check_output([made / "bin" / "python", "-c", code], env=env, text=True)
    assert Path(output.strip()) == find_toolchain().python


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


def test_artefacts_depend_on_major_versions_and_a_missing_python_or_node_is_named():
    one = HostToolchain(Path("/p"), "3.11", Path("/uv"), node_version="20.1.0")
    two = HostToolchain(Path("/q"), "3.12", Path("/uv"), node_version="20.9.3")
    assert one.identity("npm") == two.identity("npm")
    assert one.identity("pypi") != two.identity("pypi")
    found = HostToolchain(Path("/p"), "3.11.7", Path("/uv"), pythons={"3.12": Path("/q")})
    assert (found.python_for(None), found.python_for("3.12")) == (Path("/p"), Path("/q"))
    with pytest.raises(ToolMissing, match=r"needs Python 3\.14, this host has 3\.11\.7, 3\.12"):
        found.python_for("3.14")
    assert found.identity("pypi", "3.12") != found.identity("pypi")
    with pytest.raises(ToolMissing, match=r"Node\.js 20"):
        found.require_node()


def test_other_pythons_are_looked_for_where_installers_put_them(monkeypatch, tmp_path):
    monkeypatch.setenv("PYENV_ROOT", str(tmp_path))
    for minor in ("3.11", "3.12", "3.13"):
        folder = tmp_path / "versions" / f"{minor}.1" / "bin"
        folder.mkdir(parents=True)
        (folder / f"python{minor}").write_text("")
        (folder / f"python{minor}").chmod(0o755 if minor != "3.13" else 0o644)
    found = toolchain.find_other_pythons((3, 11))
    assert found["3.12"] == tmp_path / "versions" / "3.12.1" / "bin" / "python3.12"
    assert "3.11" not in found
    assert found.get("3.13") != tmp_path / "versions" / "3.13.1" / "bin" / "python3.13"


@pytest.fixture
def local(monkeypatch, tmp_path):
    """`~/.local` of a user who keeps Node, npm and a secret there."""
    node = shutil.which("node")
    if not node:
        pytest.skip("no node on this host")
    home = tmp_path / "user"
    folder = home / ".local"
    (folder / "bin").mkdir(parents=True)
    shutil.copy(node, folder / "bin" / "node")
    (folder / "secret").write_text("secret")
    (folder / "lib/node_modules/npm/bin").mkdir(parents=True)
    (folder / "lib/node_modules/npm/package.json").write_text("{}")
    npm = folder / "lib/node_modules/npm/bin/npm-cli.js"
    npm.write_text("#!/usr/bin/env node\n")
    npm.chmod(0o755)
    (folder / "bin" / "npm").symlink_to("../lib/node_modules/npm/bin/npm-cli.js")
    for path in (tmp_path, home, folder, folder / "bin"):
        path.chmod(0o755)
    monkeypatch.setenv("HOME", str(home))
    monkeypatch.setenv("PATH", f"{folder}/bin:{os.environ['PATH']}")
    find_toolchain.cache_clear()
    yield folder
    find_toolchain.cache_clear()


def test_a_node_in_the_local_folder_shows_itself_and_npm_alone_and_no_wrapper(local):
    found = find_toolchain()
    npm = local / "lib/node_modules/npm"
    assert (found.node, found.npm) == (local / "bin/node", npm / "bin/npm-cli.js")
    assert {path for path in found.binds if path.is_relative_to(local)} == {local / "bin/node", npm}

    def replace_program(name, text):
        (local / "bin" / name).unlink()
        (local / "bin" / name).write_text(text)
        (local / "bin" / name).chmod(0o755)

    replace_program("npm", "#!/bin/sh\n")
    assert toolchain.find_npm(local / "bin/node") == local / "lib/node_modules/npm/bin/npm-cli.js"
    shutil.rmtree(local / "lib")
    assert toolchain.find_npm(local / "bin/node") is None
    replace_program("node", "#!/bin/sh\nexit 1\n")
    assert toolchain.find_node() is None


@cases("name", ".local", "opt")
def test_a_python_in_a_shared_folder_shows_its_own_parts_alone(name, tmp_path):
    prefix = Path("/no-such-top") if name == "opt" else tmp_path / name
    if name == ".local":
        for folder in ("bin", "lib/python3.12/json", "lib/python3.12/site-packages/user"):
            (prefix / folder).mkdir(parents=True)
        (prefix / "lib/libpython3.12.so.1.0").write_text("")
        (prefix / "share").mkdir()
    shown = toolchain.list_python_files(prefix / "bin/python3.12", prefix)
    assert prefix not in shown
    assert prefix / "bin/python3.12" in shown
    if name == ".local":
        inside = {str(path.relative_to(prefix)) for path in shown if path.exists()}
        assert inside == {"lib/python3.12/json", "lib/libpython3.12.so.1.0"}
    alone = tmp_path / "versions" / "3.12.1"
    assert toolchain.list_python_files(alone / "bin/python3.12", alone) == [alone]


def test_no_launch_shows_a_home_or_what_lies_above_but_an_index_there(monkeypatch, tmp_path):
    home = tmp_path / "user"
    (home / ".local").mkdir(parents=True)
    (tmp_path / "link").symlink_to(home)
    monkeypatch.setenv("HOME", str(home))
    above = [home, home / ".local", tmp_path, tmp_path / "link", Path("/"), Path("/home")]
    for path in (*above, Path("/home/somebody"), tmp_path / "other" / ".local"):
        with pytest.raises(spec.MountRefused, match="never shown"):
            spec.SandboxMount.same(path)
    for path in (home / "server", home / ".local/share/uv/python/3.12", Path("/usr")):
        assert spec.SandboxMount.same(path).host == path
    monkeypatch.setenv("HOME", str(tmp_path))
    monkeypatch.setenv("UV_INDEX_URL", f"file://{tmp_path}/simple")
    (tmp_path / "simple").mkdir()
    _, paths = toolchain._read_fetch_settings(None)
    assert tmp_path / "simple" in paths
    assert tmp_path not in paths
