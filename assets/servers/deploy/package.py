"""Launches of one recipe: a package with further tries, a local command, or an image."""

import json
from collections.abc import Callable
from dataclasses import asdict, dataclass
from typing import Any

from assets.servers.deploy.grants import ServerGrant, list_granted_places
from assets.servers.deploy.launch import (
    apply_grant,
    explain_network,
    open_local_launch,
    probe_granted,
)
from assets.servers.deploy.policy import DeployPolicy, find_unconfirmed
from assets.servers.probe.failure_kinds import PackageError, ProbeFailure
from assets.servers.probe.probe import ProbeResult, move_clock, probe, probe_again
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.install import InstalledArtifact, ensure_artifact
from assets.servers.recipes.package_files import SERVER, find_variables, read_licence
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import LaunchRecipe, dump_recipe
from assets.servers.recipes.relaunch import list_made_up, make_next_guess
from assets.servers.sandbox.certificate import certify
from assets.servers.sandbox.docker import DockerBackend, write_env_file
from assets.servers.sandbox.spec import (
    BackendCommand,
    LaunchRefused,
    SandboxLaunch,
    SandboxMount,
    SandboxPolicy,
    SandboxUnavailable,
)
from assets.servers.sandbox.toolchain import HostToolchain
from assets.servers.secrets import LaunchSecrets


@dataclass(frozen=True)
class DeploymentResult:
    """The result of one recipe: the probe's result, what was made up, what was installed.

    behaviour: rows of `asker.Behaviour`, None without a differential probe. certificate: facts of
    the sandbox it ran in, None for a server elsewhere. license: as the package states it. launched:
    `recipe_facts` of the launch that counted, None where it was the planned one.
    """

    probe: ProbeResult
    placeholders: tuple[str, ...] = ()
    locked: str | None = None
    megabytes: float = 0.0
    built_with_scripts: bool = False
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
    return DeploymentResult(
        ProbeResult(status="failed", error_kind=failure.kind, hint=failure.hint)
    )


Ask = Callable[[ProbePolicy, bool], ProbeResult]


def run_package(
    recipe: LaunchRecipe, secrets: LaunchSecrets, policy: DeployPolicy, toolchain: HostToolchain
) -> DeploymentResult:
    """The result of a package. Every outcome is a result; raises only SandboxUnavailable."""
    package = _PackageLauncher(recipe, secrets, policy, toolchain)
    try:
        tried = package.try_launch(recipe, package.fetch(recipe))
    except PackageError as error:
        return make_failed(ProbeFailure(error.kind, str(error)))
    if tried.result.status != "ok":
        tried = package.try_built(tried)
    if tried.result.status != "ok":
        tried = package.try_guesses(tried)
    artifact, sandbox = tried.artifact, package.sandbox
    launch = package.make_launch(tried.recipe, artifact)
    return DeploymentResult(
        tried.result,
        _list_made_up(recipe, tried, secrets, package.grant),
        artifact.locked,
        artifact.megabytes,
        artifact.built_with_scripts,
        probe_launch_behaviour(launch, tried.result, recipe.server_id, policy, toolchain),
        certify(sandbox, toolchain),
        read_licence(recipe, artifact.tree),
        launched=_describe_launch(recipe, tried),
    )


def run_local(
    recipe: LaunchRecipe, secrets: LaunchSecrets, policy: DeployPolicy, toolchain: HostToolchain
) -> DeploymentResult:
    """The result of a command in a folder of this host. Nothing is guessed: its owner wrote it."""
    sandbox, grant = policy.sandbox_of(recipe.server_id), policy.grant_of(recipe.server_id)
    try:
        with open_local_launch(recipe, toolchain, secrets) as opened:
            launch = apply_grant(opened, recipe.server_id, policy)
            result = probe_granted(launch, recipe.server_id, policy, toolchain.python)
            more = (recipe.server_id, policy, toolchain)
            behaviour = probe_launch_behaviour(launch, result, *more)
    except PackageError as error:
        return make_failed(ProbeFailure(error.kind, str(error)))
    spare = {f"env:{name}" for name, _ in recipe.spare_env}  # they were not passed
    real = list_given_names(secrets) | list_granted_places(recipe, grant) | spare
    names = tuple(sorted(set(recipe.placeholders) - real))
    certificate = certify(sandbox, toolchain)
    return DeploymentResult(result, names, behaviour=behaviour, certificate=certificate)


def make_launch(
    recipe: LaunchRecipe,
    artifact: InstalledArtifact,
    toolchain: HostToolchain,
    secrets: LaunchSecrets | None = None,
) -> SandboxLaunch:
    """The command and what it sees in the run phase."""
    mounts = [SandboxMount.same(path) for path in toolchain.binds]
    mounts.append(SandboxMount(artifact.tree, SERVER))
    return SandboxLaunch(
        argv=(*artifact.argv, *recipe.args),
        env={**artifact.env, **dict(recipe.env), **(secrets.env if secrets else {})},
        mounts=tuple(mounts),
        dirs=(DATA,),
    )


def probe_launch_behaviour(
    launch: SandboxLaunch,
    result: ProbeResult,
    server_id: str,
    policy: DeployPolicy,
    toolchain: HostToolchain,
) -> list[dict[str, str]] | None:
    """Rows of `asker.Behaviour` of a server that was launched here."""

    def ask(limits: ProbePolicy, moved: bool) -> ProbeResult:
        again = move_clock(launch) if moved else launch
        return probe_granted(again, server_id, policy, toolchain.python, limits)

    return probe_behaviour(result, policy, ask)


def probe_behaviour(
    result: ProbeResult, policy: DeployPolicy, ask: Ask
) -> list[dict[str, str]] | None:
    """The rows of what `ask` found of a server that listed its tools; None where nobody asked, or
    where there was no second answer."""
    if result.status != "ok" or not policy.twice:
        return None
    differences = probe_again(result, policy.conversation, ask)
    return None if differences is None else [finding.as_row() for finding in differences]


def list_given_names(secrets: LaunchSecrets) -> set[str]:
    """The names of what is real, as placeholders are named."""
    return {f"env:{name}" for name in secrets.env} | {f"header:{name}" for name in secrets.headers}


@dataclass(frozen=True)
class _LaunchAttempt:
    """One launch: of what, and its result."""

    recipe: LaunchRecipe
    artifact: InstalledArtifact
    result: ProbeResult


@dataclass(frozen=True)
class _PackageLauncher:
    """One package and what all its launches have in common."""

    recipe: LaunchRecipe
    given: LaunchSecrets
    policy: DeployPolicy
    toolchain: HostToolchain

    @property
    def sandbox(self) -> SandboxPolicy:
        return self.policy.sandbox_of(self.recipe.server_id)

    @property
    def grant(self) -> ServerGrant:
        return self.policy.grant_of(self.recipe.server_id)

    def fetch(self, recipe: LaunchRecipe, *, scripts: bool = False) -> InstalledArtifact:
        """Raises PackageError."""
        return ensure_artifact(
            recipe,
            home=self.policy.home,
            toolchain=self.toolchain,
            policy=self.sandbox,
            scripts=scripts,
        )

    def try_launch(self, recipe: LaunchRecipe, artifact: InstalledArtifact) -> _LaunchAttempt:
        launch, name = self.make_launch(recipe, artifact), recipe.server_id
        result = probe_granted(launch, name, self.policy, self.toolchain.python)
        return _LaunchAttempt(recipe, artifact, result)

    def make_launch(self, recipe: LaunchRecipe, artifact: InstalledArtifact) -> SandboxLaunch:
        launch = make_launch(recipe, artifact, self.toolchain, self.given)
        return apply_grant(launch, recipe.server_id, self.policy)

    def try_built(self, first: _LaunchAttempt) -> _LaunchAttempt:
        """With its own install scripts run, where the policy allows that and it helps."""
        if not first.artifact.scripts_skipped or self.sandbox.scripts != "second":
            return first
        try:
            again = self.try_launch(first.recipe, self.fetch(first.recipe, scripts=True))
        except PackageError:
            return first
        return again if again.result.status == "ok" else first

    def try_guesses(self, first: _LaunchAttempt) -> _LaunchAttempt:
        """The first further try that lists tools; each builds on the one before. If none does, the
        first try stands, or the one with the dependencies that the release was made for."""
        made_up = self.policy.placeholders
        reads = find_variables(first.artifact.tree, first.recipe) if made_up else ()
        last, stands, tried = first, first, [first.recipe]
        while extra := make_next_guess(
            last.recipe, last.result, tried, reads=reads, placeholders=made_up
        ):
            if find_unconfirmed(extra, self.given, self.policy):
                continue  # arguments or variables that nobody confirmed, beside a secret
            older = extra.as_of != last.recipe.as_of
            try:
                artifact = self.fetch(extra) if older else last.artifact
            except PackageError:
                continue  # what it depended on then is no longer to be had
            last = self.try_launch(extra, artifact)
            if last.result.status == "ok":
                return last
            stands = last if older else stands
        return stands


def _describe_launch(recipe: LaunchRecipe, tried: _LaunchAttempt) -> dict[str, Any] | None:
    """The facts of the launch that counted, where they are not those of the planned one. What was
    made up is in them whatever real values it was given: those may be withdrawn."""
    scripts = tried.artifact.built_with_scripts
    if tried.recipe == recipe and not scripts:
        return None
    made_up = _list_made_up(recipe, tried, LaunchSecrets(), ServerGrant())
    used = tried.recipe.model_copy(update={"placeholders": made_up})
    return dump_recipe(used, scripts=scripts)


def _list_made_up(
    recipe: LaunchRecipe, tried: _LaunchAttempt, secrets: LaunchSecrets, grant: ServerGrant
) -> tuple[str, ...]:
    """Which values of the launch that counted were placeholders."""
    passed = {f"env:{name}" for name, _ in tried.recipe.env}
    names = {
        name
        for name in (
            *recipe.placeholders,
            *tried.artifact.placeholders,
            *list_made_up(recipe, tried.recipe),
        )
        if not name.startswith("env:") or name in passed
    }
    granted = list_granted_places(tried.recipe, grant)
    return tuple(sorted(names - list_given_names(secrets) - granted))


def find_local_image(name: str, sandbox: SandboxPolicy) -> str:
    """The id of an image that this host has under a name. Raises PackageError."""
    if image_id := _open_engine(sandbox).find_image(name):
        return image_id
    raise PackageError("needs_software", f"no image {name!r:.200} on this host: build it")


def fetch_image(
    recipe: LaunchRecipe, secrets: LaunchSecrets, policy: DeployPolicy, sandbox: SandboxPolicy
) -> Callable[[], BackendCommand]:
    """Pulls the image; what is returned makes the command of one launch. Raises PackageError."""
    docker = _open_engine(sandbox)
    if recipe.ecosystem == "private":
        image = str(recipe.integrity)
        if docker.find_image(recipe.name) != image:  # an index says which id: trusted is the name
            detail = f"the image {recipe.name!r:.200} that was listed is no longer on this host"
            raise PackageError("needs_software", f"{detail}: run again")
    else:
        image = f"{recipe.name}@{recipe.integrity}"
        if problem := docker.pull(image):
            raise PackageError("fetch_failed", problem)
    env = {**dict(recipe.env), **secrets.env}
    granted_launch = apply_grant(SandboxLaunch(()), recipe.server_id, policy)
    try:
        write_env_file(env)
        docker.arguments(granted_launch, sandbox, granted_launch.mounts)
    except LaunchRefused as error:
        raise PackageError("policy_denied", str(error)) from None
    return lambda: docker.image_command(image, recipe.args, env, sandbox, granted=granted_launch)


def _open_engine(sandbox: SandboxPolicy) -> DockerBackend:
    """Raises PackageError where no engine answers."""
    docker = DockerBackend(program=sandbox.engine)
    try:
        docker.preflight()
    except SandboxUnavailable as error:
        detail = f"an image runs in a container engine only, and {error.what} ({error.why})"
        raise PackageError("needs_software", detail) from None
    return docker


def run_image(
    recipe: LaunchRecipe, secrets: LaunchSecrets, policy: DeployPolicy
) -> DeploymentResult:
    """The result of an image; `needs_software` where no engine answers.

    Its clock cannot be moved: its differential probe changes the name and the number of calls.
    It has no certificate, because the escape suite did not run in this image's own root.
    """
    sandbox, grant = policy.sandbox_of(recipe.server_id), policy.grant_of(recipe.server_id)
    try:
        command = fetch_image(recipe, secrets, policy, sandbox)
    except PackageError as error:
        return make_failed(ProbeFailure(error.kind, str(error)))

    def ask(limits: ProbePolicy, _: bool = False) -> ProbeResult:
        return explain_network(probe(command(), sandbox, limits), recipe.server_id, ())

    result = ask(policy.conversation)
    made_up = {name for name in recipe.placeholders if not name.startswith("env:")}
    made_up |= {f"env:{name}" for name, _ in recipe.env} & set(recipe.placeholders)
    real = list_given_names(secrets) | list_granted_places(recipe, grant)
    names = tuple(sorted(made_up - real))
    return DeploymentResult(result, names, behaviour=probe_behaviour(result, policy, ask))
