"""Planning: the recipe of a listing, filled in and pinned, or why there is none."""

from collections.abc import Callable

from packaging.utils import canonicalize_name

from assets.marketplaces.launch.command import read_launch
from assets.marketplaces.listing import Listing, Package
from assets.marketplaces.server_json.legacy_arguments import A_COPY
from assets.servers.probe.failure_kinds import PackageError
from assets.servers.recipes.fill import (
    describe_provider,
    fill_address,
    fill_arguments,
    fill_environment,
    fill_headers,
)
from assets.servers.recipes.local_recipe import FindImage, plan_local
from assets.servers.recipes.names import (
    find_name_problem,
    identify_server,
    normalise_address,
    parse_image,
)
from assets.servers.recipes.recipe import Recipe, Resolved, Transport, Unlaunchable

Resolve = Callable[[Package], Resolved]


def plan_recipe(
    listing: Listing,
    resolve: Resolve,
    *,
    placeholders: bool = True,
    find_image: FindImage | None = None,
) -> Recipe | Unlaunchable:
    """The pinned recipe of a listing, or why there is none. `resolve` asks the registry for the
    exact version and integrity, `find_image` a container engine for the id of a local image;
    whatever they raise as PackageError becomes an Unlaunchable. Without `placeholders` nothing is
    made up: arguments, variables and headers that need a value are left out."""
    identity = identify_server(listing)
    if not listing.runnable and not _is_launched_by_name(listing):
        return Unlaunchable(identity, "no_recipe", listing.reason or "no way to launch it")
    if listing.is_local:
        return plan_local(listing, str(identity), find_image, placeholders=placeholders)
    package = listing.package
    if package is None and listing.url:
        return _plan_remote(listing, str(identity), placeholders)
    if package is None or identity is None:
        kind = package.type if package else "nothing"
        what = f"{kind} to launch, expected npm, pypi, mcpb or oci"
        return Unlaunchable(None, "policy_denied", what)
    problem = find_name_problem(package)
    if problem:
        return Unlaunchable(identity, "no_recipe", problem)
    try:
        resolved = resolve(package)
    except PackageError as error:
        return Unlaunchable(identity, error.kind, str(error))
    return _fill_recipe(listing, package, identity, resolved, placeholders)


def _fill_recipe(
    listing: Listing, package: Package, identity: str, resolved: Resolved, placeholders: bool
) -> Recipe:
    """The recipe of a package's resolved version, with what its launch needs filled in."""
    by_name = _is_launched_by_name(listing)
    about = {"context": describe_provider(listing), "placeholders": placeholders}
    launch = read_launch(listing)
    words = () if by_name else _drop_module_words(package, launch.own_args)
    args, made_up = fill_arguments(words, **about)
    env, spare, env_made_up = fill_environment(listing.env, **about)
    return Recipe(
        server_id=identity,
        ecosystem=package.type,  # type: ignore[arg-type]
        name=_name_package(package),
        version=resolved.version,
        integrity=resolved.integrity,
        entry=None if by_name or package.type == "oci" else launch.entry,
        args=args,
        env=env,
        spare_env=spare,
        placeholders=(*(["args"] if by_name else []), *made_up, *env_made_up),
        url=package.identifier if package.type == "mcpb" else None,
        python=resolved.python,
        released=resolved.released,
        instead_of=resolved.instead_of,
    )


def _drop_module_words(package: Package, words: tuple[str, ...]) -> tuple[str, ...]:
    """Without `-m MODULE`: a Python package is started by its program, which runs that module."""
    return words[2:] if package.type == "pypi" and words[:1] == ("-m",) else words


def _is_launched_by_name(listing: Listing) -> bool:
    """Whether a listing names a package, and arguments that start its author's checkout: then the
    package is started by its own name, and the record of what is made up says `args`."""
    package, reason = listing.package, listing.reason or ""
    return package is not None and package.type in ("npm", "pypi") and reason.startswith(A_COPY)


def _name_package(package: Package) -> str:
    if package.type == "pypi":
        return canonicalize_name(package.identifier)
    return parse_image(package)[0] if package.type == "oci" else package.identifier


def _plan_remote(listing: Listing, identity: str, placeholders: bool) -> Recipe | Unlaunchable:
    about = {"context": describe_provider(listing), "placeholders": placeholders}
    url, url_made_up = fill_address(str(listing.url), **about)
    if url is None:
        return Unlaunchable(identity, "needs_argument", f"{listing.url!r} has places to fill in")
    headers, made_up = fill_headers(listing.headers, **about)
    spoken: dict[str | None, Transport] = {"streamable-http": "http", "sse": "sse"}
    return Recipe(
        server_id=identity,
        ecosystem="remote",
        name=normalise_address(str(listing.url)),
        url=url,
        transport=spoken.get(listing.transport, "auto"),
        headers=headers,
        placeholders=(*url_made_up, *made_up),
    )
