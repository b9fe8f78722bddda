"""A recipe launches the server that it is listed as, or nothing: secrets go by the server's id."""

import pytest

from assets.servers.calls.launch import plan_launch
from assets.servers.calls.result import CallFailed
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.recipes.recipe import LaunchRecipe, RecipeError, check_identity, dump_recipe
from assets.servers.secrets import SecretSources, ServerSecrets

BUNDLE, REMOTE = "https://files.example/a.mcpb", "https://mcp.example/v1/mcp"
RIGHT = [
    {"server_id": "npm:@a/b", "ecosystem": "npm", "name": "@a/b"},
    {"server_id": "pypi:a-b", "ecosystem": "pypi", "name": "A_b"},
    {"server_id": "oci:docker.io/a/redis", "ecosystem": "oci", "name": "docker.io/a/redis"},
    {"server_id": f"mcpb:{BUNDLE}", "ecosystem": "mcpb", "name": BUNDLE, "url": f"{BUNDLE}?x=1"},
    {"server_id": f"remote:{REMOTE}", "ecosystem": "remote", "name": "x", "url": f"{REMOTE}?k=1"},
    {"server_id": f"remote:{REMOTE}#x-app=a", "ecosystem": "remote", "name": "x", "url": REMOTE},
    {"server_id": "remote:http://localhost/mcp", "ecosystem": "remote", "name": "x",
     "url": "http://localhost:4711/mcp"},
    {"server_id": "remote:https://{tenant}.example/${id}/mcp", "ecosystem": "remote", "name": "x",
     "url": "https://acme.example/7/mcp"},
    {"server_id": "private:mine", "ecosystem": "private", "name": "mine"},
]  # fmt: skip
WRONG = [
    {"server_id": "npm:@a/b", "ecosystem": "npm", "name": "evil"},
    {"server_id": "npm:@a/b", "ecosystem": "pypi", "name": "b"},
    {"server_id": "@a/b", "ecosystem": "npm", "name": "@a/b"},
    {"server_id": "npm:git+https://evil.example/x", "ecosystem": "npm",
     "name": "git+https://evil.example/x"},
    {"server_id": "npm:--registry=x", "ecosystem": "npm", "name": "--registry=x"},
    {"server_id": "pypi:a", "ecosystem": "pypi", "name": "b"},
    {"server_id": "oci:docker.io/library/redis", "ecosystem": "oci", "name": "evil.example/redis"},
    {"server_id": f"mcpb:{BUNDLE}", "ecosystem": "mcpb", "name": BUNDLE,
     "url": "https://evil.example/a.mcpb"},
    {"server_id": f"mcpb:{BUNDLE}", "ecosystem": "mcpb", "name": BUNDLE},
    {"server_id": f"remote:{REMOTE}", "ecosystem": "remote", "name": REMOTE,
     "url": "https://evil.example/v1/mcp"},
    {"server_id": f"remote:{REMOTE}", "ecosystem": "remote", "name": REMOTE,
     "url": "https://mcp.example@evil.example/v1/mcp"},
    {"server_id": f"remote:{REMOTE}", "ecosystem": "remote", "name": REMOTE,
     "url": REMOTE.replace("https", "http")},
    {"server_id": f"remote:{REMOTE}", "ecosystem": "remote", "name": REMOTE,
     "url": "https://mcp.example:9/v1/mcp"},
    {"server_id": f"remote:{REMOTE}", "ecosystem": "remote", "name": REMOTE},
    {"server_id": f"remote:{REMOTE}", "ecosystem": "remote", "name": REMOTE,
     "url": "https://mcp.example:many/v1/mcp"},
    {"server_id": "remote:https://{tenant}.example/mcp", "ecosystem": "remote", "name": "x",
     "url": "https://evil.org/x.example/mcp"},
    {"server_id": "remote:https://{tenant}.example/mcp", "ecosystem": "remote", "name": "x",
     "url": "https://evil.org:443.example/mcp"},
]  # fmt: skip


@pytest.mark.parametrize("facts", RIGHT)
def test_a_recipe_of_the_server_that_it_is_listed_as_is_good(facts: dict) -> None:
    check_identity(LaunchRecipe(**facts))


@pytest.mark.parametrize("facts", WRONG)
def test_a_recipe_of_another_server_is_refused(facts: dict) -> None:
    with pytest.raises(RecipeError, match="recipe of"):
        check_identity(LaunchRecipe(**facts))


def test_a_call_carries_no_secret_to_another_address(tmp_path, monkeypatch) -> None:
    """The secret is not even read."""
    monkeypatch.delenv("ABSENT", raising=False)
    given = {f"remote:{REMOTE}": ServerSecrets(headers={"Authorization": "Bearer env:ABSENT"})}
    policy = DeployPolicy(tmp_path, secrets=SecretSources(given, bytes(16)))
    facts = dump_recipe(
        LaunchRecipe(
            server_id=f"remote:{REMOTE}",
            ecosystem="remote",
            name=REMOTE,
            url="https://evil.example/mcp",
        )
    )
    with pytest.raises(CallFailed) as found:
        plan_launch(f"remote:{REMOTE}", facts, policy)
    assert found.value.kind == "no_recipe"
    assert "evil.example" in found.value.hint
