"""Pinning releases: what registries answer; and what the files of a package say."""

import json
import os
import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from assets.marketplaces.listing import PackageRef
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes import install, version_resolver
from assets.servers.recipes.fetch_phase import ToolExit, download
from assets.servers.recipes.package_files import read_command, read_licence
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.recipes.version_resolver import NpmRegistry, VersionResolver
from assets.servers.sandbox.toolchain import HostToolchain, find_toolchain
from tests.marketplaces.adapters.test_mcphub import mcpso_page, read_mcpso
from tests.marketplaces.site import Answer, site
from tests.support.cases import cases
from tests.support.errors import expect_kind
from tests.support.examples import examples, json_values
from tests.support.untrusted_server import POLICY
from warehouse.ledger.ledger import Ledger
from warehouse.storage.blobs import Blobs

SHA = "a" * 64
LOCK = '[[packages]]\nname = "x"\nsdist = { url = "u", upload-time = 2025-05-01T10:00:00Z }\n'


@pytest.fixture
def registry() -> Iterator[tuple[str, dict[str, object]]]:
    answers: dict[str, object] = {}

    def answer(path: str, _: int) -> Answer:
        found = answers.get(path)
        body = found if isinstance(found, bytes) else json.dumps(found).encode()
        return Answer(status=404) if found is None else Answer(body)

    with site(answer) as here:
        yield here.url, answers


@pytest.fixture
def resolver(tmp_path, registry):
    toolchain = HostToolchain(
        tmp_path / "python3.11", "3.11.7", tmp_path / "uv", tmp_path / "node", "20.0.0",
        tmp_path / "npm", fetch_env={"npm_config_registry": registry[0]},
        pythons={"3.12": tmp_path / "python3.12", "3.13": tmp_path / "python3.13"},
    )  # fmt: skip
    ledger = Ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"))
    return VersionResolver(tmp_path, toolchain, ledger, "n1")


def release(version: str) -> dict[str, object]:
    return {"version": version, "dist": {"integrity": f"sha512-{version}"}}


@cases(
    "name, version, path, answer, found",
    ("@scope/x", "1.2.3", "/@scope%2Fx/1.2.3", release("1.2.3"), ("1.2.3", None)),
    ("x", "1.2.3", "/x/latest", release("2.0.0"), ("2.0.0", "1.2.3")),
    ("x", None, "/x", {"dist-tags": {"latest": "3.0.0"}, "versions": {"3.0.0": release("3.0.0")}},
     ("3.0.0", None)),
    ids=["exact, in one request", "never published", "a registry without tags"],
)  # fmt: skip
def test_a_release_of_npm_is_pinned(resolver, registry, name, version, path, answer, found):
    registry[1][path] = answer
    pinned = resolver(PackageRef(type="npm", identifier=name, version=version))
    assert (pinned.version, pinned.instead_of) == found
    assert pinned.integrity == f"sha512-{pinned.version}"


@cases("bounds, version", ("^1.2", "1.4.0"), ("2", "2.1.0"), (">=1 <1.3", "1.2.0"), ("x", "3.0.0"))
def test_a_range_is_the_version_that_npm_takes(tmp_path, resolver, registry, bounds, version):
    host = find_toolchain()
    if host.node is None:
        pytest.skip("no Node on this host")
    resolver._toolchain = replace(resolver._toolchain, node=host.node, npm=host.npm)
    versions = {name: release(name) for name in ("1.2.0", "1.4.0", "2.1.0", "3.0.0", "4.0.0")}
    registry[1]["/x"] = {"dist-tags": {"latest": "3.0.0", "x": "3.0.0"}, "versions": versions}
    found = resolver(PackageRef(type="npm", identifier="x", version=bounds))
    assert (found.version, found.instead_of) == (version, None)


@cases("answer, kind", (None, "not_found"), (b"<html>", "fetch_failed"), ([], "fetch_failed"))
def test_what_a_registry_may_answer_else(resolver, registry, answer, kind):
    if answer is not None:
        registry[1]["/x/latest"] = answer
    with expect_kind(PackageError, kind):
        resolver(PackageRef(type="npm", identifier="x"))


def test_a_host_without_node_and_a_registry_out_of_reach_are_told_and_not_recorded(tmp_path):
    toolchain = HostToolchain(tmp_path / "python3.11", "3.11.7", tmp_path / "uv")
    ledger = Ledger(tmp_path / "ledger.db", Blobs(tmp_path / "blobs"))
    with expect_kind(PackageError, "needs_software", r"Node\.js 20"):
        VersionResolver(tmp_path, toolchain, ledger, "n1")(PackageRef(type="npm", identifier="x"))
    assert ledger.counts().get(("resolve", "done"), 0) == 0
    with expect_kind(PackageError, "fetch_failed"):
        NpmRegistry({}, "http://127.0.0.1:1").release("x", "latest")


@pytest.fixture
def uv(monkeypatch):
    """Answers uv's calls: (words of the command) -> (code, stdout, stderr)."""
    calls: list[tuple[str, ...]] = []
    answers = []

    def run(argv, **_):
        calls.append(argv)
        text = " ".join(argv)
        code, out, stderr = next(answer for words, answer in answers if words in text)
        return ToolExit(code, None, out, stderr, None)

    monkeypatch.setattr(version_resolver, "run_tool", run)
    return calls, answers


OK = (0, f"x==0.1.0 \\\n    --hash=sha256:{SHA}\n", "")
TOO_OLD = (1, "", "No solution found: x==0.1.0 depends on Python>=3.12, so … unsatisfiable.")


def test_a_python_release_has_its_hashes_and_its_date(resolver, uv):
    uv[1].extend([("pylock", (0, LOCK, "")), ("compile", OK)])
    found = resolver(PackageRef(type="pypi", identifier="X", version="0.1.0"))
    assert (found.version, found.integrity) == ("0.1.0", f"sha256:{SHA}")
    assert (found.python, found.released) == (None, "2025-05-01T10:00:00+00:00")


def test_the_nearest_python_that_will_do_is_taken(resolver, uv):
    uv[1].extend([("pylock", (0, LOCK, "")), ("python3.11", TOO_OLD), ("python3.12", OK)])
    assert resolver(PackageRef(type="pypi", identifier="x", version="0.1.0")).python == "3.12"


@cases(
    "stderr, kind",
    (TOO_OLD[2], "needs_software"),
    ("Because x was not found in the package registry …", "not_found"),
    ("error: dns failure", "fetch_failed"),
)
def test_what_uv_says_names_the_kind(resolver, uv, stderr, kind):
    uv[1].append(("compile", (1, "", stderr)))
    with expect_kind(PackageError, kind):
        resolver(PackageRef(type="pypi", identifier="x", version="0.1.0"))


def test_a_version_never_published_gives_way_and_bounds_reach_the_index(resolver, monkeypatch):
    absent = (1, "", "Because there is no version of x==9.9.9 … No solution found")

    def run(argv, staging, **_):
        if "pylock.toml" in argv:
            return ToolExit(0, None, LOCK, "", None)
        staged = staging.opened / "request.in"
        code, out, stderr = absent if "9.9.9" in staged.read_text() else OK
        return ToolExit(code, None, out, stderr, None)

    monkeypatch.setattr(version_resolver, "run_tool", run)
    found = resolver(PackageRef(type="pypi", identifier="x", version="9.9.9"))
    assert (found.version, found.instead_of) == ("0.1.0", "9.9.9")
    asked = []

    def note(argv, staging, **_):
        asked.append((staging.opened / "request.in").read_text())
        return ToolExit(0, None, LOCK if "pylock.toml" in argv else OK[1], "", None)

    monkeypatch.setattr(version_resolver, "run_tool", note)
    resolver(PackageRef(type="pypi", identifier="x", version=">=0.1,<2"))
    assert asked == ["x>=0.1,<2\n", "x==0.1.0\n"]


def test_the_pin_of_an_image_is_its_digest_or_that_which_an_engine_names(resolver, monkeypatch):
    pinned = f"ghcr.io/o/x:1.2@sha256:{SHA}"
    found = resolver(PackageRef(type="oci", identifier=pinned))
    assert (found.version, found.integrity) == ("1.2", f"sha256:{SHA}")
    monkeypatch.setattr(version_resolver.shutil, "which", lambda name: f"/usr/bin/{name}")
    assert resolve_image(0, f"sha256:{SHA}\n", "") == f"sha256:{SHA}"
    monkeypatch.setattr(version_resolver.shutil, "which", lambda _: None)
    with expect_kind(PackageError, "needs_software", "install one"):
        version_resolver.resolve_image_digest("docker.io/library/x:1")


@cases(
    "code, out, stderr, kind",
    (1, "", "ERROR: docker.io/library/x:1: not found", "not_found"),
    (1, "", "Cannot connect to the Docker daemon", "needs_software"),
    (1, "", "denied: requested access to the resource", "remote_auth"),
    (1, "", "dial tcp: i/o timeout", "fetch_failed"),
    (0, "nonsense", "", "fetch_failed"),
)
def test_a_tag_is_resolved_by_the_engine_or_says_why_not(monkeypatch, code, out, stderr, kind):
    monkeypatch.setattr(version_resolver.shutil, "which", lambda name: f"/usr/bin/{name}")
    with expect_kind(PackageError, kind):
        resolve_image(code, out, stderr)


def resolve_image(*answer):
    def run(argv):
        return subprocess.CompletedProcess(argv, *answer)

    return version_resolver.resolve_image_digest("docker.io/library/x:1", run)


def test_neither_a_page_nor_a_recipe_names_a_file_of_the_user(tmp_path, host):
    outside = "../../state/ledger.db"
    link = f'<a href="http://127.0.0.1:9/x.mcpb" data-sha256="{outside}">Get</a>'
    (listing,) = read_mcpso(mcpso_page(None) + link.encode())
    assert (listing.package.digest, "unpinned" in listing.flags) == (None, True)
    with pytest.raises(ValidationError, match="is not a SHA-256"):
        PackageRef(type="mcpb", identifier="http://127.0.0.1:9/x.mcpb", digest=f"sha256:{outside}")
    ledger_file = put(tmp_path / "state" / "ledger.db", "paid")  # what the page is after
    host.files["/x.mcpb"] = b"x"
    url = f"{host.url}/x.mcpb"
    with pytest.raises(ValueError, match="is not a SHA-256"):
        download(url, tmp_path / "cache" / "bundles", sha256=outside, allow_loopback=True)  # type: ignore[arg-type]
    about = {"server_id": "mcpb:x", "ecosystem": "mcpb", "name": url, "url": url}
    recipe = LaunchRecipe.model_validate({**about, "integrity": f"sha256:{outside}"})
    with expect_kind(PackageError, "integrity", "no digest of a bundle"):
        install.ensure_artifact(recipe, home=tmp_path, toolchain=find_toolchain(), policy=POLICY)
    assert (ledger_file.read_text(), host.requests) == ("paid", [])


def _command(tmp_path, **manifest):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return read_command(tmp_path, "/py", "/node")


def test_the_manifest_says_how_to_start_within_the_bundle_and_its_bounds(tmp_path):
    config = {
        "command": "node",
        "args": ["${__dirname}/s.js", "--dir=${user_config.dir}"],
        "env": {"KEY": "${user_config.api_key}", "N": "${user_config.n}"},
    }
    asked = {
        "api_key": {"type": "string", "sensitive": True, "required": True},
        "dir": {"type": "directory", "required": True},
        "n": {"type": "number", "default": 3},
    }
    found = _command(tmp_path, server={"mcp_config": config}, user_config=asked)
    assert found["argv"] == ["/node", "/srv/server/s.js", "--dir=/home/user/data"]
    assert found["env"]["KEY"].startswith("placeholder")
    assert found["env"]["N"] == "3"
    assert found["placeholders"] == ["user_config:api_key", "user_config:dir"]
    found = _command(tmp_path, server={"type": "python", "entry_point": "main.py"})
    assert found["argv"] == ["/py", "/srv/server/main.py"]
    with pytest.raises(PackageError):
        _command(tmp_path, server={"mcp_config": {"command": "../../bin/sh"}})
    large = {"user_config": {"a": {"default": "x" * 500_000}}}
    config = {"command": "python", "args": ["${user_config.a}" * 9]}
    with pytest.raises(PackageError, match="fill more than 1,048,576 characters"):
        _command(tmp_path, server={"mcp_config": config}, **large)


def test_a_manifest_is_read_from_the_bundle_itself_and_no_pipe_waited_for(tmp_path):
    host, tree = tmp_path / "host.json", tmp_path / "tree"
    host.write_text(json.dumps({"server": {"type": "python", "entry_point": "main.py"}}))
    tree.mkdir()
    for make, match in (
        (lambda path: path.symlink_to(host), r"manifest\.json: it is a link"),
        (os.mkfifo, r"manifest\.json: it is no plain file"),
        (lambda path: path.write_text(" " * (1 << 20) + "{}"), "larger than 1,048,576 bytes"),
    ):
        make(tree / "manifest.json")
        with pytest.raises(PackageError, match=match):
            read_command(tree, "/py", None)
        (tree / "manifest.json").unlink()


@cases(
    "manifest, named",
    ([], "all of it"),
    ({}, "server: Field required"),
    ({"server": "x"}, "server: "),
    ({"server": {"mcp_config": []}}, "server.mcp_config: "),
    ({"server": {"mcp_config": {"command": 7}}}, "server.mcp_config.command: "),
    ({"server": {"mcp_config": {"args": "x"}}}, "server.mcp_config.args: "),
    ({"server": {"mcp_config": {"args": ["a", ["b"]]}}}, "server.mcp_config.args.1: "),
    ({"server": {"mcp_config": {"env": ["A=1"]}}}, "server.mcp_config.env: "),
    ({"server": {"mcp_config": {"env": {"A": None}}}}, "server.mcp_config.env.A: "),
    ({"server": {"type": ["python"]}}, "server.type: "),
    ({"server": {"type": "python", "entry_point": {}}}, "server.entry_point: "),
    ({"server": {}, "user_config": ["a"]}, "user_config: "),
    ({"server": {}, "user_config": {"a": 1}}, "user_config.a: "),
)
def test_a_field_of_the_wrong_type_is_named(tmp_path, manifest, named):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with expect_kind(PackageError, "no_recipe") as refused:
        read_command(tmp_path, "/py", None)
    assert f"manifest.json: {named}" in str(refused.value)


values = json_values()
fields = ("server", "type", "entry_point", "mcp_config", "command", "args", "env", "user_config",
          "default", "required", "title")  # fmt: skip
names = st.sampled_from(fields)
nested = st.recursive(values, lambda of: st.dictionaries(names, of, max_size=4), max_leaves=12)


@examples(100)
@given(nested)
def test_any_manifest_is_a_command_or_a_clear_error(tmp_path_factory, manifest):
    folder = tmp_path_factory.mktemp("bundle")
    (folder / "manifest.json").write_text(json.dumps(manifest))
    try:
        found = read_command(folder, "/py", "/node")
    except PackageError as error:
        found = {"argv": [str(error)], "env": {"kind": error.kind}}
    assert all(isinstance(word, str) and word for word in found["argv"][:1])
    assert found["env"].get("kind") in (None, "build_failed", "no_recipe")


def recipe(ecosystem: str, name: str) -> LaunchRecipe:
    return LaunchRecipe.model_construct(ecosystem=ecosystem, name=name)


def put(path: Path, text: str) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


@cases(
    "stated, read",
    ("MIT", "MIT"),
    ({"type": "Apache-2.0", "url": "https://example.org"}, "Apache-2.0"),
    (["MIT"], None),
    ("", None),
    ("Permission is hereby granted " * 40, None),
    ("MIT\u0000", None),
    (7, None),
)
def test_an_npm_package_states_it_in_two_forms(tmp_path, stated, read):
    put(tmp_path / "node_modules/@a/b/package.json", json.dumps({"license": stated}))
    assert read_licence(recipe("npm", "@a/b"), tmp_path) == read


@cases(
    "metadata, read",
    ("License-Expression: MIT AND Apache-2.0\nLicense: other\n", "MIT AND Apache-2.0"),
    ("License: BSD-3-Clause\n", "BSD-3-Clause"),
    ("Classifier: License :: OSI Approved :: MIT License\n", "MIT License"),
    ("Name: demo\n", None),
)
def test_a_distribution_states_it_in_three_fields(tmp_path, metadata, read):
    packages = tmp_path / "venv/lib/python3.11/site-packages"
    put(packages / "my_server-1.0.dist-info/METADATA", metadata)
    put(packages / "other-1.0.dist-info/METADATA", "License: GPL-3.0-only\n")
    assert read_licence(recipe("pypi", "My-Server"), tmp_path) == read


def test_a_bundle_states_it_in_its_manifest(tmp_path):
    put(tmp_path / "manifest.json", json.dumps({"license": "Apache-2.0"}))
    assert read_licence(recipe("mcpb", "https://example.org/a.mcpb"), tmp_path) == "Apache-2.0"
    assert read_licence(recipe("remote", "https://example.org/mcp"), tmp_path) is None
    for broken in ("", "[" * 100_000, "null", "{"):
        put(tmp_path / "manifest.json", broken)
        assert read_licence(recipe("mcpb", "x"), tmp_path) is None
