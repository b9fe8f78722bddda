"""What a granted server reaches of the network, in the real sandbox: its hosts and no other."""

import os
from dataclasses import replace

import pytest

from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.grants import ServerGrant
from assets.servers.deploy.launch import format_advice, open_hosts
from assets.servers.deploy.policy import DeployPolicy, digest_conditions
from assets.servers.recipes.install import InstalledArtifact
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.spec import SandboxLaunch, SandboxPolicy
from assets.servers.sandbox.toolchain import find_toolchain
from tests.marketplaces.site import Answer, site
from tests.support.cases import cases
from tests.support.untrusted_server import (
    CONVERSATION,
    POLICY,
    PREAMBLE,
    install_source,
    require_sandbox,
    tool_names,
)

NAME = "npm:x"
RECIPE = LaunchRecipe(server_id=NAME, ecosystem="npm", name="x", version="1", integrity="sha512-x")
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
def run(tmp_path, monkeypatch):
    """The result of a server with this source and grant."""
    tree = install_source(tmp_path, monkeypatch)

    def launch(source: str, *hosts: str, **limits: int):
        (tree / "main.py").write_text(PREAMBLE + FETCH + source)
        grants = {NAME: ServerGrant(hosts=hosts, personal=True)}
        sandbox = replace(POLICY, **limits)  # type: ignore[arg-type]
        policy = DeployPolicy(tmp_path / "home", sandbox, CONVERSATION, twice=False, grants=grants)
        return deploy(RECIPE, policy).probe

    return launch


def test_a_granted_host_is_reached_and_no_other(run):
    with site(lambda *_: Answer("granted")) as here, site(lambda *_: Answer("secret")) as other:
        near, far = (one.url.rpartition(":")[2] for one in (here, other))
        urls = [f"http://localhost:{near}/", f"http://127.0.0.1:{near}/", f"http://localhost:{far}"]
        source = f"serve([tool(get(one)) for one in {urls}] + [tool(connect({near}))])"
        result = run(source, f"localhost:{near}")
        # Of the address the sandbox's own loopback is asked, where nobody listens.
        wanted = ["granted", "URLError", "HTTPError 421", "ConnectionRefusedError"]
        assert tool_names(result) == wanted, (result.hint, result.stderr_tail)
        assert (here.paths, other.paths) == (["/"], [])
        assert result.refused == [f"localhost:{far}"]


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


def test_a_node_server_that_knows_no_proxy_reaches_its_host_too(run, tmp_path, monkeypatch):
    node = find_toolchain().node
    if node is None:
        pytest.skip("no Node.js on this host")
    artifact = InstalledArtifact(
        tmp_path / "tree", (str(node), "/srv/server/main.js"), {}, (), "l", 1.0
    )
    monkeypatch.setattr("assets.servers.deploy.deploy.ensure_artifact", lambda *_, **__: artifact)
    with site(lambda *_: Answer("granted")) as here, site(lambda *_: Answer("secret")) as other:
        near, far = (one.url.rpartition(":")[2] for one in (here, other))
        urls = f"const NEAR = 'http://localhost:{near}/', FAR = 'http://localhost:{far}/';"
        (tmp_path / "tree" / "main.js").write_text(urls + NODE)
        result = run("", f"localhost:{near}", memory_mb=512)
        assert tool_names(result) == ["granted", "old granted", "failed"], result.stderr_tail
        assert (here.paths, other.paths) == (["/", "/"], [])


def test_a_server_that_dies_for_a_host_says_which_and_how_it_is_granted(run):
    source = "urllib.request.urlopen('https://api.example.com/v1', timeout=10)"
    result = run(source, "localhost:9")
    assert (result.error_kind, result.refused) == ("needs_network", ["api.example.com:443"])
    assert f'`hosts = ["api.example.com"]` under `[servers."{NAME}"]`' in str(result.hint)
    result = run("sys.exit('getaddrinfo ENOTFOUND api.example.com')")
    assert (result.error_kind, result.refused) == ("needs_network", [])
    assert f'`hosts = ["api.example.com"]` under `[servers."{NAME}"]`' in str(result.hint)


def test_what_is_advised_is_a_host_or_the_network_and_never_a_private_address():
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


def test_hosts_narrow_a_network_that_all_servers_have(tmp_path):
    wide = DeployPolicy(tmp_path, SandboxPolicy(network="full"))
    assert wide.sandbox_of(NAME).network == "full"
    narrow = replace(wide, grants={NAME: ServerGrant(hosts=("api.example.com",))})
    assert narrow.sandbox_of(NAME).network == "none"
    granted = [(), ("a.example", "b.example"), ("b.example", "a.example")]
    digests = {
        digest_conditions(NAME, replace(wide, grants={NAME: ServerGrant(hosts=hosts)}))
        for hosts in granted
    }
    assert len(digests) == 2


def test_an_image_is_held_to_no_hosts_and_says_so(tmp_path):
    image = RECIPE.model_copy(update={"server_id": "oci:x", "ecosystem": "oci"})
    policy = DeployPolicy(tmp_path, grants={"oci:x": ServerGrant(hosts=("api.example.com",))})
    result = deploy(image, policy).probe
    assert result.error_kind == "bad_grant"
    assert "an image is held to no hosts" in str(result.hint)
