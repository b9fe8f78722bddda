import json
from dataclasses import replace

import pytest

from assets.servers.deploy.deploy import deploy, effect_key
from assets.servers.deploy.deployment_table import DEPLOYMENTS, DeploymentJob, make_deployment_row
from assets.servers.deploy.package import DeploymentResult
from assets.servers.deploy.policy import DeployPolicy, digest_conditions, with_network
from assets.servers.probe.probe import ProbeResult
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.secrets import SecretSources, ServerSecrets
from tests.servers.conftest import npm
from tests.support.untrusted_server import (
    CONVERSATION,
    POLICY,
    install_source,
    require_sandbox,
)
from warehouse.storage.blobs import Blobs

RECIPE = LaunchRecipe(
    server_id="npm:x", ecosystem="npm", name="x", version="1", integrity="sha512-x"
)


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Makes `deploy` find a server of this source instead of fetching one."""
    require_sandbox()

    def install(source: str) -> DeployPolicy:
        install_source(tmp_path, monkeypatch, source)
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
    assert deployed.probe.status == "ok"
    assert deployed.placeholders == ("env:KEY", "env:REGION")


def test_optional_variables_that_were_not_needed_are_not_recorded(installed):
    policy = installed("serve([tool('a')])")
    facts = {"spare_env": (("REGION", "us"),), "placeholders": ("env:REGION",)}
    assert deploy(RECIPE.model_copy(update=facts), policy).placeholders == ()


def test_a_remote_server_is_refused_unless_it_is_allowed(tmp_path):
    remote = LaunchRecipe(server_id="remote:https://x", ecosystem="remote", name="https://x")
    assert deploy(remote, DeployPolicy(tmp_path)).probe.error_kind == "policy_denied"


def test_what_was_deployed_survives_the_ledger():
    result = ProbeResult("ok", tools=[{"name": "a", "n": 1.5}], server_info={"name": "s"})
    deployed = DeploymentResult(result, ("env:X",), "lock", 2.0)
    assert DeploymentResult.from_json(deployed.to_json()) == deployed
    assert json.loads(deployed.to_json())["probe"]["tools"][0]["name"] == "a"


def test_the_effect_is_named_by_what_can_change_it(tmp_path):
    policy = DeployPolicy(tmp_path)

    def key(policy, recipe=RECIPE, attempt=1):
        return effect_key(recipe, digest_conditions(recipe.server_id, policy), attempt)

    first = key(policy)
    assert first == key(DeployPolicy(tmp_path / "elsewhere"))
    others = {
        key(policy, attempt=2),
        key(with_network(policy, "full")),
        key(policy, RECIPE.model_copy(update={"args": ("-x",)})),
    }
    assert first not in others
    assert len(others) == 3


def test_an_unknown_network_grant_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected 'none' or 'full'"):
        with_network(DeployPolicy(tmp_path), "some")


def test_a_real_secret_reaches_the_server_and_nothing_else(installed, monkeypatch):
    key = "os.environ['KEY']"
    source = f"print('got ' + {key}, file=sys.stderr)\nserve([tool('a', description={key})])"
    monkeypatch.setenv("MY_KEY", "hunter2-hunter2")
    sources = {"npm:x": ServerSecrets(env={"KEY": "env:MY_KEY"})}
    policy = replace(installed(source), secrets=SecretSources(sources, bytes(16)))
    facts = {"env": (("KEY", "placeholder"),), "placeholders": ("env:KEY",)}
    deployed = deploy(RECIPE.model_copy(update=facts), policy)
    assert deployed.probe.tools[0]["description"] == "[secret KEY]"
    assert deployed.probe.stderr_tail.strip() == "got [secret KEY]"
    assert deployed.placeholders == ()
    assert b"hunter2" not in deployed.to_json()


def test_a_secret_that_is_missing_is_a_failure_with_its_fix(tmp_path):
    sources = {"npm:x": ServerSecrets(env={"KEY": "env:NO_SUCH_VARIABLE"})}
    policy = DeployPolicy(tmp_path, secrets=SecretSources(sources, bytes(16)))
    result = deploy(RECIPE, policy).probe
    assert result.error_kind == "needs_secret"
    assert "NO_SUCH_VARIABLE" in str(result.hint)


def test_the_demo_asks_no_server_outside_this_host(tmp_path):
    remote = LaunchRecipe(
        server_id="remote:https://x.example", ecosystem="remote", name="x", url="https://x.example"
    )
    policy = DeployPolicy(tmp_path, remote=RemotePolicy(), outside=False)
    result = deploy(remote, policy).probe
    assert (result.error_kind, "this host" in str(result.hint)) == ("policy_denied", True)


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
        send({"jsonrpc": "2.0", "id": message["id"], "error": {"code": -32601, "message": "no"}})
"""
    policy = installed(source)
    deployed = deploy(RECIPE, policy)
    assert deployed.probe.status == "ok", deployed.probe.hint
    blobs = Blobs(tmp_path / "blobs")
    job = DeploymentJob(RECIPE.server_id, npm("x"), None, policy)
    row = make_deployment_row(RECIPE, deployed, blobs, job, attempts=1, now=0.0)
    (kept,) = DEPLOYMENTS.frame([row]).to_dicts()
    assert (kept["server_name"], kept["server_version"]) == ("?", "7")
    extras = blobs.get_json(kept["extras_blob"])
    assert extras["prompts"] == [{"name": "p"}, 7]
    assert kept["certified"] is True
    assert blobs.get_json(kept["certificate"])["passed"] is True
