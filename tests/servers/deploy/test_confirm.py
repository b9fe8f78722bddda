"""What a listing chose runs beside a user's secret or grant only once its user confirmed it."""

from dataclasses import replace

import pytest

from assets.servers.calls.launch import plan_launch
from assets.servers.calls.result import CallFailed
from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.grants import ServerGrant
from assets.servers.deploy.package import make_failed
from assets.servers.deploy.policy import (
    DeployPolicy,
    digest_conditions,
    digest_confirmed,
    find_unconfirmed,
    is_redirecting,
    with_network,
)
from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from assets.servers.secrets import LaunchSecrets, SecretSources, ServerSecrets

NAME = "npm:github-mcp"
RECIPE = LaunchRecipe(
    server_id=NAME, ecosystem="npm", name="github-mcp", version="1.0.0", integrity="sha512-x"
)
TOKEN = LaunchSecrets({"GITHUB_TOKEN": "a-real-token"})


@pytest.fixture
def policy(tmp_path, monkeypatch):
    """A user with a real token for one server; nothing is fetched or launched."""
    monkeypatch.setenv("MY_TOKEN", "a-real-token")
    launched = make_failed(ProbeFailure("crashed", "it was launched"))
    monkeypatch.setattr("assets.servers.deploy.deploy.run_package", lambda *_: launched)
    sources = {NAME: ServerSecrets(env={"GITHUB_TOKEN": "env:MY_TOKEN"})}
    return DeployPolicy(tmp_path, secrets=SecretSources(sources, bytes(16)))


def chosen(**facts):
    return RECIPE.model_copy(update=facts)


@pytest.mark.parametrize(
    "name",
    [
        *("NODE_OPTIONS", "NODE_EXTRA_CA_CERTS", "LD_PRELOAD", "PYTHONPATH", "PYTHONSTARTUP"),
        *("HTTPS_PROXY", "all_proxy", "GLOBAL_AGENT_HTTP_PROXY", "GITHUB_API_URL", "httpsProxy"),
        *("OPENAI_BASE_URL", "GITHUB_HOST", "DD_SITE", "BASH_ENV", "PATH", "SSL_CERT_FILE"),
        *("GIT_SSH_COMMAND", "BASE_URI", "SENTRY_DSN", "JAVA_TOOL_OPTIONS", "apiEndpoint"),
        *("HOSTALIASES", "LOCALDOMAIN", "KUBECONFIG", "AWS_CONFIG_FILE", "HOME", "SHELL"),
        *("XDG_CONFIG_HOME", "EDITOR", "ESBUILD_BINARY_PATH", "PUPPETEER_EXECUTABLE_PATH"),
        *("LUA_INIT", "RUSTC_WRAPPER", "PGHOSTADDR", "AWS_SHARED_CREDENTIALS_FILE", "INPUTRC"),
    ],
)
@pytest.mark.parametrize("grant", ["secret", "network"])
def test_what_redirects_a_secret_is_refused_always(policy, name, grant):
    recipe = chosen(env=((name, "x"),))
    policy = replace(policy, confirmed={NAME: (digest_confirmed(recipe),)})
    if grant == "network":
        policy = replace(
            policy, secrets=SecretSources({}, bytes(16)), grants={NAME: ServerGrant("full")}
        )
    result = deploy(recipe, policy).probe
    assert (result.error_kind, name in str(result.hint)) == ("policy_denied", True)
    assert f'[servers."{NAME}".env] {name} = "env:{name}"' in str(result.hint)
    with pytest.raises(CallFailed) as refused:
        plan_launch(NAME, dump_recipe(recipe), policy)
    assert refused.value.kind == "policy_denied"


@pytest.mark.parametrize(
    "name",
    [
        *("LOG_LEVEL", "MCP_MODE", "TEAM_ID", "WORKSPACE", "GITHUB_TOOLSETS", "NODE_ENV"),
        *(
            "PIPELINE",
            "LANG",
            "TZ",
            "DEBUG",
            "PORT",
            "GITHUB_TOKEN",
            "SOURCE",
            "SRC",
            "MAX_RESULTS",
        ),
    ],
)
def test_an_ordinary_variable_redirects_nothing(name):
    assert not is_redirecting(name)


@pytest.mark.parametrize(
    "facts",
    [
        {"args": ("--toolsets", "all")},
        {"env": (("MODE", "full"),)},
        {"env": (("MODE", "placeholder"),), "placeholders": ("env:MODE",)},
    ],
)
def test_what_a_listing_chose_asks_once_and_a_changed_recipe_asks_again(policy, facts):
    recipe = chosen(**facts)
    result = deploy(recipe, policy).probe
    assert result.error_kind == "needs_confirmation"
    line = f'[servers."{NAME}"] confirmed = ["{digest_confirmed(recipe)}"]'
    assert line in str(result.hint)
    assert all(word in str(result.hint) for word in recipe.args)
    with pytest.raises(CallFailed) as refused:
        plan_launch(NAME, dump_recipe(recipe), policy)
    assert refused.value.kind == "needs_confirmation"
    agreed = replace(policy, confirmed={NAME: (digest_confirmed(recipe),)})
    assert deploy(recipe, agreed).probe.error_kind == "crashed"
    assert digest_conditions(NAME, agreed) != digest_conditions(NAME, policy)  # so it is due
    for change in ({"version": "1.0.1"}, {"args": ("--evil",)}, {"integrity": "sha512-y"}):
        changed = recipe.model_copy(update=change)
        assert deploy(changed, agreed).probe.error_kind == "needs_confirmation"
    older = recipe.model_copy(update={"as_of": "2026-01-01T00:00:00Z", "placeholders": ()})
    assert find_unconfirmed(older, TOKEN, agreed) is None  # the launch that counted may be that


def test_without_a_secret_or_a_grant_nothing_is_asked(policy):
    recipe = chosen(args=("--all",), env=(("NODE_OPTIONS", "--x"),))
    free = replace(policy, secrets=SecretSources({}, bytes(16)))
    assert deploy(recipe, free).probe.error_kind == "crashed"
    assert deploy(recipe, with_network(free, "full")).probe.error_kind == "crashed"


def test_what_the_user_gave_is_no_choice_of_the_listing(policy):
    recipe = chosen(env=(("GITHUB_TOKEN", "placeholder"),), placeholders=("env:GITHUB_TOKEN",))
    assert deploy(recipe, policy).probe.error_kind == "crashed"
    own = LaunchSecrets({**TOKEN.env, "GITHUB_API_URL": "https://mine.example"})
    asked = chosen(env=(("GITHUB_API_URL", "https://evil.example"),))
    assert find_unconfirmed(asked, own, policy) is None


def test_headers_of_a_listing_beside_an_account_are_asked_for(policy):
    about = {"server_id": "remote:https://x", "ecosystem": "remote", "name": "https://x"}
    recipe = LaunchRecipe(**about, headers=(("X-Tenant", "evil"),))
    found = find_unconfirmed(
        recipe, LaunchSecrets(headers={"Authorization": "Bearer real"}), policy
    )
    assert found
    assert (found.kind, '"X-Tenant": "evil"' in found.detail) == ("needs_confirmation", True)
    assert find_unconfirmed(recipe, LaunchSecrets(headers={"x-tenant": "mine"}), policy) is None


@pytest.mark.parametrize("more", ["?upstream=https://evil.example/", "#a", "@"])
def test_an_address_with_more_than_its_server_id_is_asked_for(policy, more):
    about = {"server_id": "remote:https://x/mcp", "ecosystem": "remote", "name": "https://x/mcp"}
    url = "https://evil:pw@x/mcp" if more == "@" else f"https://x/mcp{more}"
    recipe, real = (
        LaunchRecipe(**about, url=url),
        LaunchSecrets(headers={"Authorization": "Bearer real"}),
    )
    found = find_unconfirmed(recipe, real, policy)
    assert found
    assert (found.kind, f'address "{url}"' in found.detail) == ("needs_confirmation", True)
    agreed = replace(policy, confirmed={recipe.server_id: (digest_confirmed(recipe),)})
    assert find_unconfirmed(recipe, real, agreed) is None
    changed = recipe.model_copy(update={"url": "https://x/mcp?other=1"})
    assert find_unconfirmed(changed, real, agreed)
    assert find_unconfirmed(LaunchRecipe(**about, url="https://x/mcp"), real, policy) is None


def test_more_than_anybody_reads_is_not_asked_for(policy):
    found = find_unconfirmed(chosen(args=("a" * 3000, "--evil")), TOKEN, policy)
    assert found
    assert (found.kind, "at most 2000" in found.detail) == ("policy_denied", True)


def test_what_is_shown_is_plain_text(policy):
    found = find_unconfirmed(chosen(args=("a\u202eb\x1b[2J",)), TOKEN, policy)
    assert found
    assert found.detail.isascii()
    assert found.detail.isprintable()
