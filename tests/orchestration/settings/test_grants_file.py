"""What `toolmill grant` writes: one block of toolmill.toml, and no other line of it."""

import os
import subprocess
import sys
import tomllib
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orchestration.settings.grants_file import GrantChange, GrantRefused, change_block, write_block

NAME = "npm:@scope/x"
FILE = """# mine
source = "live"   # as it is

[sandbox]
memory_mb = 512  # enough

[servers."npm:@scope/x"]  # the one
env = { KEY = "env:MY_KEY" }   # where it is
network = "none"

[servers.'npm:y']
folders = [
  "/srv/notes",  # to read
]

[serve.calls]
enabled = true
"""


def write(path: Path, **change) -> None:
    write_block(path, NAME, GrantChange(**change), lambda _: None)


def test_every_other_line_stays_as_it_was(tmp_path):
    path = tmp_path / "toolmill.toml"
    path.write_text(FILE)
    path.chmod(0o640)
    write(path, folders=["/srv/notes", "/srv/work:rw"], hosts=["API.example.com"], volume=True)
    lines = path.read_text().splitlines()
    assert [line for line in FILE.splitlines() if line not in lines] == []
    added = [line for line in lines if line not in FILE.splitlines()]
    assert added == [
        'folders = ["/srv/notes", "/srv/work:rw"]',
        'hosts = ["api.example.com"]',
        "volume = true",
    ]
    assert path.stat().st_mode & 0o777 == 0o640
    write(path, revoke=True)
    assert path.read_text().splitlines() == [
        line for line in FILE.splitlines() if line != 'network = "none"'
    ]


def test_a_file_is_made_where_there_is_none(tmp_path):
    path = tmp_path / "toolmill.toml"
    write(path, hosts=["api.example.com"])
    assert tomllib.loads(path.read_text()) == {"servers": {NAME: {"hosts": ["api.example.com"]}}}
    write(path, hosts=["api.example.com"], revoke=True)
    assert tomllib.loads(path.read_text()).get("servers", {}) == {}


@pytest.mark.parametrize(
    "text",
    [
        'servers = { "npm:@scope/x" = { stateless = true }, "npm:y" = { network = "full" } }\n',
        'servers."npm:@scope/x".stateless = true\nhome = "var"\n',
        '[servers]\n"npm:y" = { network = "full" }\n[demo]\nday = 2\n',
        '[servers."npm:y"]\nnetwork = "full"\n[demo]\nday = 2\n[servers."npm:@scope/x"]\n',
        '[servers."npm:@scope/x".env]\nKEY = "env:MY_KEY"\n',
        "# nothing but this",
        "home = 'var'\r\n[demo]\r\nday = 2\r\n",
    ],
)
def test_whatever_form_a_file_has_only_the_block_changes_or_it_is_left_alone(tmp_path, text):
    path = tmp_path / "toolmill.toml"
    path.write_bytes(text.encode())
    before = tomllib.loads(text)
    problem = None
    try:
        write(path, network="full")
    except GrantRefused as refused:
        problem = str(refused)
    if problem:
        assert path.read_bytes() == text.encode()
        assert f'[servers."{NAME}"] network = "full"' in problem
        return
    after = tomllib.loads(path.read_bytes().decode())
    block = after["servers"].pop(NAME)
    expected = before.get("servers", {}).pop(NAME, {})
    assert block == {**expected, "network": "full"}
    before.setdefault("servers", {})
    assert after == before
    comments = [line for line in text.splitlines() if line.startswith("#")]
    assert all(line in path.read_text() for line in comments)


PATHS = st.sampled_from(["/srv/a", "/srv/b:rw", "/srv/c"])
HOSTS = st.sampled_from(["a.example", "b.example:80", "10.0.0.1"])


@given(
    st.lists(PATHS, max_size=3), st.lists(HOSTS, max_size=3), st.booleans(), st.dictionaries(
        st.sampled_from(["stateless", "provider"]), st.just("kept"), max_size=2
    )
)  # fmt: skip
def test_what_is_granted_is_taken_back_whole(folders, hosts, volume, rest):
    change = {"folders": folders, "hosts": hosts, "volume": volume}
    granted = change_block(rest, GrantChange(**change))
    assert change_block(granted, GrantChange(**change)) == granted
    assert {name: granted[name] for name in rest} == rest
    assert change_block(granted, GrantChange(**change, revoke=True)) == rest
    assert change_block(granted, GrantChange(revoke=True)) == rest


def test_a_folder_is_granted_anew_in_its_place_and_a_relative_one_is_below_where_it_is_typed():
    block = change_block({}, GrantChange(["/srv/a", "/srv/b"]))
    block = change_block(block, GrantChange(["/srv/a:rw", "notes"], here=Path("/home/me")))
    assert block == {"folders": ["/srv/a:rw", "/srv/b", "/home/me/notes"]}


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"folders": ["/"]}, "a home folder"),
        ({"hosts": ["https://a.example"]}, "its scheme"),
        ({"hosts": ["a.example"], "network": "full"}, "leave one of the two out"),
        ({"folders": ["/srv/a/x", "/srv/b/x", "/srv/c/x"]}, "both are /home/user/x"),
        ({"folders": ["/srv/none"], "revoke": True}, "/srv/none is not granted"),
        ({"hosts": ["none.example"], "revoke": True}, "none.example is not granted"),
    ],
)
def test_what_cannot_be_granted_leaves_the_file_as_it_was(tmp_path, change, problem):
    path = tmp_path / "toolmill.toml"
    path.write_text(FILE)
    with pytest.raises(GrantRefused, match=problem):
        write(path, **change)
    assert path.read_text() == FILE


def test_a_kill_in_the_middle_of_a_write_leaves_the_old_file_or_the_new_one(tmp_path):
    """Killed as its data is written, before it has its name."""
    path = tmp_path / "toolmill.toml"
    path.write_text(FILE)
    source = (
        "import os, sys, signal\nfrom pathlib import Path\n"
        "os.fsync = lambda _: os.kill(os.getpid(), signal.SIGKILL)\n"
        "from orchestration.settings.grants_file import GrantChange, write_block\n"
        f"write_block(Path(sys.argv[1]), {NAME!r}, GrantChange(volume=True), lambda _: None)\n"
    )
    killed = subprocess.run([sys.executable, "-c", source, str(path)], timeout=60, check=False)
    assert (killed.returncode, path.read_text()) == (-9, FILE)
    write(path, volume=True)  # what held the lock is gone
    assert tomllib.loads(path.read_text())["servers"][NAME]["volume"] is True


def test_a_link_to_the_file_stays_one(tmp_path):
    real, link = tmp_path / "dotfiles.toml", tmp_path / "toolmill.toml"
    real.write_text(FILE)
    link.symlink_to(real)
    write(link, volume=True)
    assert link.is_symlink()
    assert "volume = true" in real.read_text()
    assert os.listdir(tmp_path).count("toolmill.toml") == 1
