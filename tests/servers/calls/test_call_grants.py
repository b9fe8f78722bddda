"""Calls of servers that their user granted something: what they reach, and what stays theirs."""

import os

import pytest

from assets.servers.deploy.grants import ServerGrant, mount_folders
from assets.servers.deploy.policy import DeployPolicy
from tests.serving.calling import PATIENT, Bench, said
from tests.support.untrusted_server import POLICY

WRITE = """
def do(m, x):
    try:
        with open(f"/home/user/data/{x}.txt", "a") as file:
            file.write("by the server\\n")
        say(m, sorted(os.listdir("/home/user/data")))
    except OSError as error:
        say(m, error, isError=True)
calls(do)
"""


@pytest.fixture
def bench(tmp_path, monkeypatch):
    return Bench(tmp_path, monkeypatch)


@pytest.fixture
def notes(tmp_path):
    folder = tmp_path / "notes"
    folder.mkdir(mode=0o700)
    if os.geteuid() == 0:
        os.chown(folder, 4242, 4242)
    return folder


async def test_a_call_writes_into_a_granted_folder_and_only_where_it_may(bench, notes):
    granted = {"npm:x": [f"{notes}:rw"], "npm:reader": [f"{notes}"]}
    grants = {
        name: ServerGrant(folders=mount_folders(folders), personal=True)
        for name, folders in granted.items()
    }
    policy = DeployPolicy(bench.folder / "home", POLICY, PATIENT, grants=grants)
    async with bench.launch(WRITE, policy=policy) as running:
        assert said(await running.call(1)) == "['1.txt']"
    async with bench.launch(WRITE, policy=policy, recipe={"name": "reader"}) as running:
        refused = await running.call(2)
    assert (refused.status, "Read-only file system" in said(refused)) == ("tool_error", True)
    assert [path.read_text() for path in notes.iterdir()] == ["by the server\n"]
