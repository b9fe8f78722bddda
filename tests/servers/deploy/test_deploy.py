"""Which deployments leave this machine, what they take along, and what they reach."""

import os
import pickle
import time
from dataclasses import replace
from unittest.mock import Mock

import pytest

from assets.servers.deploy import deployment_table
from assets.servers.deploy.deploy import (
    DeploymentResult,
    deploy,
    deploy_on,
    deploy_to_json,
    effect_key,
    make_failed,
)
from assets.servers.deploy.deployment_table import DEPLOYMENTS, DeploymentJob, deploy_listings
from assets.servers.deploy.grants import ServerGrant, mount_folders
from assets.servers.deploy.launch import format_advice, open_hosts
from assets.servers.deploy.policy import DeployPolicy, digest_conditions, with_network
from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.recipes.install import InstalledArtifact
from assets.servers.recipes.recipe import LaunchRecipe, load_recipe
from assets.servers.sandbox.spec import SandboxLaunch, SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from assets.servers.secrets import SecretSources, ServerSecrets
from tests.marketplaces.site import Answer, site
from tests.servers.conftest import make_secrets, npm, pypi
from tests.serving.calling import NPM as RECIPE
from tests.support import untrusted_server
from tests.support.cases import cases
from tests.support.untrusted_server import CONVERSATION, POLICY, require_sandbox, tool_names
from warehouse.fleet import TaskLost
from warehouse.storage.blobs import Blobs

NAME = RECIPE.server_id


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Makes `deploy` find a server of this source instead of fetching one."""

    def install(source: str) -> DeployPolicy:
        untrusted_server.install_source(tmp_path, monkeypatch, source)
        return DeployPolicy(tmp_path, POLICY, CONVERSATION)

    return install


def test_what_a_listing_leaves_optional_is_tried_when_nothing_is_listed(installed):
    policy = installed("serve([tool('a')] if os.environ.get('REGION') else [])")
    facts = {
        "env": (("KEY", "placeholder"),),
        "spare_env": (("REGION", "us"),),
        "placeholders": ("env:REGION", "env:KEY"),
    }
    deployed = deploy(RECIPE.model_copy(update=facts), policy)
    assert (deployed.probe.status, deployed.placeholders) == ("ok", ("env:KEY", "env:REGION"))
    used = load_recipe(deployed.launched or {})  # the launch that counted
    assert used.env == (("KEY", "placeholder"), ("REGION", "us"))
    assert used.placeholders == deployed.placeholders


def test_optional_variables_that_were_not_needed_are_not_recorded(installed):
    policy = installed("serve([tool('a')])")
    facts = {"spare_env": (("REGION", "us"),), "placeholders": ("env:REGION",)}
    assert deploy(RECIPE.model_copy(update=facts), policy).placeholders == ()
    assert deploy(RECIPE, policy).launched is None


@cases(
    "facts, words",
    ({}, "sandbox.remote"),
    ({"remote": RemotePolicy(), "outside": False}, "this host"),
)
def test_a_remote_server_is_refused_unless_it_is_allowed(tmp_path, facts, words):
    url = "https://x.example"
    recipe = LaunchRecipe(server_id=f"remote:{url}", ecosystem="remote", name=url, url=url)
    result = deploy(recipe, DeployPolicy(tmp_path, **facts)).probe
    assert (result.error_kind, words in str(result.hint)) == ("policy_denied", True)


def test_the_effect_is_named_by_what_can_change_it(tmp_path):
    policy = DeployPolicy(tmp_path)

    def key(policy, recipe=RECIPE, attempt=1):
        return effect_key(recipe, digest_conditions(recipe.server_id, policy), attempt)

    assert key(policy) == key(DeployPolicy(tmp_path / "elsewhere"))
    changed = RECIPE.model_copy(update={"args": ("-x",)})
    others = (key(policy, attempt=2), key(with_network(policy, "full")), key(policy, changed))
    assert len({key(policy), *others}) == 4
    with pytest.raises(ValueError, match="expected 'none' or 'full'"):
        with_network(policy, "some")


def test_a_real_secret_reaches_the_server_and_nothing_else(installed, monkeypatch):
    key = "os.environ['KEY']"
    source = f"print('got ' + {key}, file=sys.stderr)\nserve([tool('a', description={key})])"
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    policy = replace(installed(source), secrets=make_secrets(NAME, KEY="env:MY_KEY"))
    facts = {"env": (("KEY", "placeholder"),), "placeholders": ("env:KEY",)}
    deployed = deploy(RECIPE.model_copy(update=facts), policy)
    assert deployed.probe.tools[0]["description"] == "[secret KEY]"
    assert (deployed.probe.stderr_tail.strip(), deployed.placeholders) == ("got [secret KEY]", ())
    assert b"hunter2" not in deployed.to_json()


def test_a_secret_that_is_missing_is_a_failure_with_its_fix(tmp_path):
    policy = DeployPolicy(tmp_path, secrets=make_secrets(NAME, KEY="env:NO_SUCH_VARIABLE"))
    result = deploy(RECIPE, policy).probe
    assert (result.error_kind, "NO_SUCH_VARIABLE" in str(result.hint)) == ("needs_secret", True)


def test_untrusted_words_fit_the_columns_whatever_they_hold(installed, tmp_path):
    source = """
message = read()
info = {"name": "\\ud800", "version": "7"}
capabilities = {"prompts": {}, "resources": {}, "\\udfff": {}}
answer(message["id"], {"protocolVersion": "2025-06-18", "capabilities": capabilities,
                       "serverInfo": info, "instructions": "Ask \\ud83d first."})
while True:
    message = read()
    if message["method"] == "tools/list":
        answer(message["id"], {"tools": [tool("a\\ud800", description="x")]})
    elif message["method"] == "prompts/list":
        answer(message["id"], {"prompts": [{"name": "p"}, 7]})
    elif message["method"] == "resources/list":
        answer(message["id"], {"resources": {"no": "list"}})
    elif "id" in message:
        fail(message, -32601, "no")
"""
    policy = installed(source)
    deployed = deploy(RECIPE, policy)
    assert deployed.probe.status == "ok", deployed.probe.hint
    blobs = Blobs(tmp_path / "blobs")
    job = DeploymentJob(NAME, npm("x"), None, policy)
    row = deployment_table.make_deployment_row(RECIPE, deployed, blobs, job, attempts=1, now=0.0)
    (kept,) = DEPLOYMENTS.frame([row]).to_dicts()
    assert (kept["server_name"], kept["server_version"]) == ("?", "7")
    extras = blobs.get_json(kept["extras_blob"])
    assert (extras["prompts"], kept["certified"]) == ([{"name": "p"}, 7], True)
    assert blobs.get_json(kept["certificate"])["passed"] is True


HERE = ProbeFailure("crashed", "here")
ANSWER = make_failed(ProbeFailure("crashed", "elsewhere")).to_json()


@pytest.fixture
def recipe():
    return RECIPE.model_copy(update={"server_id": "npm:a", "name": "a"})


@pytest.fixture
def policy(tmp_path):
    secret = {"npm:b": ServerSecrets(env={"TOKEN": "env:TOKEN"})}
    return DeployPolicy(
        tmp_path,
        secrets=SecretSources(secret, lambda: b"k" * 32),
        grants={"npm:b": ServerGrant(network="full"), "npm:a": ServerGrant(network="full")},
        confirmed={"npm:b": ("x",)},
        listed=(tmp_path / "mine.json",),
    )


def test_a_package_travels_alone_and_a_lost_worker_is_a_row_that_is_due_at_once(recipe, policy):
    fleet = Mock()
    fleet.call.return_value = ANSWER
    assert deploy_on(fleet, recipe, policy) == ANSWER
    # As a cluster's other process would read it.
    fn, sent, alone = pickle.loads(pickle.dumps(fleet.call.call_args.args))
    assert (fn, sent, alone.secrets.of("npm:b")) == (deploy_to_json, recipe, None)
    assert alone.accounts is None
    assert ([*alone.grants], alone.confirmed, alone.listed) == (["npm:a"], {}, ())
    assert alone.home == policy.home
    fleet.call.side_effect = TaskLost("its worker ended")
    answer = deploy_on(fleet, recipe, policy)
    probe = DeploymentResult.from_json(answer).probe
    assert (probe.status, probe.error_kind) == ("failed", "worker_lost")
    assert probe.hint.startswith("its worker ended: ")


@cases("here", "secret", "folder", "private", "remote")
def test_what_needs_this_machine_stays(here, recipe, policy, tmp_path, monkeypatch):
    if here == "folder":
        folder = ServerGrant(folders=mount_folders((str(tmp_path),)))
        policy = replace(policy, grants={"npm:a": folder})
    elif here == "secret":
        recipe = recipe.model_copy(update={"server_id": "npm:b"})
    else:
        recipe = recipe.model_copy(update={"ecosystem": here})
    monkeypatch.setattr("assets.servers.deploy.deploy.deploy_allowed", lambda *_: make_failed(HERE))
    fleet = Mock()
    assert deploy_on(fleet, recipe, policy) == make_failed(HERE).to_json()
    assert not fleet.call.called


def test_packages_that_do_not_exist_are_not_found(warehouse):
    require_sandbox()
    absent = "toolmill-test-no-such-package"
    stores = {"ledger": warehouse.ledger, "blobs": warehouse.blobs}
    listings, policy = [pypi(absent), npm(f"@{absent}/x")], DeployPolicy(warehouse.home)
    run = deploy_listings(listings, (), policy, run_date="n1", now=time.time(), **stores)
    kinds = {row["server_id"]: row["error_kind"] for row in run.rows}
    if "fetch_failed" in kinds.values():
        pytest.skip("the package registries are out of reach")
    assert kinds == {f"pypi:{absent}": "not_found", f"npm:@{absent}/x": "not_found"}


# Tools named after what each address answered; a server that is refused the last one dies of it.
FETCH = """
import socket, urllib.request
def get(url):
    try:
        return urllib.request.urlopen(url, timeout=10).read().decode()
    except Exception as error:
        return f"{type(error).__name__} {getattr(error, 'code', '')}".strip()
def connect(port):
    try:
        socket.create_connection(("127.0.0.1", port), 5)
        return "connected"
    except OSError as error:
        return type(error).__name__
"""


@pytest.fixture
def granted(tmp_path, monkeypatch):
    tree = untrusted_server.install_source(tmp_path, monkeypatch)

    def launch(source: str, *hosts: str, **limits: int):
        (tree / "main.py").write_text(untrusted_server.PREAMBLE + FETCH + source)
        grants = {NAME: ServerGrant(hosts=hosts, personal=True)}
        sandbox = replace(POLICY, **limits)  # type: ignore[arg-type]
        policy = DeployPolicy(tmp_path / "home", sandbox, CONVERSATION, twice=False, grants=grants)
        return deploy(RECIPE, policy).probe

    return launch


def test_a_granted_host_is_reached_and_no_other(granted):
    with site(lambda *_: Answer("granted")) as here, site(lambda *_: Answer("secret")) as other:
        near, far = (one.url.rpartition(":")[2] for one in (here, other))
        urls = [f"http://localhost:{near}/", f"http://127.0.0.1:{near}/", f"http://localhost:{far}"]
        source = f"serve([tool(get(one)) for one in {urls}] + [tool(connect({near}))])"
        result = granted(source, f"localhost:{near}")
        # Of the address the sandbox's own loopback is asked, where nobody listens.
        wanted = ["granted", "URLError", "HTTPError 421", "ConnectionRefusedError"]
        assert tool_names(result) == wanted, (result.hint, result.stderr_tail)
        assert (here.paths, other.paths, result.refused) == (["/"], [], [f"localhost:{far}"])


NODE = """
const send = (id, result) => console.log(JSON.stringify({ jsonrpc: "2.0", id, result }));
const ask = (url) => fetch(url).then((one) => one.text(), () => "failed");
const old = (url) => new Promise((done) => require("http").get(url, (answer) => {
  answer.on("data", (data) => done("old " + data)); }).on("error", () => done("failed")));
require("readline").createInterface({ input: process.stdin }).on("line", async (line) => {
  const { id, method } = JSON.parse(line);
  if (method === "initialize") send(id, { protocolVersion: "2025-06-18",
    capabilities: { tools: {} }, serverInfo: { name: "n", version: "1" } });
  if (method !== "tools/list") return;
  const names = await Promise.all([ask(NEAR), old(NEAR), ask(FAR)]);
  send(id, { tools: names.map((name) => ({ name, inputSchema: { type: "object" } })) });
});
"""


def test_a_node_server_that_knows_no_proxy_reaches_its_host_too(granted, tmp_path, monkeypatch):
    node = find_toolchain().node
    if node is None:
        pytest.skip("no Node.js on this host")
    argv = (str(node), "/srv/server/main.js")
    artifact = InstalledArtifact(tmp_path / "tree", argv, {}, (), "l", 1.0)
    monkeypatch.setattr("assets.servers.deploy.deploy.ensure_artifact", lambda *_, **__: artifact)
    with site(lambda *_: Answer("granted")) as here, site(lambda *_: Answer("secret")) as other:
        near, far = (one.url.rpartition(":")[2] for one in (here, other))
        urls = f"const NEAR = 'http://localhost:{near}/', FAR = 'http://localhost:{far}/';"
        (tmp_path / "tree" / "main.js").write_text(urls + NODE)
        result = granted("", f"localhost:{near}", memory_mb=512)
        assert tool_names(result) == ["granted", "old granted", "failed"], result.stderr_tail
        assert (here.paths, other.paths) == (["/", "/"], [])


def test_a_server_that_dies_for_a_host_says_how_it_is_granted_unless_it_is_private(granted):
    source = "urllib.request.urlopen('https://api.example.com/v1', timeout=10)"
    result = granted(source, "localhost:9")
    assert (result.error_kind, result.refused) == ("needs_network", ["api.example.com:443"])
    assert f'`hosts = ["api.example.com"]` under `[servers."{NAME}"]`' in str(result.hint)
    result = granted("sys.exit('getaddrinfo ENOTFOUND api.example.com')")
    assert (result.error_kind, result.refused) == ("needs_network", [])
    assert f'`hosts = ["api.example.com"]` under `[servers."{NAME}"]`' in str(result.hint)
    private = "api.example.com:443 (api.example.com is at 10.0.0.1, which is not a public address)"
    assert "hosts =" not in format_advice(NAME, [private], "")
    network = f'`network = "full"` under `[servers."{NAME}"]` of toolmill.toml'
    assert format_advice(NAME, ["(no name of a host):443"], "").endswith(network)
    assert format_advice(NAME, [], "it is down").endswith(network)
    assert '`hosts = ["a.example:80"]`' in format_advice(NAME, ["a.example:80"], "")


@cases("uid", None, os.getuid() or 4242)
def test_the_gateway_is_the_servers_user_alone(uid):
    require_sandbox()
    grant, python = ServerGrant(hosts=("api.example.com",)), find_toolchain().python
    with open_hosts(SandboxLaunch(("true",), uid=uid), grant, POLICY, python) as (launch, log):
        [folder] = [mount.host for mount in launch.mounts if mount.inside == "/srv/gateway"]
        about = (folder / "socket").stat()
        assert (about.st_uid, about.st_mode & 0o777) == (launch.uid, 0o600)
        assert launch.uid not in (0, None)
        assert (log.refused, log.list_waiting()) == ([], [])
    assert not folder.exists()


def test_hosts_narrow_a_network_that_all_servers_have_and_no_image(tmp_path):
    wide = DeployPolicy(tmp_path, SandboxPolicy(network="full"))
    assert wide.sandbox_of(NAME).network == "full"
    narrow = replace(wide, grants={NAME: ServerGrant(hosts=("api.example.com",))})
    assert narrow.sandbox_of(NAME).network == "none"
    hosts = [(), ("a.example", "b.example"), ("b.example", "a.example")]
    policies = [replace(wide, grants={NAME: ServerGrant(hosts=of)}) for of in hosts]
    assert len({digest_conditions(NAME, policy) for policy in policies}) == 2
    image = RECIPE.model_copy(update={"server_id": "oci:x", "ecosystem": "oci"})
    policy = DeployPolicy(tmp_path, grants={"oci:x": ServerGrant(hosts=("api.example.com",))})
    result = deploy(image, policy).probe
    assert result.error_kind == "bad_grant"
    assert "an image is held to no hosts" in str(result.hint)
