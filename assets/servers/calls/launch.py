"""The launch plan of a call: the recipe, its secrets, and the settings that are missing."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from assets.servers.calls.result import CallFailed
from assets.servers.deploy.deploy import find_refusal
from assets.servers.deploy.grants import list_granted_places
from assets.servers.deploy.package import list_given_names
from assets.servers.deploy.policy import DeployPolicy, digest_conditions, find_unconfirmed
from assets.servers.recipes.install import InstalledArtifact
from assets.servers.recipes.placeholders import holds_secret
from assets.servers.recipes.recipe import (
    LaunchRecipe,
    RecipeError,
    check_identity,
    load_recipe,
    needs_scripts,
)
from assets.servers.secrets import LaunchSecrets, SecretError
from warehouse.storage.digest import digest


@dataclass(frozen=True)
class LaunchPlan:
    """A server as it is to be launched. key: names the session; another one for another owner, and
    after a change of the recipe, of the settings or of a secret. made_up: values that are made up
    and no secrets. held: names the volume that one session at a time may hold."""

    recipe: LaunchRecipe
    given: LaunchSecrets = field(repr=False)
    scripts: bool
    key: str
    made_up: tuple[str, ...] = ()
    held: str = ""


def plan_launch(
    server_id: str, facts: Mapping[str, Any] | None, policy: DeployPolicy, owner: str = ""
) -> LaunchPlan:
    """Raises CallFailed where the settings refuse the server, a real secret is missing, or its user
    has not confirmed what the listing chose.

    What a running server remembers stays with its owner, unless it is known to remember nothing.
    """
    if facts is None:
        raise CallFailed("unknown_server", f"no recipe of {server_id!r}", sent=False)
    try:
        recipe = load_recipe(facts)
        check_identity(recipe)
    except RecipeError as error:
        raise CallFailed("no_recipe", "", fix=str(error), sent=False) from None
    if recipe.server_id != server_id:
        detail = f"the recipe of {server_id!r} is one of {recipe.server_id!r}"
        raise CallFailed("no_recipe", detail, fix="build the index again", sent=False)
    if refused := find_refusal(recipe, policy):
        raise CallFailed.of(refused, sent=False)
    try:
        secrets = policy.secrets.given(server_id)
        under = digest_conditions(server_id, policy)
    except SecretError as error:
        raise CallFailed("needs_secret", "", fix=str(error), sent=False) from None
    check_secrets(recipe, secrets)
    if unconfirmed := find_unconfirmed(recipe, secrets, policy):
        raise CallFailed.of(unconfirmed, sent=False)
    real = list_given_names(secrets) | list_granted_places(recipe, policy.grant_of(server_id))
    made_up = sorted(set(recipe.placeholders) - real)
    scripts = needs_scripts(facts)
    # What a volume keeps is everybody's who may call it, and one session at a time may write it.
    shared = server_id in policy.stateless or policy.grant_of(server_id).volume
    facts_of_key = {"recipe": recipe.digest, "scripts": scripts, "conditions": under}
    key = digest({**facts_of_key, "owner": None if shared else owner})
    volume_owner = server_id if policy.grant_of(server_id).volume else ""
    return LaunchPlan(recipe, secrets, scripts, key, tuple(made_up), volume_owner)


def check_secrets(
    recipe: LaunchRecipe, secrets: LaunchSecrets, artifact: InstalledArtifact | None = None
) -> None:
    """Raises CallFailed, naming variable and setting, where a secret is made up, by the listing or
    by the artefact's own manifest."""
    made_up = {*recipe.placeholders, *_list_manifest_variables(artifact)} - list_given_names(
        secrets
    )
    missing = sorted(place for place in made_up if _is_secret(place, recipe))
    if not missing:
        return
    names = ", ".join(missing)
    detail = f"{recipe.server_id} was listed with made-up secrets ({names}); a call needs real ones"
    fix = "; ".join(_describe_setting(place, recipe.server_id) for place in missing)
    raise CallFailed("needs_secret", detail, fix=fix, sent=False)


def _list_manifest_variables(artifact: InstalledArtifact | None) -> Iterator[str]:
    """The variables that a bundle fills from what it asks its user; what it puts elsewhere stands
    under its own name."""
    inputs = [place for place in (artifact.placeholders if artifact else ()) if ":" in place]
    secret = [place for place in inputs if holds_secret(place.partition(":")[2])]
    if artifact and secret:
        variables = [f"env:{name}" for name in artifact.env if holds_secret(name)]
        yield from variables or secret


def _is_secret(place: str, recipe: LaunchRecipe) -> bool:
    kind, _, name = place.partition(":")
    if kind in ("env", "header", "url", "user_config"):
        return holds_secret(name)
    if kind == "arg" and name.isdigit() and int(name) < len(recipe.args):
        at = int(name)
        option = recipe.args[at].partition("=")[0] if "=" in recipe.args[at] else ""
        before = recipe.args[at - 1] if at else ""
        return any(word.startswith("-") and holds_secret(word) for word in (option, before))
    return False


def _describe_setting(place: str, server_id: str) -> str:
    """What to write into toolmill.toml."""
    kind, _, name = place.partition(":")
    if kind == "env":
        return (
            f'set {name} in the environment and `[servers."{server_id}".env] {name} ='
            f' "env:{name}"` in toolmill.toml'
        )
    if kind == "header":
        scheme = "Bearer " if name.lower() == "authorization" else ""
        return (
            f'keep the secret in a variable and write `[servers."{server_id}".headers] {name} ='
            f' "{scheme}env:VARIABLE"` in toolmill.toml'
        )
    return f"{place} cannot be given by a setting: list the server with it in a private mcp.json"
