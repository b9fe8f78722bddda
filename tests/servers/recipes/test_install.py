"""The fetch phase against a registry on loopback: no script of a package runs."""

import base64
import hashlib
import io
import json
import os
import shutil
import tarfile
import zipfile
from dataclasses import replace

import pytest

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.fetch_phase import FETCH_POLICY, fetch_policy
from assets.servers.recipes.install import _digest_installed, ensure_artifact, list_installed
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.marketplaces.site import Answer, site
from tests.support.errors import expect_kind
from tests.support.untrusted_server import require_sandbox


def tarball(files):
    buffer = io.BytesIO()
    with tarfile.open(fileobj=buffer, mode="w:gz") as archive:
        for name, text in files.items():
            entry = tarfile.TarInfo(name)
            entry.size, entry.mode = len(text.encode()), 0o755
            archive.addfile(entry, io.BytesIO(text.encode()))
    return buffer.getvalue()


class Registry:
    """npm's and PyPI's answers, by path."""

    def __init__(self, home):
        self.files, self.requests, self.url = {}, [], ""
        self.home, self.toolchain = home, find_toolchain()

    def answer(self, path, _):
        self.requests.append(path)
        kind, body = self.files.get(path.replace("%2f", "/").partition("?")[0], ("", None))
        return Answer(body or b"", 404 if body is None else 200, kind or "text/plain")

    def npm(self, name, scripts, files, **more):
        about = {"name": name, "version": "1.0.0", "bin": {name: "main.js"}, "scripts": scripts}
        about |= more
        packed = tarball({"package/package.json": json.dumps(about), **files})
        integrity = "sha512-" + base64.b64encode(hashlib.sha512(packed).digest()).decode()
        self.files[f"/{name}.tgz"] = ("application/octet-stream", packed)
        dist = {"tarball": f"{self.url}/{name}.tgz", "integrity": integrity}
        version = {**about, "dist": dist, "hasInstallScript": bool(scripts)}
        full = {"name": name, "dist-tags": {"latest": "1.0.0"}, "versions": {"1.0.0": version}}
        self.files[f"/{name}"] = ("application/json", json.dumps(full).encode())
        return make_recipe("npm", name, integrity)

    def pypi(self, name, filename, body):
        digest = hashlib.sha256(body).hexdigest()
        self.files[f"/simple/files/{filename}"] = ("application/octet-stream", body)
        page = f'<a href="/simple/files/{filename}#sha256={digest}">{filename}</a>'
        self.files[f"/simple/{name}/"] = ("text/html", page.encode())
        return make_recipe("pypi", name, f"sha256:{digest}")


@pytest.fixture
def registry(tmp_path):
    require_sandbox()
    served = Registry(tmp_path / "home")
    host = served.toolchain
    kept = {k: v for k, v in host.fetch_env.items() if not k.startswith(("UV_", "npm_"))}
    with site(served.answer) as here:
        served.url = here.url
        env = {**kept, "npm_config_registry": here.url, "UV_DEFAULT_INDEX": f"{here.url}/simple/"}
        served.toolchain = replace(host, fetch_env=env)
        yield served


def make_recipe(ecosystem, name, integrity):
    facts = {"ecosystem": ecosystem, "name": name, "version": "1.0.0", "integrity": integrity}
    return LaunchRecipe(server_id=f"{ecosystem}:{name}", **facts)


def fetch(registry, recipe):
    return ensure_artifact(recipe, home=registry.home, toolchain=registry.toolchain)


METADATA = "Metadata-Version: 2.1\nName: built\nVersion: 1.0.0\n"


def wheel(text="def main(): pass\n", name="built", more=""):
    buffer, script = io.BytesIO(), f"[console_scripts]\n{name} = {name}:main\n"
    with zipfile.ZipFile(buffer, "w") as archive:
        for path, body in {
            f"{name}.py": text,
            f"{name}-1.0.0.dist-info/METADATA": METADATA.replace("built", name) + more,
            f"{name}-1.0.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
            f"{name}-1.0.0.dist-info/entry_points.txt": script,
            f"{name}-1.0.0.dist-info/RECORD": "",
        }.items():
            archive.writestr(zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0)), body)
    return buffer.getvalue()


BACKEND = "open('/fetch/tree/ran', 'w')\n"


def test_install_scripts_do_not_run(registry):
    if registry.toolchain.node is None:
        pytest.skip("no Node on this host")
    files = {"package/main.js": "console.log('up')"}
    scripts = {"install": "touch ran", "postinstall": "touch ran"}
    made = fetch(registry, registry.npm("built", scripts, files))
    assert made.argv[-1].endswith("/built/main.js")
    assert not list(made.tree.rglob("ran"))


def test_a_source_release_is_not_built(registry):
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    project += '[project]\nname = "built"\nversion = "1.0.0"\n'
    files = {
        "built-1.0.0/pyproject.toml": project,
        "built-1.0.0/backend.py": BACKEND,
        "built-1.0.0/PKG-INFO": METADATA,
    }
    with expect_kind(PackageError, "build_failed"):
        fetch(registry, registry.pypi("built", "built-1.0.0.tar.gz", tarball(files)))
    assert not (registry.home / "artifacts").exists()


def test_nothing_of_an_artefact_lies_elsewhere_too(registry):
    """A file that a cache shares could be changed through the cache."""
    made = fetch(registry, registry.pypi("built", "built-1.0.0-py3-none-any.whl", wheel()))
    files = [path for path in made.tree.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    assert {path.stat().st_nlink for path in files} == {1}
    assert {path.name for path in made.tree.parent.iterdir()} == {"tree", "toolmill.json"}
    assert list((registry.home / "cache" / "staging").iterdir()) == []


def test_a_dependency_from_git_is_refused(registry):
    if registry.toolchain.node is None or shutil.which("git") is None:
        pytest.skip("no Node or no git on this host")
    files = {"package/main.js": "console.log('up')"}
    evil = {"evil": f"git+{registry.url}/evil.git"}
    recipe = registry.npm("built", {}, files, dependencies=evil)
    with expect_kind(PackageError, "build_failed"):
        fetch(registry, recipe)
    assert not [path for path in registry.requests if "git" in path]


def test_what_was_installed_is_named_by_its_files_not_its_number(registry):
    """The same release with other contents is another `locked`; the same contents the same."""
    name = "built-1.0.0-py3-none-any.whl"
    found = []
    for place, text in enumerate(["def main(): pass\n", "def main(): evil()\n"] * 2):
        registry.home = registry.home.with_name(f"home{place}")
        found.append(fetch(registry, registry.pypi("built", name, wheel(text))).locked)
    assert found[0] == found[2] != found[1] == found[3]


def test_extras_and_further_requirements_are_installed(registry):
    for name in ("further", "extra"):
        registry.pypi(name, f"{name}-1.0.0-py3-none-any.whl", wheel(name=name))
    more = "Provides-Extra: cli\nRequires-Dist: extra; extra == 'cli'\n"
    plain = registry.pypi("built", "built-1.0.0-py3-none-any.whl", wheel(more=more))
    asked = plain.model_copy(update={"requirements": ("built[cli]", "further<2")})
    assert set(list_installed(fetch(registry, plain).tree)) == {"built"}
    assert set(list_installed(fetch(registry, asked).tree)) == {"built", "further", "extra"}


def test_another_file_than_the_pinned_one_is_refused(registry):
    name = "built-1.0.0-py3-none-any.whl"
    pinned = registry.pypi("built", name, wheel())
    registry.pypi("built", name, wheel("def main(): evil()\n"))
    with expect_kind(PackageError, "integrity"):
        fetch(registry, pinned)


def test_pipes_and_links_are_passed_over_when_files_are_named(tmp_path):
    (tmp_path / "a.py").write_text("a")
    before = _digest_installed(tmp_path)
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to("/etc/shadow")
    (tmp_path / "__pycache__").mkdir()
    (tmp_path / "__pycache__" / "a.pyc").write_bytes(b"x")
    assert _digest_installed(tmp_path) == before
    (tmp_path / "b.py").write_text("b")
    assert _digest_installed(tmp_path) != before


def test_packages_are_fetched_in_the_backend_that_servers_run_in():
    given = SandboxPolicy(backend="none", memory_mb=9)
    policy = fetch_policy(replace(given, fetch_hosts=("files.example",)))
    assert policy.backend == "none"
    assert policy.fetch_hosts == ("files.example",)
    assert policy.memory_mb == FETCH_POLICY.memory_mb
