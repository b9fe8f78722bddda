"""The fetch phase: registries on loopback, whose packages run no script, and bundles."""

import base64
import hashlib
import io
import json
import os
import shutil
import socket
import stat
import tarfile
import threading
import zipfile
from contextlib import contextmanager, suppress
from dataclasses import replace
from uuid import uuid4

import pytest

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes import fetch_phase, unpack
from assets.servers.recipes.fetch_phase import FETCH_POLICY, download, fetch_policy, open_staging
from assets.servers.recipes.install import _digest_installed, ensure_artifact, list_installed
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.recipes.unpack import BundleRefused, extract_bundle
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.marketplaces.site import Answer, site
from tests.servers.conftest import bundle
from tests.support.cases import cases
from tests.support.errors import expect_kind
from tests.support.untrusted_server import require_sandbox
from warehouse.network.egress import EgressConnector


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

    def wheel(self, text="def main(): pass\n", name="built", more=""):
        return self.pypi(name, f"{name}-1.0.0-py3-none-any.whl", wheel(text, name, more))


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


def wheel(text, name, more):
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


MAIN = {"package/main.js": "console.log('up')"}


def test_no_install_script_runs_and_no_dependency_from_git_is_fetched(registry):
    if registry.toolchain.node is None:
        pytest.skip("no Node on this host")
    scripts = {"install": "touch ran", "postinstall": "touch ran"}
    made = fetch(registry, registry.npm("built", scripts, MAIN))
    assert made.argv[-1].endswith("/built/main.js")
    assert not list(made.tree.rglob("ran"))
    if registry.toolchain.node is None or shutil.which("git") is None:
        pytest.skip("no Node or no git on this host")
    evil = {"evil": f"git+{registry.url}/evil.git"}
    recipe = registry.npm("built", {}, MAIN, dependencies=evil)
    with expect_kind(PackageError, "build_failed"):
        fetch(registry, recipe)
    assert not [path for path in registry.requests if "git" in path]


def test_a_source_release_is_not_built(registry):
    project = '[build-system]\nrequires = []\nbuild-backend = "backend"\nbackend-path = ["."]\n'
    project += '[project]\nname = "built"\nversion = "1.0.0"\n'
    files = {
        "built-1.0.0/pyproject.toml": project,
        "built-1.0.0/backend.py": "open('/fetch/tree/ran', 'w')\n",
        "built-1.0.0/PKG-INFO": METADATA,
    }
    with expect_kind(PackageError, "build_failed"):
        fetch(registry, registry.pypi("built", "built-1.0.0.tar.gz", tarball(files)))
    assert not (registry.home / "artifacts").exists()


def test_nothing_of_an_artefact_lies_elsewhere_too(registry):
    """A file that a cache shares could be changed through the cache."""
    made = fetch(registry, registry.wheel())
    files = [path for path in made.tree.rglob("*") if path.is_file() and not path.is_symlink()]
    assert files
    assert {path.stat().st_nlink for path in files} == {1}
    assert {path.name for path in made.tree.parent.iterdir()} == {"tree", "toolmill.json"}
    assert list((registry.home / "cache" / "staging").iterdir()) == []


def test_what_was_installed_is_named_by_its_files_with_extras_and_requirements(registry):
    """The same release with other contents is another `locked`; the same contents the same."""
    found = []
    for place, text in enumerate(["def main(): pass\n", "def main(): evil()\n"] * 2):
        registry.home = registry.home.with_name(f"home{place}")
        found.append(fetch(registry, registry.wheel(text)).locked)
    assert found[0] == found[2] != found[1] == found[3]
    for name in ("further", "extra"):
        registry.wheel(name=name)
    more = "Provides-Extra: cli\nRequires-Dist: extra; extra == 'cli'\n"
    plain = registry.wheel(more=more)
    asked = plain.model_copy(update={"requirements": ("built[cli]", "further<2")})
    assert set(list_installed(fetch(registry, plain).tree)) == {"built"}
    assert set(list_installed(fetch(registry, asked).tree)) == {"built", "further", "extra"}


def test_another_file_than_the_pinned_one_is_refused(registry):
    pinned = registry.wheel()
    registry.wheel("def main(): evil()\n")
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
    assert (policy.backend, policy.fetch_hosts) == ("none", ("files.example",))
    assert policy.memory_mb == FETCH_POLICY.memory_mb


@contextmanager
def _drip(head):
    """A host that sends a head, then a byte every few milliseconds, for as long as one listens."""
    done = threading.Event()
    with socket.create_server(("127.0.0.1", 0)) as server:

        def serve():
            connection, _ = server.accept()
            with connection, suppress(OSError):
                connection.sendall(head)
                for _ in range(3000):
                    connection.sendall(b"x")
                    if done.wait(0.02):
                        return

        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        yield f"http://127.0.0.1:{server.getsockname()[1]}/"
        done.set()
        thread.join()


def test_a_download_is_kept_by_its_hash_and_not_repeated(tmp_path, host):
    host.files["/a"] = b"data"
    path, sha = download(f"{host.url}/a", tmp_path, allow_loopback=True)
    assert path.read_bytes() == b"data"
    download(f"{host.url}/a", tmp_path, sha256=sha, allow_loopback=True)
    assert (host.requests, [p.name for p in tmp_path.iterdir()]) == (["/a"], [sha])


@cases(
    "path, limits, kind",
    ("/none", {}, "not_found"),
    ("/a", {"sha256": "0" * 64}, "integrity"),
    ("/big", {"max_mb": 1}, "oversize"),
)
def test_a_download_that_fails_has_its_kind_and_leaves_nothing(tmp_path, host, path, limits, kind):
    host.files |= {"/a": b"data", "/big": b"x" * (2 << 20)}
    with expect_kind(PackageError, kind):
        download(host.url + path, tmp_path, allow_loopback=True, **limits)
    assert list(tmp_path.iterdir()) == []

    with expect_kind(PackageError, "fetch_failed"):
        download("http://127.0.0.1:9/x", tmp_path, allow_loopback=True)


def test_a_bundle_at_a_private_address_is_not_asked_for(tmp_path, host):
    for url in (f"{host.url}/a", host.url.replace("127.0.0.1", "localhost"), "http://10.0.0.1/a"):
        with expect_kind(PackageError, "fetch_failed", "not a public address"):
            download(url, tmp_path)
    assert host.requests == []


def test_only_the_bundle_as_it_is_is_taken_and_of_redirects_few_and_no_body(tmp_path):
    packed = Answer(b"small", headers={"Content-Encoding": "zstd"})
    with site(lambda *_: packed) as host:
        with expect_kind(PackageError, "fetch_failed", "in the encoding 'zstd'"):
            download(host.url, tmp_path, allow_loopback=True)
        assert host.headers[0]["Accept-Encoding"] == "identity"
    assert list(tmp_path.iterdir()) == []
    with site(lambda *_: Answer(status=302, headers={"Location": "/again"})) as host:
        with pytest.raises(PackageError, match="more than 5 redirects"):
            download(host.url, tmp_path, allow_loopback=True)
        assert len(host.paths) == 6
    # The client decodes what it reads: this one would be no gzip.

    def answer(path, _):
        moved = {"Location": "/there", "Content-Encoding": "gzip"}
        return Answer("there") if path == "/there" else Answer("no gzip", 302, headers=moved)

    with site(answer) as host:
        path, _ = download(host.url, tmp_path, allow_loopback=True)
    assert path.read_bytes() == b"there"


async def _find_addresses(connector, host, _):
    return ["127.0.0.1"] if host == "public.example" else connector.judge(host, [host])


def test_a_redirect_is_judged_like_the_first_address(tmp_path, monkeypatch):
    with site(lambda *_: Answer("secret")) as inside:
        moved = {"Location": inside.url}
        with site(lambda *_: Answer(status=302, headers=moved)) as outside:
            # A public host, played by this machine: the allowance is for URLs on loopback only.
            monkeypatch.setattr(EgressConnector, "find_addresses", _find_addresses)
            port = outside.url.rpartition(":")[2]
            with pytest.raises(PackageError, match=r"127\.0\.0\.1, which is not a public address"):
                download(f"http://public.example:{port}/", tmp_path, allow_loopback=True)
            assert len(outside.paths) == 1
        assert inside.paths == []


def test_one_deadline_holds_over_headers_and_body(tmp_path):
    """A byte a second held it past 75 s: each read was in time."""
    for sent in (b"HTTP/1.1 200 OK\r\nX: ", b"HTTP/1.1 200 OK\r\nContent-Length: 9000\r\n\r\n"):
        with _drip(sent) as url, expect_kind(PackageError, "fetch_failed", "not done in"):
            download(url, tmp_path, allow_loopback=True, deadline_s=0.3)
    assert list(tmp_path.iterdir()) == []


def test_nothing_is_written_over_or_through_a_link_and_what_was_first_published_stays(tmp_path):
    with open_staging(tmp_path) as staging:
        (staging.opened / "there").write_text("old")
        (staging.opened / "link").symlink_to(tmp_path / "host")
        for name in ("there", "link"):
            with pytest.raises(FileExistsError):
                staging.write_request(name, "new")
        assert (staging.opened / "there").read_text() == "old"
    assert not (tmp_path / "host").exists()
    with open_staging(tmp_path) as staging:
        staging.tree.rmdir()
        staging.tree.symlink_to("/etc")
        with pytest.raises(PackageError, match="in place of its folder"):
            staging.publish({}, tmp_path / "artifacts" / "x")
    assert not (tmp_path / "artifacts" / "x").exists()
    for text in ("first", "second"):
        with open_staging(tmp_path) as staging:
            (staging.tree / "a").write_text(text)
            staging.publish({}, tmp_path / "artifacts" / "x")
    assert (tmp_path / "artifacts/x" / fetch_phase.TREE / "a").read_text() == "first"


@cases("name", "sealed", "toolmill.json", "tree/toolmill.json")
def test_the_manifest_is_written_where_no_tool_could_leave_a_link(tmp_path, name):
    host = tmp_path / "host"
    host.write_text("old")
    with open_staging(tmp_path) as staging:
        (staging.opened / name).symlink_to(host)
        staging.publish({"a": 1}, tmp_path / "artifacts" / "x")
    assert host.read_text() == "old"
    assert (tmp_path / "artifacts/x/toolmill.json").read_text() == '{"a": 1}'
    assert not (tmp_path / "artifacts/x/toolmill.json").is_symlink()
    assert list((tmp_path / "cache/staging").iterdir()) == []


def _zip(folder, entries, method=zipfile.ZIP_STORED):
    """(a bundle of these entries, a new folder to unpack it into)."""
    path, out = folder / f"{uuid4()}.mcpb", folder / f"out-{uuid4()}"
    with zipfile.ZipFile(path, "w", method) as archive:
        for entry, data in entries:
            archive.writestr(entry, data)
    out.mkdir()
    return path, out


def _entry(name, kind):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (kind | 0o777) << 16
    return entry


def test_files_keep_their_folders_and_what_is_no_zip_or_comes_twice_is_refused(tmp_path):
    program = _entry("bin/run", stat.S_ISUID)
    packed, out = _zip(tmp_path, [(program, "x"), ("lib/a.py", "y"), ("empty/", "")])
    extract_bundle(packed, out)
    assert (out / "lib/a.py").read_text() == "y"
    assert (out / "empty").is_dir()
    assert os.stat(out / "bin/run").st_mode & 0o7777 == 0o755
    for damage in (b"<html>", b"", b"PK\5\6" + b"\xff" * 18):
        (tmp_path / "b").write_bytes(damage)
        with pytest.raises(BundleRefused, match="no readable zip"):
            extract_bundle(tmp_path / "b", tmp_path)
    packed, out = _zip(tmp_path, [("a", os.urandom(9) * 99)], zipfile.ZIP_DEFLATED)
    body = bytearray(packed.read_bytes())
    body[31:41] = b"\xff" * 10
    packed.write_bytes(body)
    with pytest.raises(BundleRefused, match="no readable zip"):
        extract_bundle(packed, out)
    with pytest.warns(UserWarning, match="Duplicate"):
        refuse_zip(tmp_path, [("a", "1"), ("a", "2")], "")
    packed, out = _zip(tmp_path, [("a", "new")])
    (tmp_path / "host").write_text("old")
    (out / "a").symlink_to(tmp_path / "host")
    with pytest.raises(BundleRefused):
        extract_bundle(packed, out)
    assert (tmp_path / "host").read_text() == "old"


@cases(
    "entry",
    *("../x", "a/../../x", "/etc/x", "..\\x", "C:\\x"),
    *(_entry("link", stat.S_IFLNK), _entry("pipe", stat.S_IFIFO)),
    ids=str,
)
def test_an_entry_that_points_out_is_refused(tmp_path, entry):
    out = refuse_zip(tmp_path, [(entry, "/etc/passwd")], r"points out|is a link|neither")
    assert list(out.iterdir()) == []
    assert not (tmp_path / "x").exists()


def refuse_zip(folder, entries, match, method=zipfile.ZIP_DEFLATED):
    """Where nothing of it, or the beginning, was unpacked."""
    packed, out = _zip(folder, entries, method)
    with pytest.raises(BundleRefused, match=match):
        extract_bundle(packed, out)
    return out


def test_a_bomb_is_refused_while_it_unpacks(tmp_path, monkeypatch):
    monkeypatch.setattr(unpack, "MAX_UNPACKED_MB", 1)
    out = refuse_zip(tmp_path, [("zeros", b"\0" * (4 << 20))], "more than 1 MB")
    assert (out / "zeros").stat().st_size <= 1 << 20


@cases("method", zipfile.ZIP_BZIP2, zipfile.ZIP_LZMA)
def test_methods_that_expand_without_a_bound_are_refused(tmp_path, method):
    zeros = [("zeros", b"\0" * (4 << 20))]
    out = refuse_zip(tmp_path, zeros, "another method than deflate", method)
    assert list(out.iterdir()) == []


@cases("names", ["a/b/c/d/e/f"], [f"{n}/" for n in range(6)], list("abcdef"), ids=["deep", "", "b"])
def test_folders_count_like_files(tmp_path, monkeypatch, names):
    monkeypatch.setattr(unpack, "MAX_ENTRIES", 5)
    out = refuse_zip(tmp_path, [(name, "") for name in names], "more than 5 files and folders")
    assert len(list(out.rglob("*"))) <= 5


def _fetch(host, tmp_path, body):
    require_sandbox()
    host.files["/b.mcpb"] = body
    about = {"server_id": "mcpb:b", "ecosystem": "mcpb", "name": "b", "version": "1"}
    recipe = LaunchRecipe.model_validate({**about, "url": f"{host.url}/b.mcpb"})
    policy = SandboxPolicy(allow_loopback=True)
    return ensure_artifact(recipe, home=tmp_path, toolchain=find_toolchain(), policy=policy)


def test_a_bundle_is_unpacked_in_the_sandbox(tmp_path, host):
    made = _fetch(host, tmp_path, bundle("pass"))
    assert "pass" in (made.tree / "main.py").read_text()
    assert {path.name for path in made.tree.parent.iterdir()} == {"tree", "toolmill.json"}


def test_a_directory_of_millions_of_names_meets_the_limit_of_the_sandbox(tmp_path, host):
    """Each name costs half a kilobyte before it can be counted: here 120 MB of them."""
    record = b"PK\1\2" + bytes(24) + (1).to_bytes(2, "little") + bytes(16) + b"a"
    count = 1 << 20
    end = b"PK\5\6" + bytes(4) + b"\xff\xff" * 2
    end += (len(record) * count).to_bytes(4, "little") + bytes(6)
    with pytest.raises(PackageError, match=r"no readable zip|limit") as caught:
        _fetch(host, tmp_path, record * count + end)
    assert caught.value.kind in ("build_failed", "fetch_failed")
