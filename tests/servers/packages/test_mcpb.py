import json
import os

import pytest

from assets.servers.packages.mcpb import read_command
from assets.servers.probe.failure_kinds import PackageError


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
