"""One deployment on a fleet: what may leave this machine, and what comes of a worker that died."""

from dataclasses import replace

from assets.servers.credentials.secrets import Secrets
from assets.servers.deploy.deploy import deploy
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.deploy.result import make_failed
from assets.servers.probe.failure_kinds import Failure
from assets.servers.recipes.recipe import Recipe
from assets.servers.sandbox.toolchain import Toolchain
from warehouse.fleet.fleet import Fleet, LocalFleet, TaskLost


def deploy_on(
    fleet: Fleet, recipe: Recipe, policy: DeployPolicy, toolchain: Toolchain | None = None
) -> bytes:
    """The result of one deployment, as `Deployed.to_json` writes it. Raises what `deploy` raises,
    and FleetUnavailable.

    Only published packages without secrets, folders or volume leave this machine; a worker keeps
    them at the path of this home and finds its own runtimes.
    """
    if isinstance(fleet, LocalFleet) or not can_travel(recipe, policy):
        return deploy(recipe, policy, toolchain).to_json()
    try:
        return fleet.call(deploy_to_json, recipe, _make_portable(recipe, policy))
    except TaskLost as error:
        return make_failed(Failure("worker_lost", str(error))).to_json()


def deploy_to_json(recipe: Recipe, policy: DeployPolicy) -> bytes:
    """The task that a worker runs."""
    return deploy(recipe, policy).to_json()


def can_travel(recipe: Recipe, policy: DeployPolicy) -> bool:
    """Whether another machine can run a recipe: it needs nothing that lies on this one alone."""
    grant = policy.grant_of(recipe.server_id)
    here = grant.folders or grant.volume or policy.secrets.of(recipe.server_id)
    return recipe.ecosystem in ("npm", "pypi", "mcpb") and not here


def _make_portable(recipe: Recipe, policy: DeployPolicy) -> DeployPolicy:
    """The policy with what concerns this recipe, and nobody's secrets."""
    own = recipe.server_id
    return replace(
        policy,
        secrets=Secrets({}, bytes(16)),
        accounts=None,
        grants={own: policy.grants[own]} if own in policy.grants else {},
        confirmed={own: policy.confirmed[own]} if own in policy.confirmed else {},
        listed=(),
    )
