import json
import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.package_files import read_command
from tests.support.examples import examples


def _command(tmp_path, **manifest):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    return read_command(tmp_path, "/py", "/node")


def test_the_manifest_says_how_to_start(tmp_path):
    found = _command(
        tmp_path,
        server={
            "mcp_config": {
                "command": "node",
                "args": ["${__dirname}/s.js", "--dir=${user_config.dir}"],
                "env": {"KEY": "${user_config.api_key}", "N": "${user_config.n}"},
            }
        },
        user_config={
            "api_key": {"type": "string", "sensitive": True, "required": True},
            "dir": {"type": "directory", "required": True},
            "n": {"type": "number", "default": 3},
        },
    )
    assert found["argv"] == ["/node", "/srv/server/s.js", "--dir=/home/user/data"]
    assert found["env"]["KEY"].startswith("placeholder")
    assert found["env"]["N"] == "3"
    assert found["placeholders"] == ["user_config:api_key", "user_config:dir"]


def test_a_manifest_without_a_command_is_started_by_its_type(tmp_path):
    found = _command(tmp_path, server={"type": "python", "entry_point": "main.py"})
    assert found["argv"] == ["/py", "/srv/server/main.py"]


@pytest.mark.parametrize(
    "server",
    [None, [], {"mcp_config": {"command": 7}}, {"mcp_config": {"command": "../../bin/sh"}}],
)
def test_an_unusable_manifest_is_refused(tmp_path, server):
    with pytest.raises(PackageError):
        _command(tmp_path, server=server)


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


@pytest.mark.parametrize(
    ("manifest", "named"),
    [
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
    ],
)
def test_a_field_of_the_wrong_type_is_named(tmp_path, manifest, named):
    (tmp_path / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(PackageError) as refused:
        read_command(tmp_path, "/py", None)
    assert refused.value.kind == "no_recipe"
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
