"""Calls of servers that their user granted something: what they reach, and what stays theirs."""

import asyncio
import json
import os

import pytest

from assets.servers.calls.caller import ToolCaller
from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.grants import ServerGrant, mount_folders
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import ResolvedVersion, dump_recipe
from assets.servers.recipes.recipe_plan import plan_recipe
from assets.servers.sandbox.spec import SandboxPolicy
from assets.servers.secrets import SecretSources, ServerSecrets
from demo.world.catalogue import pack
from tests.marketplaces.site import Answer, site
from tests.servers.conftest import BundleHost, host
from tests.serving.calling import PATIENT, read_text
from tests.support.untrusted_server import POLICY, require_sandbox

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
            assert (one.status, one.error_kind) == ("tool_error", "needs_network")
            assert one.blame == "policy"
            assert one.refused == (f"localhost:{far}",)
            assert f'`hosts = ["localhost:{far}"]` under `[servers."npm:x"]`' in str(one.hint)
        assert (here.paths, other.paths) == (["/"], [])


async def test_a_secret_that_a_server_asks_for_as_a_host_is_in_no_answer(bench, monkeypatch):
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    secrets = SecretSources({"npm:x": ServerSecrets(env={"KEY": "env:MY_KEY"})}, bytes(16))
    granted = {"npm:x": ServerGrant(hosts=("localhost:9",), personal=True)}
    policy = DeployPolicy(bench.folder / "home", POLICY, PATIENT, grants=granted, secrets=secrets)
    source = "URLS = ['http://' + os.environ['KEY'] + '.example.com/']\n" + FETCH
    result = await bench.call(source, 0, policy=policy)
    assert result.refused == ("[secret KEY].example.com:80",)
    assert "hunter2" not in str(result)


__all__ = ["host"]


HERE = SandboxPolicy(allow_loopback=True)


async def listed(recipe, policy):
    """(Caller, the raw tools) of a server, probed as in a run."""
    require_sandbox()
    deployed = await asyncio.to_thread(deploy, recipe, policy)
    if deployed.probe.error_kind == "fetch_failed":
        pytest.skip("the package registries are out of reach")
    assert deployed.probe.status == "ok", deployed.probe.hint
    facts = deployed.launched or dump_recipe(recipe)
    by = {tool["name"]: tool for tool in deployed.probe.tools}
    return ToolCaller({recipe.server_id: facts}, policy), by


def packed(host: BundleHost, name: str, version: str):
    """The recipe of a bundle of the demo, served by the host."""
    made = pack(name, version)
    listing = host.listing(name, None)
    host.files[f"/{name}.mcpb"] = made.data
    package = listing.package.model_copy(update={"digest": f"sha256:{made.sha256}"})
    listing = listing.model_copy(update={"package": package})
    return plan_recipe(listing, lambda one: ResolvedVersion(one.version, str(one.digest)))


async def test_a_bundle_of_the_demo_is_fetched_checked_and_called(host, tmp_path):
    tmp_path.chmod(0o755)
    recipe = packed(host, "notes", "1.0.0")
    caller, by = await listed(recipe, DeployPolicy(tmp_path, HERE, twice=False))
    fetched = len(host.requests)
    note = {"title": "Milk", "text": "Two litres"}
    try:
        made = [
            await caller.call(recipe.server_id, "create_note", by["create_note"], note)
            for _ in range(2)
        ]
    finally:
        await caller.close()
    assert [one.status for one in made] == ["ok", "ok"], made
    assert [json.loads(read_text(one))["id"] for one in made] == [1, 2]  # it kept the first one
    assert len(host.requests) == fetched  # the probe's artefact, not another


async def test_a_secret_that_a_manifest_asks_for_is_never_made_up(host, tmp_path, monkeypatch):
    require_sandbox()
    tmp_path.chmod(0o755)
    recipe = packed(host, "needs_key", "0.3.0")
    key = "WEATHERKEY_API_KEY"
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    sources = {recipe.server_id: ServerSecrets(env={key: "env:MY_WEATHERKEY"})}
    monkeypatch.setenv("MY_WEATHERKEY", "wk_live_" + "0a" * 12)
    real = DeployPolicy(tmp_path, HERE, twice=False, secrets=SecretSources(sources, bytes(16)))
    found = []
    for policy in (DeployPolicy(tmp_path, HERE), real):
        caller = ToolCaller({recipe.server_id: dump_recipe(recipe)}, policy)
        probed = await asyncio.to_thread(deploy, recipe, real)
        contract = next(iter(probed.probe.tools), {"name": "todays_weather", "inputSchema": schema})
        ask = {"city": "Rome"}
        try:
            found.append(await caller.call(recipe.server_id, "todays_weather", contract, ask))
        finally:
            await caller.close()
    assert (found[0].error_kind, found[0].blame) == ("needs_secret", "credentials")
    assert f'{key} = "env:{key}"' in found[0].hint
    assert (found[1].status, read_text(found[1])) == ("ok", "Mild, as always in Rome.")
