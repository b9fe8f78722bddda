"""One package on this host: fetched, launched, tried again with guesses, asked once more.

Belongs here: putting artefact, arguments, environment and secrets together into launches, and
what was made up for the one that counted.
Does not belong here: what to try (`guesses.py`), servers elsewhere and scrubbing (`deploy.py`).
"""

from collections.abc import Callable
from typing import Any

from assets.servers.asker import ask_again, with_moved_clock
from assets.servers.bundle import SERVER
from assets.servers.certificate import certify
from assets.servers.conversation import ProbePolicy
from assets.servers.fetch import Artifact, FetchError, ensure_artifact
from assets.servers.guesses import made_up_by, next_guess
from assets.servers.launch import Launch, Mount, SandboxPolicy
from assets.servers.placeholders import DATA
from assets.servers.policy import DeployPolicy
from assets.servers.probe import ProbeResult, probe
from assets.servers.reads import variables_read
from assets.servers.recipe import Recipe
from assets.servers.rows import Deployed, failed
from assets.servers.secrets import Given
from assets.servers.taxonomy import Failure
from assets.servers.toolchain import Toolchain


def run_package(
    recipe: Recipe, given: Given, policy: DeployPolicy, toolchain: Toolchain
) -> Deployed:
    """What came of a package. Every outcome is a result; raises only SandboxUnavailable."""
    try:
        artifact = _artifact(recipe, policy, toolchain)
    except FetchError as error:
        return failed(Failure(error.kind, str(error)))
    result = _probe(recipe, given, artifact, policy, toolchain)
    used = recipe
    if result.status != "ok":
        used, artifact, result = _try_again(recipe, given, artifact, result, policy, toolchain)
    launch = launch_of(used, artifact, toolchain, given)
    return Deployed(
        result,
        _made_up(recipe, used, artifact, given),
        artifact.locked,
        artifact.megabytes,
        artifact.built_with_scripts,
        behaviour_of(launch, result, policy, recipe.server_id),
        certificate_of(policy.sandbox_of(recipe.server_id), toolchain),
    )


def certificate_of(sandbox: SandboxPolicy, toolchain: Toolchain) -> dict[str, Any]:
    """The certificate of the sandbox in use: its digest, result and facts."""
    held = certify(sandbox, toolchain)
    told = {"digest": held.digest, "passed": held.passed, "n": held.n}
    return {**held.facts(), **told, "escaped": list(held.escaped)}


def behaviour_of(
    launch: Launch, result: ProbeResult, policy: DeployPolicy, server_id: str
) -> list[dict[str, str]] | None:
    """Rows of `asker.Behaviour` of a server that listed its tools; None where nobody asked."""
    if result.status != "ok" or not policy.twice:
        return None
    sandbox = policy.sandbox_of(server_id)

    def ask(limits: ProbePolicy, moved: bool) -> ProbeResult:
        return probe(with_moved_clock(launch) if moved else launch, sandbox, limits)

    return asked(result, policy.conversation, ask)


def asked(
    result: ProbeResult, limits: ProbePolicy, ask: Callable[[ProbePolicy, bool], ProbeResult]
) -> list[dict[str, str]] | None:
    """The rows of what `ask` found, None where it found no second answer."""
    found = ask_again(result, limits, ask)
    return None if found is None else [one.as_row() for one in found]


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


def _built(
    recipe: Recipe,
    given: Given,
    artifact: Artifact,
    result: ProbeResult,
    policy: DeployPolicy,
    toolchain: Toolchain,
) -> tuple[Artifact, ProbeResult]:
    """The package with its own install scripts run, where the policy allows that and it helps."""
    sandbox = policy.sandbox_of(recipe.server_id)
    if sandbox.scripts != "second":
        return artifact, result
    try:
        built = ensure_artifact(
            recipe, home=policy.home, toolchain=toolchain, policy=sandbox, scripts=True
        )
    except FetchError:
        return artifact, result
    again = _probe(recipe, given, built, policy, toolchain)
    return (built, again) if again.status == "ok" else (artifact, result)


def _try_again(
    recipe: Recipe,
    given: Given,
    artifact: Artifact,
    result: ProbeResult,
    policy: DeployPolicy,
    toolchain: Toolchain,
) -> tuple[Recipe, Artifact, ProbeResult]:
    """The first further try that lists tools; each builds on the one before. If none does, the
    first try stands, or the one with the dependencies that the release was made for."""
    tried, stands = [recipe], (recipe, artifact, result)
    reads = variables_read(artifact.tree, recipe) if policy.placeholders else ()
    while extra := next_guess(recipe, result, tried, reads=reads, placeholders=policy.placeholders):
        if extra.as_of != recipe.as_of:
            try:
                artifact = _artifact(extra, policy, toolchain)
            except FetchError:
                continue  # what it depended on then is no longer to be had
        result = _probe(extra, given, artifact, policy, toolchain)
        if result.status == "ok" or extra.as_of != recipe.as_of:
            stands = (extra, artifact, result)
        recipe = extra
    return stands


def _probe(
    recipe: Recipe, given: Given, artifact: Artifact, policy: DeployPolicy, toolchain: Toolchain
) -> ProbeResult:
    launch = launch_of(recipe, artifact, toolchain, given)
    return probe(launch, policy.sandbox_of(recipe.server_id), policy.conversation)


def _artifact(recipe: Recipe, policy: DeployPolicy, toolchain: Toolchain) -> Artifact:
    if recipe.ecosystem != "private":
        sandbox = policy.sandbox_of(recipe.server_id)
        return ensure_artifact(recipe, home=policy.home, toolchain=toolchain, policy=sandbox)
    raise FetchError("policy_denied", "private servers are launched by hand (`toolmill probe`)")


def _made_up(recipe: Recipe, used: Recipe, artifact: Artifact, given: Given) -> tuple[str, ...]:
    """Which values of the launch that counted were placeholders."""
    passed = {f"env:{name}" for name, _ in used.env}
    names = {
        name
        for name in (*recipe.placeholders, *artifact.placeholders, *made_up_by(recipe, used))
        if not name.startswith("env:") or name in passed
    }
    return tuple(sorted(names - given_names(given)))


def given_names(given: Given) -> set[str]:
    """The names of what is real, as placeholders are named."""
    return {f"env:{name}" for name in given.env} | {f"header:{name}" for name in given.headers}
