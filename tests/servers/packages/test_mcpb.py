import json
import os
import stat
import zipfile

import pytest

from assets.servers.packages import mcpb as bundles
from assets.servers.packages.download import download
from assets.servers.packages.mcpb import extract_bundle, read_command
from assets.servers.probe.failure_kinds import PackageError


def _zip(path, entries):
    with zipfile.ZipFile(path, "w") as archive:
        for entry, data in entries:
            archive.writestr(entry, data)
    return path


def _link(name):
    entry = zipfile.ZipInfo(name)
    entry.external_attr = (stat.S_IFLNK | 0o777) << 16
    return entry


def test_files_keep_their_folders_and_whether_they_run(tmp_path):
    program = zipfile.ZipInfo("bin/run")
    program.external_attr = 0o4755 << 16
    _zip(tmp_path / "b", [(program, "x"), ("lib/a.py", "y")])
    (tmp_path / "out").mkdir()
    extract_bundle(tmp_path / "b", tmp_path / "out")
    assert (tmp_path / "out/lib/a.py").read_text() == "y"
    assert os.stat(tmp_path / "out/bin/run").st_mode & 0o7777 == 0o755


@pytest.mark.parametrize(
    "entry", ["../x", "a/../../x", "/etc/x", "..\\x", "C:\\x", _link("link")], ids=str
)
def test_an_entry_that_points_out_is_refused(tmp_path, entry):
    _zip(tmp_path / "b", [(entry, "/etc/passwd")])
    (tmp_path / "out").mkdir()
    with pytest.raises(PackageError, match=r"points out|is a link"):
        extract_bundle(tmp_path / "b", tmp_path / "out")
    assert not (tmp_path / "x").exists()


def test_a_bomb_is_refused_while_it_unpacks(tmp_path, monkeypatch):
    monkeypatch.setattr(bundles, "MAX_UNPACKED_MB", 1)
    with zipfile.ZipFile(tmp_path / "b", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("zeros", b"\0" * (4 << 20))
    (tmp_path / "out").mkdir()
    with pytest.raises(PackageError, match="more than 1 MB"):
        extract_bundle(tmp_path / "b", tmp_path / "out")


def test_what_is_no_zip_says_so(tmp_path):
    (tmp_path / "b").write_text("<html>")
    with pytest.raises(PackageError, match="no readable zip"):
        extract_bundle(tmp_path / "b", tmp_path)


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


def test_a_download_is_kept_by_its_hash_and_not_repeated(tmp_path, host):
    host.files["/a"] = b"data"
    path, sha = download(f"{host.url}/a", tmp_path, allow_loopback=True)
    assert path.read_bytes() == b"data"
    download(f"{host.url}/a", tmp_path, sha256=sha, allow_loopback=True)
    assert host.requests == ["/a"]
    assert [p.name for p in tmp_path.iterdir()] == [sha]


@pytest.mark.parametrize(
    ("path", "limits", "kind"),
    [
        ("/none", {}, "not_found"),
        ("/a", {"sha256": "0" * 64}, "integrity"),
        ("/big", {"max_mb": 1}, "oversize"),
    ],
)
def test_a_download_that_fails_has_its_kind_and_leaves_nothing(tmp_path, host, path, limits, kind):
    host.files |= {"/a": b"data", "/big": b"x" * (2 << 20)}
    with pytest.raises(PackageError) as caught:
        download(host.url + path, tmp_path, allow_loopback=True, **limits)
    assert caught.value.kind == kind
    assert list(tmp_path.iterdir()) == []


def test_a_host_that_is_down_is_a_failed_fetch(tmp_path):
    with pytest.raises(PackageError) as caught:
        download("http://127.0.0.1:9/x", tmp_path, allow_loopback=True)
    assert caught.value.kind == "fetch_failed"


def test_a_bundle_at_a_private_address_is_not_asked_for(tmp_path, host):
    for url in (f"{host.url}/a", host.url.replace("127.0.0.1", "localhost"), "http://10.0.0.1/a"):
        with pytest.raises(PackageError, match="not a public address") as caught:
            download(url, tmp_path)
        assert caught.value.kind == "fetch_failed"
    assert host.requests == []
