"""The licence a package states, in each place where it may stand, and nothing read elsewhere."""

import json
import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.package_files import read_command, read_licence
from assets.servers.recipes.recipe import LaunchRecipe
from tests.support.cases import cases
from tests.support.errors import expect_kind
from tests.support.examples import examples


def _command(tmp_path, **manifest):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return read_command(tmp_path, "/py", "/node")


def test_the_manifest_says_how_to_start(tmp_path):
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


def test_a_manifest_without_a_command_is_started_by_its_type(tmp_path):
    found = _command(tmp_path, server={"type": "python", "entry_point": "main.py"})
    assert found["argv"] == ["/py", "/srv/server/main.py"]


def test_a_command_outside_of_the_bundle_is_refused(tmp_path):
    with pytest.raises(PackageError):
        _command(tmp_path, server={"mcp_config": {"command": "../../bin/sh"}})


def test_a_manifest_is_read_from_the_bundle_itself_and_no_pipe_waited_for(tmp_path):
    host, tree = tmp_path / "host.json", tmp_path / "tree"
    host.write_text(json.dumps({"server": {"type": "python", "entry_point": "main.py"}}))
    tree.mkdir()
    (tree / "manifest.json").symlink_to(host)
    with pytest.raises(PackageError, match=r"manifest\.json: it is a link"):
        read_command(tree, "/py", None)
    (tree / "manifest.json").unlink()
    os.mkfifo(tree / "manifest.json")
    with pytest.raises(PackageError, match=r"manifest\.json: it is no plain file"):
        read_command(tree, "/py", None)
    (tree / "manifest.json").unlink()
    (tree / "manifest.json").write_text(" " * (1 << 20) + "{}")
    with pytest.raises(PackageError, match="larger than 1,048,576 bytes"):
        read_command(tree, "/py", None)


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


values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=4),
    lambda of: st.lists(of, max_size=2) | st.dictionaries(st.text(max_size=3), of, max_size=2),
)
fields = ("server", "type", "entry_point", "mcp_config", "command", "args", "env", "user_config",
          "default", "required", "title")  # fmt: skip
nested = st.recursive(
    values, lambda of: st.dictionaries(st.sampled_from(fields), of, max_size=4), max_leaves=12
)


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


def test_what_the_values_fill_is_bounded(tmp_path):
    large = {"user_config": {"a": {"default": "x" * 500_000}}}
    config = {"command": "python", "args": ["${user_config.a}" * 9]}
    with pytest.raises(PackageError, match="fill more than 1,048,576 characters"):
        _command(tmp_path, server={"mcp_config": config}, **large)


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


@cases("text", "", "[" * 100_000, "null", "{")
def test_a_broken_manifest_states_nothing(tmp_path, text):
    put(tmp_path / "manifest.json", text)
    assert read_licence(recipe("mcpb", "x"), tmp_path) is None
