"""One deployment: a recipe brought to a result, with the secrets its user gave it."""

import os
from dataclasses import asdict, replace
from pathlib import Path
from urllib.parse import urlsplit

from assets.servers.credentials.secrets import Given, SecretError
from assets.servers.deploy.confirm import find_unconfirmed
from assets.servers.deploy.grants import find_grant_problem
from assets.servers.deploy.image import run_image
from assets.servers.deploy.package import (
    list_given_names,
    probe_behaviour,
    run_local,
    run_package,
)
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.deploy.result import Deployed, make_failed
from assets.servers.deploy.volume import VolumeBusy, hold_volume
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.probe import ProbeResult
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.recipe import Recipe
from assets.servers.remote.probe import probe_remote
from assets.servers.remote.transport import RemotePolicy
from assets.servers.sandbox.spec import is_private_folder
from assets.servers.sandbox.toolchain import Toolchain, find_toolchain
from warehouse.network.egress import is_loopback
from warehouse.storage.digest import digest


def deploy(recipe: Recipe, policy: DeployPolicy, toolchain: Toolchain | None = None) -> Deployed:
    """Fetches and probes one recipe. Every outcome is a result, and no secret is in it; raises only
    SandboxUnavailable."""
    refused = find_refusal(recipe, policy)
    if refused:
        return make_failed(refused)
    try:
        given = policy.secrets.given(recipe.server_id)
    except SecretError as error:
        return make_failed(Failure("needs_secret", str(error)))
    if refused := find_unconfirmed(recipe, given, policy):
        return make_failed(refused)
    try:
        with hold_volume(policy.volume_of(recipe.server_id)):
            found = _deploy_given(recipe, given, policy, toolchain)
    except VolumeBusy as error:
        return make_failed(Failure("bad_grant", str(error)))
    return _scrub_result(found, given)


def _deploy_given(
    recipe: Recipe, given: Given, policy: DeployPolicy, toolchain: Toolchain | None
) -> Deployed:
    if recipe.ecosystem == "remote":
        return _deploy_remote(recipe, given, policy)
    if recipe.is_image:
        return run_image(recipe, given, policy)
    run = run_local if recipe.ecosystem == "private" else run_package
    return run(recipe, given, policy, toolchain or find_toolchain())


def effect_key(recipe: Recipe, conditions: str, attempt: int, run_date: str = "") -> str:
    """Names the effect of one launch. A remote server is another one in every run."""
    facts = {
        "effect": "deploy",
        "recipe": recipe.digest,
        "conditions": conditions,
        "attempt": attempt,
        "run_date": run_date if recipe.ecosystem == "remote" else None,
    }
    return digest(facts)


def find_refusal(recipe: Recipe, policy: DeployPolicy) -> Failure | None:
    """Why the settings forbid a recipe, before anything is sent; None where they do not."""
    if recipe.ecosystem != "remote":
        grant = policy.grant_of(recipe.server_id)
        problem = find_grant_problem(grant, policy.own)
        if recipe.is_image and grant.hosts:
            problem = "an image is held to no hosts: grant it folders, or the network as a whole"
        return Failure("bad_grant", problem) if problem else _find_folder_refusal(recipe, policy)
    if policy.remote is None:
        why = "remote servers are listed, not probed, by the settings (`sandbox.remote`)"
        return Failure("policy_denied", why)
    if not policy.outside and not is_loopback(urlsplit(str(recipe.url)).hostname or ""):
        why = 'the demo asks no server outside this host (`source = "live"` does)'
        return Failure("policy_denied", why)
    return None


def _find_folder_refusal(recipe: Recipe, policy: DeployPolicy) -> Failure | None:
    """Why the folder that a private command runs in is not shown to it: it holds toolmill's own
    files, or lies among them elsewhere than in the home as a whole."""
    if not recipe.directory:
        return None
    folder = Path(recipe.directory)
    if is_private_folder(folder):
        return Failure("policy_denied", f"its folder {folder} is a home folder or lies above one")
    for own in map(Path, map(os.path.realpath, policy.own)):
        among = own != policy.home and folder.is_relative_to(own)
        if own.is_dir() and (among or own.is_relative_to(folder)):
            found = f"its folder {folder}: toolmill keeps its own files in {own}"
            return Failure("policy_denied", f"{found}: choose a folder apart from that")
    return None


def _deploy_remote(recipe: Recipe, given: Given, policy: DeployPolicy) -> Deployed:
    """A remote server, asked over HTTP."""
    remote, url = policy.remote or RemotePolicy(), str(recipe.url)
    try:
        account = policy.accounts.auth(recipe.server_id, url) if policy.accounts else None
    except SecretError as error:
        return make_failed(Failure("remote_auth", str(error)))

    def ask(limits: ProbePolicy, _: bool = False) -> ProbeResult:
        return probe_remote(
            url,
            transport=recipe.transport or "auto",
            headers={**dict(recipe.headers), **given.headers},
            limits=limits,
            policy=remote,
            auth=account,
        )

    result = ask(policy.conversation)
    made_up = set(recipe.placeholders) - list_given_names(given)
    return Deployed(result, tuple(sorted(made_up)), behaviour=probe_behaviour(result, policy, ask))


def _scrub_result(found: Deployed, given: Given) -> Deployed:
    """The result without any secret that the server may have said back."""
    if not list_given_names(given):
        return found
    result = ProbeResult(**given.scrub(asdict(found.probe)))
    return replace(found, probe=result, behaviour=given.scrub(found.behaviour))
