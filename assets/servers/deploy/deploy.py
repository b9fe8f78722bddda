"""One deployment: a recipe launched in the sandbox or asked over HTTP, with its secrets."""

import json
import os
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from assets.servers.deploy.grants import find_grant_problem, list_granted_places
from assets.servers.deploy.launch import (
    apply_grant,
    explain_network,
    make_local_launch,
    probe_granted,
)
from assets.servers.deploy.policy import DeployPolicy, find_unconfirmed
from assets.servers.probe.failure_kinds import PackageError, ProbeFailure
from assets.servers.probe.probe import ProbeResult, move_clock, probe, probe_again
from assets.servers.probe.remote_probe import probe_remote
from assets.servers.probe.remote_transport import RemotePolicy
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.install import InstalledArtifact, ensure_artifact, list_installed
from assets.servers.recipes.package_files import SERVER, read_licence
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from assets.servers.recipes.relaunch import list_made_up, make_next_guess
from assets.servers.sandbox.certificate import certify
from assets.servers.sandbox.docker import ContainerEngine, write_env_file
from assets.servers.sandbox.spec import (
    BackendCommand,
    LaunchRefused,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    SandboxUnavailable,
    is_private_folder,
)
from assets.servers.sandbox.toolchain import HostToolchain, find_toolchain
from assets.servers.secrets import LaunchSecrets, SecretError, SecretSources
from warehouse.fleet import Fleet, LocalFleet, TaskLost
from warehouse.network.egress import is_loopback
from warehouse.storage.digest import digest


@dataclass(frozen=True)
class DeploymentResult:
    """The result of one recipe: the probe's result, what was made up, what was installed.

    behaviour: rows of `BehaviourDifference`, None without a differential probe. certificate: facts
    of the sandbox it ran in, None for a server elsewhere. license: as the package states it.
    launched: `recipe_facts` of the launch that counted, None where it was the planned one.
    """

    probe: ProbeResult
    placeholders: tuple[str, ...] = ()
    locked: str | None = None
    megabytes: float = 0.0
    behaviour: list[dict[str, str]] | None = None
    certificate: dict[str, Any] | None = None
    license: str | None = None
    launched: dict[str, Any] | None = None

    def to_json(self) -> bytes:
        return json.dumps(asdict(self)).encode()

    @classmethod
    def from_json(cls, data: bytes) -> "DeploymentResult":
        facts = json.loads(data)
        result = ProbeResult(**facts.pop("probe"))
        return cls(probe=result, **{**facts, "placeholders": tuple(facts["placeholders"])})


def make_failed(failure: ProbeFailure) -> DeploymentResult:
    """The result of a recipe that was never launched."""
    return DeploymentResult(ProbeResult("failed", failure.kind, failure.hint))


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
        result = RecipeLauncher(recipe, secrets, policy, toolchain).run()
    except PackageError as error:
        result = make_failed(ProbeFailure(error.kind, str(error)))
    if not secrets.names:
        return result
    # Without any secret that the server may have said back.
    clean = ProbeResult(**secrets.scrub(asdict(result.probe)))
    return replace(result, probe=clean, behaviour=secrets.scrub(result.behaviour))


def find_refusal(recipe: LaunchRecipe, policy: DeployPolicy) -> ProbeFailure | None:
    """Why the settings forbid a recipe, before anything is sent; None where they do not."""
    if recipe.ecosystem == "remote":
        why = ""
        if policy.remote is None:
            why = "remote servers are listed, not probed, by the settings (`sandbox.remote`)"
        elif not policy.outside and not is_loopback(urlsplit(str(recipe.url)).hostname or ""):
            why = 'the demo asks no server outside this host (`source = "live"` does)'
        return ProbeFailure("policy_denied", why) if why else None
    grant = policy.grant_of(recipe.server_id)
    others = {name: each for name, each in policy.grants.items() if name != recipe.server_id}
    problem = find_grant_problem(grant, policy.own, others)
    if recipe.is_image and grant.hosts:
        problem = "an image is held to no hosts: grant it folders, or the network as a whole"
    if problem:
        return ProbeFailure("bad_grant", problem)
    if not recipe.directory:
        return None
    # Its folder must hold none of toolmill's own files, nor lie among them elsewhere than in the
    # home as a whole.
    folder = Path(recipe.directory)
    if is_private_folder(folder):
        why = f"its folder {folder} is a home folder or lies above one"
        return ProbeFailure("policy_denied", why)
    for own_path in map(Path, map(os.path.realpath, policy.own)):
        among = own_path != policy.home and folder.is_relative_to(own_path)
        if own_path.is_dir() and (among or own_path.is_relative_to(folder)):
            why = (
                f"its folder {folder}: toolmill keeps its own files in {own_path}: choose a folder"
            )
            return ProbeFailure("policy_denied", f"{why} apart from that")
    return None


def make_launch(
    recipe: LaunchRecipe,
    artifact: InstalledArtifact,
    toolchain: HostToolchain,
    secrets: LaunchSecrets,
) -> SandboxLaunch:
    """The command of a package and what it sees in the run phase."""
    mounts = [SandboxMount.same(path) for path in toolchain.binds]
    mounts.append(SandboxMount(artifact.tree, SERVER))
    return SandboxLaunch(
        argv=(*artifact.argv, *recipe.args),
        env={**artifact.env, **dict(recipe.env), **secrets.env},
        mounts=tuple(mounts),
        dirs=(DATA,),
    )


Ask = Callable[[ProbePolicy, bool], ProbeResult]


@dataclass(frozen=True)
class _LaunchAttempt:
    """One launch: of what, and its result."""

    recipe: LaunchRecipe
    artifact: InstalledArtifact
    result: ProbeResult


@dataclass(frozen=True)
class RecipeLauncher:
    """One recipe and what all its launches have in common."""

    recipe: LaunchRecipe
    given: LaunchSecrets
    policy: DeployPolicy
    host: HostToolchain | None = None

    @property
    def toolchain(self) -> HostToolchain:
        return self.host or find_toolchain()

    @property
    def sandbox(self) -> SandboxPolicy:
        return self.policy.sandbox_of(self.recipe.server_id)

    def run(self) -> DeploymentResult:
        """Every outcome of the server is a result. Raises PackageError and SandboxUnavailable."""
        if self.recipe.ecosystem == "remote":
            return self._run_remote()
        if self.recipe.is_image:
            # Its clock cannot be moved: its differential probe changes the name and the number of
            # calls. It has no certificate: the preflight did not run in this image's own root.
            recipe, sandbox = self.recipe, self.sandbox
            command = fetch_image(recipe, self.given, self.policy, sandbox)

            def ask(limits: ProbePolicy, _: bool) -> ProbeResult:
                return explain_network(probe(command(), sandbox, limits), recipe.server_id, ())

            passed = {f"env:{name}" for name, _ in recipe.env}
            made_up = [n for n in recipe.placeholders if not n.startswith("env:") or n in passed]
            return self._ask_twice(ask, made_up)
        if self.recipe.ecosystem != "private":
            return self._run_package()
        # A command in a folder of this host. Nothing is guessed: its owner wrote it.
        recipe = self.recipe
        launch = make_local_launch(recipe, self.toolchain, self.given)
        launch = apply_grant(launch, recipe.server_id, self.policy)
        spare = {f"env:{name}" for name, _ in recipe.spare_env}  # they were not passed
        result = self._ask_twice(self._make_ask(launch), {*recipe.placeholders} - spare)
        return replace(result, certificate=certify(self.sandbox, self.toolchain))

    def _run_remote(self) -> DeploymentResult:
        recipe, policy, url = self.recipe, self.policy, str(self.recipe.url)
        try:
            account = policy.accounts.auth(recipe.server_id, url) if policy.accounts else None
        except SecretError as error:
            return make_failed(ProbeFailure("remote_auth", str(error)))

        def ask(limits: ProbePolicy, _: bool) -> ProbeResult:
            return probe_remote(
                url,
                transport=recipe.transport or "auto",
                headers={**dict(recipe.headers), **self.given.headers},
                limits=limits,
                policy=policy.remote or RemotePolicy(),
                auth=account,
            )

        return self._ask_twice(ask, recipe.placeholders)

    def _run_package(self) -> DeploymentResult:
        tried = self._try_launch(self.recipe, self._fetch(self.recipe))
        if tried.result.status != "ok":
            tried = self._try_guesses(tried)
        artifact = tried.artifact
        passed = {f"env:{name}" for name, _ in tried.recipe.env}
        named = (*self.recipe.placeholders, *artifact.placeholders)
        named += list_made_up(self.recipe, tried.recipe)
        made_up = sorted({n for n in named if not n.startswith("env:") or n in passed})
        launched = None
        if tried.recipe != self.recipe:
            # Made up is what was, whatever real values it was given: those may be withdrawn.
            launched = dump_recipe(tried.recipe.model_copy(update={"placeholders": tuple(made_up)}))
        ask = self._make_ask(self._make_launch(tried.recipe, artifact))
        return DeploymentResult(
            tried.result,
            self._drop_real(made_up, tried.recipe),
            artifact.locked,
            artifact.megabytes,
            self._find_behaviour(tried.result, ask),
            certify(self.sandbox, self.toolchain),
            read_licence(self.recipe, artifact.tree),
            launched,
        )

    def _make_ask(self, launch: SandboxLaunch) -> Ask:
        def ask(limits: ProbePolicy, moved: bool) -> ProbeResult:
            again = move_clock(launch) if moved else launch
            facts = (self.recipe.server_id, self.policy, self.toolchain.python)
            return probe_granted(again, *facts, limits)

        return ask

    def _ask_twice(self, ask: Ask, made_up: Iterable[str]) -> DeploymentResult:
        result = ask(self.policy.conversation, False)
        names = self._drop_real(made_up, self.recipe)
        return DeploymentResult(result, names, behaviour=self._find_behaviour(result, ask))

    def _find_behaviour(self, result: ProbeResult, ask: Ask) -> list[dict[str, str]] | None:
        """What others are told by a server that listed its tools; None where nobody asked, or
        where there was no second answer."""
        if result.status != "ok" or not self.policy.twice:
            return None
        differences = probe_again(result, self.policy.conversation, ask)
        return None if differences is None else [finding.as_row() for finding in differences]

    def _drop_real(self, made_up: Iterable[str], recipe: LaunchRecipe) -> tuple[str, ...]:
        """Made-up values without those that a secret or a granted folder replaced."""
        granted = list_granted_places(recipe, self.policy.grant_of(recipe.server_id))
        return tuple(sorted({*made_up} - self.given.names - granted))

    def _fetch(self, recipe: LaunchRecipe) -> InstalledArtifact:
        where = {"home": self.policy.home, "toolchain": self.toolchain, "policy": self.sandbox}
        return ensure_artifact(recipe, **where)

    def _make_launch(self, recipe: LaunchRecipe, artifact: InstalledArtifact) -> SandboxLaunch:
        launch = make_launch(recipe, artifact, self.toolchain, self.given)
        return apply_grant(launch, recipe.server_id, self.policy)

    def _try_launch(self, recipe: LaunchRecipe, artifact: InstalledArtifact) -> _LaunchAttempt:
        ask = self._make_ask(self._make_launch(recipe, artifact))
        return _LaunchAttempt(recipe, artifact, ask(self.policy.conversation, False))

    def _try_guesses(self, first: _LaunchAttempt) -> _LaunchAttempt:
        """The first further try that lists tools; each builds on the one before. If none does, the
        first try stands, or the one with the dependencies that the release was made for."""
        made_up = self.policy.placeholders
        last, stands, tried = first, first, [first.recipe]
        while extra := make_next_guess(
            last.recipe,
            last.result,
            tried,
            placeholders=made_up,
            installed=list_installed(last.artifact.tree),
        ):
            if find_unconfirmed(extra, self.given, self.policy):
                continue  # arguments or variables that nobody confirmed, beside a secret
            now, then = ((each.as_of, each.requirements) for each in (extra, last.recipe))
            older = now != then
            try:
                artifact = self._fetch(extra) if older else last.artifact
            except PackageError:
                continue  # what it depended on then is no longer to be had
            last = self._try_launch(extra, artifact)
            if last.result.status == "ok":
                return last
            stands = last if older else stands
        return stands


def fetch_image(
    recipe: LaunchRecipe, secrets: LaunchSecrets, policy: DeployPolicy, sandbox: SandboxPolicy
) -> Callable[[], BackendCommand]:
    """Pulls the image; what is returned makes the command of one launch. Raises PackageError."""
    engine = _open_engine(sandbox)
    image = f"{recipe.name}@{recipe.integrity}"
    if problem := engine.pull(image):
        raise PackageError("fetch_failed", problem)
    env = {**dict(recipe.env), **secrets.env}
    granted_launch = apply_grant(SandboxLaunch(()), recipe.server_id, policy)
    try:
        write_env_file(env)
        engine.arguments(granted_launch, sandbox)
    except LaunchRefused as error:
        raise PackageError("policy_denied", str(error)) from None
    return lambda: engine.image_command(image, recipe.args, env, sandbox, granted=granted_launch)


def _open_engine(sandbox: SandboxPolicy) -> ContainerEngine:
    """Raises PackageError where no engine answers."""
    engine = ContainerEngine(sandbox.engine)
    try:
        engine.preflight()
    except SandboxUnavailable as error:
        detail = f"an image runs in a container engine only, and {error.what} ({error.why})"
        raise PackageError("needs_software", detail) from None
    return engine


def effect_key(recipe: LaunchRecipe, conditions: str, attempt: int, run_date: str = "") -> str:
    """Names the effect of one launch. A remote server is another one in every run."""
    remote = recipe.ecosystem == "remote"
    facts = {"effect": "deploy", "recipe": recipe.digest, "conditions": conditions}
    return digest({**facts, "attempt": attempt, "run_date": run_date if remote else None})


def deploy_on(
    fleet: Fleet, recipe: LaunchRecipe, policy: DeployPolicy, toolchain: HostToolchain | None = None
) -> bytes:
    """The result of one allowed deployment, as `DeploymentResult.to_json` writes it. Raises what
    `deploy` raises, and FleetUnavailable.

    Only published packages without secrets or folders leave this machine; a worker keeps
    them at the path of this home and finds its own runtimes.
    """
    name, grant = recipe.server_id, policy.grant_of(recipe.server_id)
    here = grant.folders or policy.secrets.of(name)
    if isinstance(fleet, LocalFleet) or recipe.ecosystem not in ("npm", "pypi", "mcpb") or here:
        return deploy_allowed(recipe, policy, toolchain).to_json()
    portable = replace(  # what concerns this recipe, and nobody's secrets
        policy,
        secrets=SecretSources({}, bytes(16)),
        accounts=None,
        grants={name: policy.grants[name]} if name in policy.grants else {},
        confirmed={name: policy.confirmed[name]} if name in policy.confirmed else {},
        listed=(),
    )
    try:
        return fleet.call(deploy_to_json, recipe, portable)
    except TaskLost as error:
        return make_failed(ProbeFailure("worker_lost", str(error))).to_json()


def deploy_to_json(recipe: LaunchRecipe, policy: DeployPolicy) -> bytes:
    """The task that a worker runs."""
    return deploy_allowed(recipe, policy).to_json()
