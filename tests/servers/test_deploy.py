import json

import pytest

from assets.servers import deploy as deploying
from assets.servers.deploy import Deployed, DeployPolicy, deploy, effect_key, with_network
from assets.servers.fetch import Artifact
from assets.servers.probe import ProbeResult
from assets.servers.recipe import Recipe
from assets.servers.toolchain import find_toolchain
from tests.support.stranger import CONVERSATION, POLICY, PREAMBLE, require_sandbox

RECIPE = Recipe(server_id="npm:x", ecosystem="npm", name="x", version="1", integrity="sha512-x")


@pytest.fixture
def installed(tmp_path, monkeypatch):
    """Makes `deploy` find a server of this source instead of fetching one."""
    require_sandbox()

    def install(source: str) -> DeployPolicy:
        tree = tmp_path / "tree"
        tree.mkdir()
        (tree / "main.py").write_text(PREAMBLE + source)
        for folder in (tree, tmp_path):
            folder.chmod(0o755)
        argv = (str(find_toolchain().python), "/srv/server/main.py")
        artifact = Artifact(tree, argv, {}, (), "locked", 1.0)
        monkeypatch.setattr(deploying, "ensure_artifact", lambda *_, **__: artifact)
        return DeployPolicy(tmp_path, POLICY, CONVERSATION)

    return install


def test_what_a_listing_leaves_optional_is_tried_when_nothing_is_listed(installed):
    policy = installed("serve([tool('a')] if os.environ.get('REGION') else [])")
    facts = {"spare_env": (("REGION", "us"),), "placeholders": ("env:REGION", "env:KEY")}
    deployed = deploy(RECIPE.model_copy(update=facts), policy)
    assert deployed.probe.status == "ok"
    assert deployed.placeholders == ("env:KEY", "env:REGION")


def test_optional_variables_that_were_not_needed_are_not_recorded(installed):
    policy = installed("serve([tool('a')])")
    facts = {"spare_env": (("REGION", "us"),), "placeholders": ("env:REGION",)}
    assert deploy(RECIPE.model_copy(update=facts), policy).placeholders == ()


def test_a_remote_server_is_refused_unless_it_is_allowed(tmp_path):
    remote = Recipe(server_id="remote:https://x", ecosystem="remote", name="https://x")
    assert deploy(remote, DeployPolicy(tmp_path)).probe.error_kind == "policy_denied"


def test_what_was_deployed_survives_the_ledger():
    result = ProbeResult("ok", tools=[{"name": "a", "n": 1.5}], server_info={"name": "s"})
    deployed = Deployed(result, ("env:X",), "lock", 2.0)
    assert Deployed.from_json(deployed.to_json()) == deployed
    assert json.loads(deployed.to_json())["probe"]["tools"][0]["name"] == "a"


def test_the_effect_is_named_by_what_can_change_it(tmp_path):
    policy = DeployPolicy(tmp_path)
    first = effect_key(RECIPE, policy, 1)
    assert first == effect_key(RECIPE, DeployPolicy(tmp_path / "elsewhere"), 1)
    others = {
        effect_key(RECIPE, policy, 2),
        effect_key(RECIPE, with_network(policy, "full"), 1),
        effect_key(RECIPE.model_copy(update={"args": ("-x",)}), policy, 1),
    }
    assert first not in others
    assert len(others) == 3


def test_an_unknown_network_grant_is_refused(tmp_path):
    with pytest.raises(ValueError, match="expected 'none' or 'full'"):
        with_network(DeployPolicy(tmp_path), "some")
