"""One deployment: a recipe launched or asked, here or on a fleet's worker, with its secrets."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import urlsplit

from assets.servers.deploy.grants import VolumeBusy, find_grant_problem, hold_volume
from assets.servers.deploy.package import (
    DeploymentResult,
    list_given_names,
    make_failed,
    probe_behaviour,
    run_image,
    run_local,
    run_package,
)
from assets.servers.deploy.policy import DeployPolicy, find_unconfirmed
from assets.servers.probe.failure_kinds import ProbeFailure
from assets.servers.probe.probe import ProbeResult
from assets.servers.probe.remote_probe import probe_remote
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.recipe import LaunchRecipe
from assets.servers.sandbox.spec import is_private_folder
from assets.servers.sandbox.toolchain import HostToolchain, find_toolchain
from assets.servers.secrets import LaunchSecrets, SecretError, SecretSources
from warehouse.fleet import Fleet, LocalFleet, TaskLost
from warehouse.network.egress import is_loopback
from warehouse.storage.digest import digest


def deploy(
    recipe: LaunchRecipe, policy: DeployPolicy, toolchain: HostToolchain | None = None
) -> DeploymentResult:
    """Fetches and probes one recipe, unless the settings forbid it. Every outcome is a result
    without secrets; raises only SandboxUnavailable."""
    if refusal := find_refusal(recipe, policy):
        return make_failed(refusal)
    return deploy_allowed(recipe, policy, toolchain)


def deploy_allowed(
    recipe: LaunchRecipe, policy: DeployPolicy, toolchain: HostToolchain | None = None
) -> DeploymentResult:
    """`deploy` of a recipe that `find_refusal` let pass."""
    try:
        secrets = policy.secrets.given(recipe.server_id)
    except SecretError as error:
        return make_failed(ProbeFailure("needs_secret", str(error)))
    if unconfirmed := find_unconfirmed(recipe, secrets, policy):
        return make_failed(unconfirmed)
    try:
        with hold_volume(policy.volume_of(recipe.server_id)):
            result = _deploy_given(recipe, secrets, policy, toolchain)
    except VolumeBusy as error:
        return make_failed(ProbeFailure("bad_grant", str(error)))
    return _scrub_result(result, secrets)


def _deploy_given(
    recipe: LaunchRecipe,
    secrets: LaunchSecrets,
    policy: DeployPolicy,
    toolchain: HostToolchain | None,
) -> DeploymentResult:
    if recipe.ecosystem == "remote":
        return _deploy_remote(recipe, secrets, policy)
    if recipe.is_image:
        return run_image(recipe, secrets, policy)
    run = run_local if recipe.ecosystem == "private" else run_package
    return run(recipe, secrets, policy, toolchain or find_toolchain())


def effect_key(recipe: LaunchRecipe, conditions: str, attempt: int, run_date: str = "") -> str:
    """Names the effect of one launch. A remote server is another one in every run."""
    facts = {
        "effect": "deploy",
        "recipe": recipe.digest,
        "conditions": conditions,
        "attempt": attempt,
        "run_date": run_date if recipe.ecosystem == "remote" else None,
    }
    return digest(facts)


def find_refusal(recipe: LaunchRecipe, policy: DeployPolicy) -> ProbeFailure | None:
    """Why the settings forbid a recipe, before anything is sent; None where they do not."""
    if recipe.ecosystem != "remote":
        grant = policy.grant_of(recipe.server_id)
        problem = find_grant_problem(grant, policy.own)
        if recipe.is_image and grant.hosts:
            problem = "an image is held to no hosts: grant it folders, or the network as a whole"
        return (
            ProbeFailure("bad_grant", problem) if problem else _find_folder_refusal(recipe, policy)
        )
    if policy.remote is None:
        why = "remote servers are listed, not probed, by the settings (`sandbox.remote`)"
        return ProbeFailure("policy_denied", why)
    if not policy.outside and not is_loopback(urlsplit(str(recipe.url)).hostname or ""):
        why = 'the demo asks no server outside this host (`source = "live"` does)'
        return ProbeFailure("policy_denied", why)
    return None


def _find_folder_refusal(recipe: LaunchRecipe, policy: DeployPolicy) -> ProbeFailure | None:
    """Why the folder that a private command runs in is not shown to it: it holds toolmill's own
    files, or lies among them elsewhere than in the home as a whole."""
    if not recipe.directory:
        return None
    folder = Path(recipe.directory)
    if is_private_folder(folder):
        return ProbeFailure(
            "policy_denied", f"its folder {folder} is a home folder or lies above one"
        )
    for own_path in map(Path, map(os.path.realpath, policy.own)):
        among = own_path != policy.home and folder.is_relative_to(own_path)
        if own_path.is_dir() and (among or own_path.is_relative_to(folder)):
            detail = f"its folder {folder}: toolmill keeps its own files in {own_path}"
            return ProbeFailure("policy_denied", f"{detail}: choose a folder apart from that")
    return None


def _deploy_remote(
    recipe: LaunchRecipe, secrets: LaunchSecrets, policy: DeployPolicy
) -> DeploymentResult:
    """A remote server, asked over HTTP."""
    remote, url = policy.remote or RemotePolicy(), str(recipe.url)
    try:
        account = policy.accounts.auth(recipe.server_id, url) if policy.accounts else None
    except SecretError as error:
        return make_failed(ProbeFailure("remote_auth", str(error)))

    def ask(limits: ProbePolicy, _: bool = False) -> ProbeResult:
        return probe_remote(
            url,
            transport=recipe.transport or "auto",
            headers={**dict(recipe.headers), **secrets.headers},
            limits=limits,
            policy=remote,
            auth=account,
        )

    result = ask(policy.conversation)
    made_up = set(recipe.placeholders) - list_given_names(secrets)
    return DeploymentResult(
        result, tuple(sorted(made_up)), behaviour=probe_behaviour(result, policy, ask)
    )


def _scrub_result(found: DeploymentResult, secrets: LaunchSecrets) -> DeploymentResult:
    """The result without any secret that the server may have said back."""
    if not list_given_names(secrets):
        return found
    result = ProbeResult(**secrets.scrub(asdict(found.probe)))
    return replace(found, probe=result, behaviour=secrets.scrub(found.behaviour))


def deploy_on(
    fleet: Fleet, recipe: LaunchRecipe, policy: DeployPolicy, toolchain: HostToolchain | None = None
) -> bytes:
    """The result of one allowed deployment, as `Deployed.to_json` writes it. Raises what `deploy`
    raises, and FleetUnavailable.

    Only published packages without secrets, folders or volume leave this machine; a worker keeps
    them at the path of this home and finds its own runtimes.
    """
    if isinstance(fleet, LocalFleet) or not can_travel(recipe, policy):
        return deploy_allowed(recipe, policy, toolchain).to_json()
    try:
        return fleet.call(deploy_to_json, recipe, _make_portable(recipe, policy))
    except TaskLost as error:
        return make_failed(ProbeFailure("worker_lost", str(error))).to_json()


def deploy_to_json(recipe: LaunchRecipe, policy: DeployPolicy) -> bytes:
    """The task that a worker runs."""
    return deploy_allowed(recipe, policy).to_json()


def can_travel(recipe: LaunchRecipe, policy: DeployPolicy) -> bool:
    """Whether another machine can run a recipe: it needs nothing that lies on this one alone."""
    grant = policy.grant_of(recipe.server_id)
    here = grant.folders or grant.volume or policy.secrets.of(recipe.server_id)
    return recipe.ecosystem in ("npm", "pypi", "mcpb") and not here


def _make_portable(recipe: LaunchRecipe, policy: DeployPolicy) -> DeployPolicy:
    """The policy with what concerns this recipe, and nobody's secrets."""
    server_id = recipe.server_id
    return replace(
        policy,
        secrets=SecretSources({}, bytes(16)),
        accounts=None,
        grants={server_id: policy.grants[server_id]} if server_id in policy.grants else {},
        confirmed={server_id: policy.confirmed[server_id]} if server_id in policy.confirmed else {},
        listed=(),
    )
