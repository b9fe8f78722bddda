"""Calls of servers that their user granted something: what they reach, and what stays theirs."""

import os

import pytest

from assets.servers.deploy.grants import ServerGrant, mount_folders
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.secrets import SecretSources, ServerSecrets
from tests.marketplaces.site import Answer, site
from tests.serving.calling import CONTRACT, PATIENT, Bench, read_text
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
    monkeypatch.setattr("assets.servers.calls.connection.VOLUME_WAIT_S", 0.2)
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
        assert read_text(await running.call(1)) == "['1.txt']"
    async with bench.launch(WRITE, policy=policy, recipe={"name": "reader"}) as running:
        refused = await running.call(2)
    assert (refused.status, "Read-only file system" in read_text(refused)) == ("tool_error", True)
    assert [path.read_text() for path in notes.iterdir()] == ["by the server\n"]


COUNT = """
def do(m, x):
    with open(os.path.expanduser("~/count.txt"), "a") as file:
        file.write("x")
    say(m, os.path.getsize(os.path.expanduser("~/count.txt")))
calls(do)
"""


async def test_a_volume_outlives_its_session_and_two_owners_share_what_it_keeps(bench):
    granted = {"npm:x": ServerGrant(volume=True, personal=True)}
    policy = DeployPolicy(bench.folder / "home", POLICY, PATIENT, grants=granted)
    async with bench.launch(COUNT, policy=policy) as running:
        assert read_text(await running.call()) == "1"
        more = ("npm:x", "do", CONTRACT, {"x": 1})
        assert read_text(await running.caller.call(*more, owner="another")) == "2"
        async with bench.launch_again(policy) as second:
            held = await second.call()
            assert (held.error_kind, "held by a session" in str(held.hint)) == ("busy", True)
    async with bench.launch_again(policy) as running:
        assert read_text(await running.call()) == "3"


FETCH = """
import urllib.request
def do(m, x):
    try:
        say(m, urllib.request.urlopen(URLS[x], timeout=10).read().decode())
    except Exception as error:
        say(m, error, isError=True)
calls(do)
"""


async def test_a_host_that_a_call_was_refused_is_named_with_the_command_that_grants_it(bench):
    with site(lambda *_: Answer("granted")) as here, site(lambda *_: Answer("secret")) as other:
        near, far = (one.url.rpartition(":")[2] for one in (here, other))
        source = f"URLS = ['http://localhost:{near}', 'http://localhost:{far}']\n" + FETCH
        granted = {"npm:x": ServerGrant(hosts=(f"localhost:{near}",), personal=True)}
        policy = DeployPolicy(bench.folder / "home", POLICY, PATIENT, grants=granted)
        async with bench.launch(source, policy=policy) as running:
            fine = await running.call(0)
            refused = [await running.call(1) for _ in range(2)]
        assert (read_text(fine), fine.refused) == ("granted", ())
        for one in refused:
            assert (one.status, one.error_kind, one.blame) == (
                "tool_error",
                "needs_network",
                "policy",
            )
            assert one.refused == (f"localhost:{far}",)
            assert f"`toolmill grant npm:x --host localhost:{far}`" in str(one.hint)
        assert (here.paths, other.paths) == (["/"], [])


async def test_a_secret_that_a_server_asks_for_as_a_host_is_in_no_answer(bench, monkeypatch):
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    secrets = SecretSources({"npm:x": ServerSecrets(env={"KEY": "env:MY_KEY"})}, bytes(16))
    granted = {"npm:x": ServerGrant(hosts=("localhost:9",), personal=True)}
    policy = DeployPolicy(bench.folder / "home", POLICY, PATIENT, grants=granted, secrets=secrets)
    source = "URLS = ['http://' + os.environ['KEY'] + '.example.com/']\n" + FETCH
    async with bench.launch(source, policy=policy) as running:
        result = await running.call(0)
    assert result.refused == ("[secret KEY].example.com:80",)
    assert "hunter2" not in str(result)


async def test_a_host_is_named_where_the_server_has_no_network_at_all(bench):
    source = "calls(lambda m, x: say(m, 'getaddrinfo ENOTFOUND api.example.com', isError=True))"
    async with bench.launch(source) as running:
        result = await running.call()
    assert (result.error_kind, result.refused) == ("needs_network", ())
    assert "`toolmill grant npm:x --host api.example.com`" in str(result.hint)
