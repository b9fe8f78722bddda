"""One image on this host: a server that is run by a container engine, under the same limits."""

from collections.abc import Callable

from assets.servers.credentials.secrets import Given
from assets.servers.deploy.grants import list_granted_places
from assets.servers.deploy.package import list_given_names, probe_behaviour
from assets.servers.deploy.policy import DeployPolicy
from assets.servers.deploy.reach import apply_grant, explain_network
from assets.servers.deploy.result import Deployed, make_failed
from assets.servers.probe.failure_kinds import Failure, PackageError
from assets.servers.probe.probe import ProbeResult, probe
from assets.servers.probe.session import ProbePolicy
from assets.servers.recipes.recipe import Recipe
from assets.servers.sandbox.backend import Command, LaunchRefused, SandboxUnavailable
from assets.servers.sandbox.docker import Docker, write_env_file
from assets.servers.sandbox.spec import Launch, SandboxPolicy


def find_local_image(name: str, sandbox: SandboxPolicy) -> str:
    """The id of an image that this host has under a name. Raises PackageError."""
    if found := _open_engine(sandbox).find_image(name):
        return found
    raise PackageError("needs_software", f"no image {name!r:.200} on this host: build it")


def fetch_image(
    recipe: Recipe, given: Given, policy: DeployPolicy, sandbox: SandboxPolicy
) -> Callable[[], Command]:
    """Pulls the image; what is returned makes the command of one launch. Raises PackageError."""
    docker = _open_engine(sandbox)
    if recipe.ecosystem == "private":
        image = str(recipe.integrity)
        if docker.find_image(recipe.name) != image:  # an index says which id: trusted is the name
            found = f"the image {recipe.name!r:.200} that was listed is no longer on this host"
            raise PackageError("needs_software", f"{found}: run again")
    else:
        image = f"{recipe.name}@{recipe.integrity}"
        if problem := docker.pull(image):
            raise PackageError("fetch_failed", problem)
    env = {**dict(recipe.env), **given.env}
    seen = apply_grant(Launch(()), recipe.server_id, policy)
    try:
        write_env_file(env)
        docker.arguments(seen, sandbox, seen.mounts)
    except LaunchRefused as error:
        raise PackageError("policy_denied", str(error)) from None
    return lambda: docker.image_command(image, recipe.args, env, sandbox, seen=seen)


def _open_engine(sandbox: SandboxPolicy) -> Docker:
    """Raises PackageError where no engine answers."""
    docker = Docker(program=sandbox.engine)
    try:
        docker.preflight()
    except SandboxUnavailable as error:
        found = f"an image runs in a container engine only, and {error.what} ({error.why})"
        raise PackageError("needs_software", found) from None
    return docker


def run_image(recipe: Recipe, given: Given, policy: DeployPolicy) -> Deployed:
    """The result of an image; `needs_software` where no engine answers.

    Its clock cannot be moved: its differential probe changes the name and the number of calls.
    It has no certificate, because the escape suite did not run in this image's own root.
    """
    sandbox, grant = policy.sandbox_of(recipe.server_id), policy.grant_of(recipe.server_id)
    try:
        command = fetch_image(recipe, given, policy, sandbox)
    except PackageError as error:
        return make_failed(Failure(error.kind, str(error)))

    def ask(limits: ProbePolicy, _: bool = False) -> ProbeResult:
        return explain_network(probe(command(), sandbox, limits), recipe.server_id, ())

    result = ask(policy.conversation)
    made_up = {name for name in recipe.placeholders if not name.startswith("env:")}
    made_up |= {f"env:{name}" for name, _ in recipe.env} & set(recipe.placeholders)
    real = list_given_names(given) | list_granted_places(recipe, grant)
    names = tuple(sorted(made_up - real))
    return Deployed(result, names, behaviour=probe_behaviour(result, policy, ask))
