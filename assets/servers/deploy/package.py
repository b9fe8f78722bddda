"""One package on this host: fetched, launched, tried again with guesses, asked once more."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from assets.servers.certificate.certificate import certify
from assets.servers.credentials.secrets import Given
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.deploy.result import Deployed, failed
from assets.servers.packages.fetch import Artifact, FetchError, ensure_artifact
from assets.servers.packages.licence import licence_of
from assets.servers.packages.mcpb import SERVER
from assets.servers.probe.consistency import ask_again, with_moved_clock
from assets.servers.probe.failure_kinds import Failure
from assets.servers.probe.probe import ProbeResult, probe
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.env_usage import variables_read
from assets.servers.recipes.facts import recipe_facts
from assets.servers.recipes.placeholders import DATA
from assets.servers.recipes.recipe import Recipe
from assets.servers.recipes.relaunch import made_up_by, next_guess
from assets.servers.sandbox.spec import Launch, Mount, SandboxPolicy
from assets.servers.sandbox.toolchain import Toolchain

Ask = Callable[[ProbePolicy, bool], ProbeResult]


def run_package(
    recipe: Recipe, given: Given, policy: DeployPolicy, toolchain: Toolchain
) -> Deployed:
    """The result of a package. Every outcome is a result; raises only SandboxUnavailable."""
    package = _Package(recipe, given, policy, toolchain)
    try:
        tried = package.try_it(recipe, package.fetch(recipe))
    except FetchError as error:
        return failed(Failure(error.kind, str(error)))
    if tried.result.status != "ok":
        tried = package.built(tried)
    if tried.result.status != "ok":
        tried = package.guessed(tried)
    artifact, sandbox = tried.artifact, package.sandbox
    launch = launch_of(tried.recipe, artifact, toolchain, given)
    return Deployed(
        tried.result,
        _made_up(recipe, tried, given),
        artifact.locked,
        artifact.megabytes,
        artifact.built_with_scripts,
        behaviour_of(launch, tried.result, policy, sandbox),
        certificate_of(sandbox, toolchain),
        licence_of(recipe, artifact.tree),
        launched=_launched(recipe, tried),
    )


def launch_of(
    recipe: Recipe, artifact: Artifact, toolchain: Toolchain, given: Given | None = None
) -> Launch:
    """The command and the world it sees in the run phase."""
    mounts = [Mount.same(path) for path in toolchain.binds]
    mounts.append(Mount(artifact.tree, SERVER))
    return Launch(
        argv=(*artifact.argv, *recipe.args),
        env={**artifact.env, **dict(recipe.env), **(given.env if given else {})},
        mounts=tuple(mounts),
        dirs=(DATA,),
    )


def certificate_of(sandbox: SandboxPolicy, toolchain: Toolchain) -> dict[str, Any]:
    """The certificate of the sandbox in use: its digest, result and facts."""
    held = certify(sandbox, toolchain)
    told = {"digest": held.digest, "passed": held.passed, "n": held.n}
    return {**held.facts(), **told, "escaped": list(held.escaped)}


def behaviour_of(
    launch: Launch, result: ProbeResult, policy: DeployPolicy, sandbox: SandboxPolicy
) -> list[dict[str, str]] | None:
    """Rows of `asker.Behaviour` of a server that was launched here."""

    def ask(limits: ProbePolicy, moved: bool) -> ProbeResult:
        return probe(with_moved_clock(launch) if moved else launch, sandbox, limits)

    return asked(result, policy, ask)


def asked(result: ProbeResult, policy: DeployPolicy, ask: Ask) -> list[dict[str, str]] | None:
    """The rows of what `ask` found of a server that listed its tools; None where nobody asked, or
    where there was no second answer."""
    if result.status != "ok" or not policy.twice:
        return None
    found = ask_again(result, policy.conversation, ask)
    return None if found is None else [one.as_row() for one in found]


def given_names(given: Given) -> set[str]:
    """The names of what is real, as placeholders are named."""
    return {f"env:{name}" for name in given.env} | {f"header:{name}" for name in given.headers}


@dataclass(frozen=True)
class _Tried:
    """One launch: of what, and its result."""

    recipe: Recipe
    artifact: Artifact
    result: ProbeResult


@dataclass(frozen=True)
class _Package:
    """One package and what all its launches have in common."""

    recipe: Recipe
    given: Given
    policy: DeployPolicy
    toolchain: Toolchain

    @property
    def sandbox(self) -> SandboxPolicy:
        return self.policy.sandbox_of(self.recipe.server_id)

    def fetch(self, recipe: Recipe, *, scripts: bool = False) -> Artifact:
        """Raises FetchError."""
        if recipe.ecosystem == "private":
            raise FetchError("policy_denied", "private servers are launched by `toolmill probe`")
        return ensure_artifact(
            recipe,
            home=self.policy.home,
            toolchain=self.toolchain,
            policy=self.sandbox,
            scripts=scripts,
        )

    def try_it(self, recipe: Recipe, artifact: Artifact) -> _Tried:
        launch = launch_of(recipe, artifact, self.toolchain, self.given)
        return _Tried(recipe, artifact, probe(launch, self.sandbox, self.policy.conversation))

    def built(self, first: _Tried) -> _Tried:
        """With its own install scripts run, where the policy allows that and it helps."""
        if not first.artifact.scripts_skipped or self.sandbox.scripts != "second":
            return first
        try:
            again = self.try_it(first.recipe, self.fetch(first.recipe, scripts=True))
        except FetchError:
            return first
        return again if again.result.status == "ok" else first

    def guessed(self, first: _Tried) -> _Tried:
        """The first further try that lists tools; each builds on the one before. If none does, the
        first try stands, or the one with the dependencies that the release was made for."""
        made_up = self.policy.placeholders
        reads = variables_read(first.artifact.tree, first.recipe) if made_up else ()
        last, stands, tried = first, first, [first.recipe]
        while extra := next_guess(
            last.recipe, last.result, tried, reads=reads, placeholders=made_up
        ):
            older = extra.as_of != last.recipe.as_of
            try:
                artifact = self.fetch(extra) if older else last.artifact
            except FetchError:
                continue  # what it depended on then is no longer to be had
            last = self.try_it(extra, artifact)
            if last.result.status == "ok":
                return last
            stands = last if older else stands
        return stands


def _launched(recipe: Recipe, tried: _Tried) -> dict[str, Any] | None:
    """The facts of the launch that counted, where they are not those of the planned one. What was
    made up is in them whatever real values it was given: those may be withdrawn."""
    scripts = tried.artifact.built_with_scripts
    if tried.recipe == recipe and not scripts:
        return None
    made_up = _made_up(recipe, tried, Given())
    used = tried.recipe.model_copy(update={"placeholders": made_up})
    return recipe_facts(used, scripts=scripts)


def _made_up(recipe: Recipe, tried: _Tried, given: Given) -> tuple[str, ...]:
    """Which values of the launch that counted were placeholders."""
    passed = {f"env:{name}" for name, _ in tried.recipe.env}
    names = {
        name
        for name in (
            *recipe.placeholders,
            *tried.artifact.placeholders,
            *made_up_by(recipe, tried.recipe),
        )
        if not name.startswith("env:") or name in passed
    }
    return tuple(sorted(names - given_names(given)))
