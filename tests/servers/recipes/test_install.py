"""The fetch phase against a registry on loopback: scripts off first, on only by policy, and what a
build script can reach when it does run."""

import base64
import hashlib
import io
import json
import os
import select
import shutil
import socket
import subprocess
import tarfile
import threading
import zipfile
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.fetch_phase import FETCH_POLICY, fetch_policy, open_staging
from assets.servers.recipes.install import _digest_installed, artifact_digest, ensure_artifact
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.support.untrusted_server import require_sandbox

SECOND = SandboxPolicy(scripts="second")

# What a script of a package tries, each noted in a file beside it.
SCRIPT = """
import json, os, socket, sys
found = {}
def attempt(name, action):
    try: action(); found[name] = True
    except Exception as error: found[name] = False
cache = [path for path, _, _ in os.walk('/fetch')]
attempt('sees_the_shared_npm_cache', lambda: os.listdir('/fetch/npm'))
attempt('sees_the_shared_uv_cache', lambda: os.listdir('/fetch/uv'))
OWN = ('/fetch', '/tmp', '/home/user', '/dev', '/proc')
def writable():
    mounts = [line.split() for line in open('/proc/self/mountinfo')]
    rw = [m[4] for m in mounts if 'rw' in m[5].split(',') and not m[4].startswith(OWN)]
    return next(path for path in rw if os.access(path, os.W_OK))
attempt('writes_beyond_its_folder', writable)
attempt('sees_other_staging', lambda: os.listdir('/fetch/staging')[1])
attempt('reaches_a_service_of_the_host', lambda: socket.create_connection(('127.0.0.1', CANARY), 1))
def by_the_gateway():
    way = socket.create_connection(('127.0.0.1', 1080), 3)
    way.sendall(bytes([5, 1, 0, 5, 1, 0, 1, 127, 0, 0, 1]) + CANARY.to_bytes(2, 'big'))
    answer = way.recv(2) + way.recv(2)
    assert answer[3] == 0
attempt('reaches_it_by_the_gateway', by_the_gateway)
attempt('reads_shadow', lambda: open('/etc/shadow').read())
attempt('has_a_secret', lambda: os.environ['SECRET_OF_THE_HOST'])
open(os.environ.get('NOTES', 'notes.json'), 'w').write(json.dumps(found))
"""


def script_for(registry):
    return f"CANARY = {registry.canary.getsockname()[1]}\n{SCRIPT}"


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
        self.files = {}
        self.requests = []
        self.canary = socket.create_server(("127.0.0.1", 0))
        self.home = home
        self.toolchain = find_toolchain()
        registry = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self):
                registry.requests.append(self.path)
                kind, body = registry.files.get(
                    self.path.replace("%2f", "/").partition("?")[0], ("", None)
                )
                self.send_response(200 if body is not None else 404)
                self.send_header("Content-Type", kind or "text/plain")
                self.send_header("Content-Length", str(len(body or b"")))
                self.end_headers()
                if self.command == "GET":
                    self.wfile.write(body or b"")

            do_HEAD = do_GET

            def log_message(self, *_):
                return

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        self.url = f"http://127.0.0.1:{self.server.server_address[1]}"

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
def registry(tmp_path, monkeypatch):
    require_sandbox()
    monkeypatch.setenv("SECRET_OF_THE_HOST", "42")
    served = Registry(tmp_path / "home")
    threading.Thread(target=served.server.serve_forever, args=(0.02,), daemon=True).start()
    host = served.toolchain
    kept = {k: v for k, v in host.fetch_env.items() if not k.startswith(("UV_", "npm_"))}
    env = {**kept, "npm_config_registry": served.url, "UV_DEFAULT_INDEX": f"{served.url}/simple/"}
    served.toolchain = replace(host, fetch_env=env)
    yield served
    served.server.shutdown()
    served.server.server_close()
    served.canary.close()


def make_recipe(ecosystem, name, integrity):
    facts = {"ecosystem": ecosystem, "name": name, "version": "1.0.0", "integrity": integrity}
    return LaunchRecipe(server_id=f"{ecosystem}:{name}", **facts)


def fetch(registry, recipe, policy=None, **more):
    where = {"home": registry.home, "toolchain": registry.toolchain}
    return ensure_artifact(recipe, policy=policy, **where, **more)


def node_package(registry, script=None):
    if registry.toolchain.node is None:
        pytest.skip("no Node on this host")
    files = {
        "package/main.js": "console.log('up')",
        "package/build.py": script or script_for(registry),
    }
    return registry.npm("built", {"install": "python3 build.py"}, files)


METADATA = "Metadata-Version: 2.1\nName: built\nVersion: 1.0.0\n"


def wheel(text="def main(): pass\n"):
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as archive:
        for name, body in {
            "built.py": text,
            "built-1.0.0.dist-info/METADATA": METADATA,
            "built-1.0.0.dist-info/WHEEL": "Wheel-Version: 1.0\nRoot-Is-Purelib: true\n"
            "Tag: py3-none-any\n",
            "built-1.0.0.dist-info/entry_points.txt": "[console_scripts]\nbuilt = built:main\n",
            "built-1.0.0.dist-info/RECORD": "",
        }.items():
            archive.writestr(zipfile.ZipInfo(name, (2020, 1, 1, 0, 0, 0)), body)
    return buffer.getvalue()


BACKEND = """
import base64
def build_wheel(folder, settings=None, metadata=None):
    open(folder + '/built-1.0.0-py3-none-any.whl', 'wb').write(base64.b64decode(WHEEL))
    import zipfile
    with zipfile.ZipFile(folder + '/built-1.0.0-py3-none-any.whl', 'a') as archive:
        archive.writestr('built_notes.json', NOTES)
    return 'built-1.0.0-py3-none-any.whl'
"""
_WRITES = "open(os.environ.get('NOTES', 'notes.json'), 'w').write"


def source_release(registry):
    script = script_for(registry).replace(_WRITES, "NOTES = ")
    backend = f"WHEEL = {base64.b64encode(wheel()).decode()!r}\n{script}{BACKEND}"
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    project += '[project]\nname = "built"\nversion = "1.0.0"\n'
    files = {
        "built-1.0.0/pyproject.toml": project,
        "built-1.0.0/backend.py": backend,
        "built-1.0.0/PKG-INFO": METADATA,
    }
    return registry.pypi("built", "built-1.0.0.tar.gz", tarball(files))


def test_install_scripts_stay_off_and_it_is_said_that_there_were_some(registry):
    made = fetch(registry, node_package(registry))
    assert not list(made.tree.rglob("notes.json"))
    assert (made.built_with_scripts, made.scripts_skipped) == (False, True)


def test_a_policy_that_says_never_is_not_talked_out_of_it(registry):
    recipe = node_package(registry)
    for policy in (None, SandboxPolicy()):
        with pytest.raises(PackageError, match="install scripts are off") as refused:
            fetch(registry, recipe, policy, scripts=True)
        assert refused.value.kind == "policy_denied"


def test_scripts_run_by_policy_and_reach_nothing_but_their_own_folder(registry):
    with open_staging(registry.home) as other:
        other.write_request("request.txt", "of another fetch")
        before = _list_files(registry.home)
        made = fetch(registry, node_package(registry), SECOND, scripts=True)
        notes = json.loads(next(made.tree.rglob("notes.json")).read_text())
        assert len(notes) == 8
        assert not any(notes.values()), notes
        shutil.rmtree(made.tree.parent)
        assert _list_files(registry.home) == before
    assert (made.built_with_scripts, made.scripts_skipped) == (True, False)
    assert select.select([registry.canary], [], [], 0)[0] == []


def _list_files(home):
    return {path: path.lstat().st_mtime_ns for path in home.rglob("*") if path.is_file()}


def test_nothing_of_an_artefact_lies_elsewhere_too(registry):
    """A file that a cache shares could be changed through the cache."""
    made = fetch(registry, registry.pypi("built", "built-1.0.0-py3-none-any.whl", wheel()))
    files = [path for path in made.tree.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    assert {path.stat().st_nlink for path in files} == {1}
    assert {path.name for path in made.tree.parent.iterdir()} == {"tree", "toolmill.json"}
    assert list((registry.home / "cache" / "staging").iterdir()) == []


GIT = "#!/usr/bin/python3\nimport urllib.request\nurllib.request.urlopen('{url}/ran')\n"


def git_package(registry, tmp_path):
    """A package whose dependency from git names a file of its own as the program git, and has
    itself a dependency from git so that it is started."""
    bare = _make_repository(registry.url, tmp_path / "evil")
    for path in bare.rglob("*"):
        if path.is_file():
            name = f"/evil.git/{path.relative_to(bare)}"
            registry.files[name] = ("application/octet-stream", path.read_bytes())
    files = {"package/main.js": "console.log('up')"}
    return registry.npm("built", {}, files, dependencies={"evil": f"git+{registry.url}/evil.git"})


def _make_repository(url, folder):
    folder.mkdir()
    about = {"name": "evil", "version": "1.0.0", "scripts": {"prepare": "true"}}
    about["devDependencies"] = {"more": f"git+{url}/more.git"}
    (folder / "package.json").write_text(json.dumps(about))
    (folder / ".npmrc").write_text("git=./evil.sh\n")
    (folder / "evil.sh").write_text(GIT.format(url=url))
    (folder / "evil.sh").chmod(0o755)
    who = ("-c", "user.name=x", "-c", "user.email=x@example.com")
    for words in (("init", "-q"), ("add", "."), (*who, "commit", "-qm", "x")):
        subprocess.run(("git", *words), cwd=folder, check=True)
    bare = folder.with_name("evil.git")
    subprocess.run(("git", "clone", "-q", "--bare", folder, bare), check=True)
    subprocess.run(("git", "update-server-info"), cwd=bare, check=True)
    return bare


def test_a_dependency_from_git_is_refused_unless_scripts_are_allowed(registry, tmp_path):
    if registry.toolchain.node is None or shutil.which("git") is None:
        pytest.skip("no Node or no git on this host")
    recipe = git_package(registry, tmp_path)
    with pytest.raises(PackageError) as refused:
        fetch(registry, recipe)
    assert refused.value.kind == "build_failed"
    assert not [path for path in registry.requests if "git" in path or path == "/ran"]


def test_one_that_is_allowed_does_not_choose_the_program_that_runs_as_git(registry, tmp_path):
    if registry.toolchain.node is None or shutil.which("git") is None:
        pytest.skip("no Node or no git on this host")
    recipe = git_package(registry, tmp_path)
    with pytest.raises(PackageError):  # more.git, which the real git does not find
        fetch(registry, recipe, SECOND, scripts=True)
    assert [path for path in registry.requests if path.startswith("/more.git")]
    assert "/ran" not in registry.requests


def test_with_and_without_scripts_are_two_artefacts(registry):
    recipe = node_package(registry)
    plain = fetch(registry, recipe, SECOND)
    built = fetch(registry, recipe, SECOND, scripts=True)
    assert plain.tree != built.tree
    assert artifact_digest(recipe, registry.toolchain) in str(plain.tree)
    assert artifact_digest(recipe, registry.toolchain, scripts=True) in str(built.tree)
    assert fetch(registry, recipe, SECOND) == plain  # both stay


def test_a_source_release_is_built_on_the_second_attempt_only(registry):
    recipe = source_release(registry)
    with pytest.raises(PackageError) as refused:
        fetch(registry, recipe)
    assert refused.value.kind == "build_failed"
    made = fetch(registry, recipe, SECOND)
    notes = json.loads(next(made.tree.rglob("built_notes.json")).read_text())
    assert not any(notes.values()), notes
    assert made.built_with_scripts
    assert made.argv == ("/srv/server/venv/bin/built",)


def test_a_wheel_is_preferred_even_where_builds_are_allowed(registry):
    made = fetch(registry, registry.pypi("built", "built-1.0.0-py3-none-any.whl", wheel()), SECOND)
    assert not made.built_with_scripts


def test_what_was_installed_is_named_by_its_files_not_its_number(registry):
    """The same release with other contents is another `locked`; the same contents the same."""
    name = "built-1.0.0-py3-none-any.whl"
    found = []
    for place, text in enumerate(["def main(): pass\n", "def main(): evil()\n"] * 2):
        registry.home = registry.home.with_name(f"home{place}")
        found.append(fetch(registry, registry.pypi("built", name, wheel(text))).locked)
    assert found[0] == found[2] != found[1] == found[3]


def test_another_file_than_the_pinned_one_is_refused(registry):
    name = "built-1.0.0-py3-none-any.whl"
    pinned = registry.pypi("built", name, wheel())
    registry.pypi("built", name, wheel("def main(): evil()\n"))
    with pytest.raises(PackageError) as refused:
        fetch(registry, pinned)
    assert refused.value.kind == "integrity"


TRAPS = {
    "a link in place of its folder": "os.rename('../..', '../../../moved');"
    " os.symlink('/etc', '../../../tree')",
    "a pipe in place of its package.json": "os.unlink('package.json'); os.mkfifo('package.json')",
    "a link in place of its package.json": "os.unlink('package.json');"
    " os.symlink('/etc/shadow', 'package.json')",
    "a pipe in place of npm's lock": "os.path.exists('../.package-lock.json');"
    " os.mkfifo('../../../toolmill.json')",
}


@pytest.mark.parametrize("name", TRAPS)
def test_what_a_script_leaves_for_us_to_step_into_harms_nobody(name, registry):
    """It ends, and what stands in the end is a folder of its own or a refusal."""
    recipe = node_package(registry, f"import os\n{TRAPS[name]}")
    kind, message, made = None, "", None
    try:
        made = fetch(registry, recipe, SECOND, scripts=True)
    except PackageError as error:
        kind, message = error.kind, str(error)
    assert kind in (None, "build_failed", "no_recipe", "fetch_failed", "integrity")
    assert "root:" not in message
    for folder in (registry.home / "artifacts").glob("*"):
        assert not (folder / "tree").is_symlink()
        assert not (folder / "toolmill.json").is_symlink()
    assert made is None or made.built_with_scripts


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
    given = SandboxPolicy(backend="docker", engine="podman", memory_mb=9)
    policy = fetch_policy(replace(given, fetch_hosts=("files.example",)))
    assert (policy.backend, policy.engine) == ("docker", "podman")
    assert policy.fetch_hosts == ("files.example",)
    assert policy.memory_mb == FETCH_POLICY.memory_mb
