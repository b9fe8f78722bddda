"""The recipe: one pinned way to launch one server, and its digest."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from pydantic import BaseModel, ConfigDict

from assets.marketplaces.launch.command import read_launch
from assets.marketplaces.launch.package_spec import is_exact
from assets.marketplaces.listing import Listing, Package
from assets.marketplaces.server_json.legacy_arguments import A_COPY
from assets.servers.probe.failure_kinds import KINDS, PackageError
from assets.servers.recipes.fill import (
    describe_provider,
    fill_address,
    fill_arguments,
    fill_environment,
    fill_headers,
)
from assets.servers.recipes.names import (
    find_name_problem,
    normalise_address,
    normalise_name,
    parse_image,
)
from warehouse.storage.digest import digest

RECIPE_VERSION = 2  # of how listings are planned: when it rises, all are planned anew
_FORM = 1  # of the digest

Ecosystem = Literal["npm", "pypi", "mcpb", "oci", "remote", "private"]
Transport = Literal["http", "sse", "auto"]
# Facts that came later: left out of the digest where unset, so that older digests stand.
_LATER = ("transport", "headers", "python", "as_of", "instead_of")


class Recipe(BaseModel):
    """How to launch one server, pinned.

    name: package name, bundle or remote URL, image, or the private server's name. integrity: what
    the download must hash to (npm's `sha512-…`, else space-separated `sha256:<hex>`). spare_env:
    values of optional variables, tried when the server lists nothing without them. placeholders:
    what is made up: `arg:0`, `env:NAME`, `header:NAME`, `url:NAME`, `args`. command: a private
    server's own program, run in `directory` of this host. python: the minor version it needs where
    the usual one will not do. released: when the release came out (RFC 3339), as its registry says;
    as_of: the date whose dependencies are installed, None for today's. instead_of: the version that
    the listing names and its registry does not have.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    server_id: str
    ecosystem: Ecosystem
    name: str
    version: str | None = None
    integrity: str | None = None
    entry: str | None = None
    args: tuple[str, ...] = ()
    env: tuple[tuple[str, str], ...] = ()
    spare_env: tuple[tuple[str, str], ...] = ()
    placeholders: tuple[str, ...] = ()
    url: str | None = None
    command: tuple[str, ...] = ()
    directory: str | None = None
    transport: Transport | None = None
    headers: tuple[tuple[str, str], ...] = ()
    python: str | None = None
    released: str | None = None
    as_of: str | None = None
    instead_of: str | None = None
    recipe_version: int = _FORM

    @property  # not cached: a changed copy would carry its original's digest
    def digest(self) -> str:
        """Over everything that changes the launch. The address of content that is pinned by its
        hash does not: the same bundle from elsewhere is the same recipe."""
        facts = self.model_dump(mode="json", exclude={"released"})  # the version says it
        facts = {name: one for name, one in facts.items() if name not in _LATER or one}
        if self.ecosystem == "mcpb" and self.integrity:
            facts["url"] = facts["name"] = None
        return digest(facts)


@dataclass(frozen=True)
class Unlaunchable:
    """A listing that gives no recipe: kind of the taxonomy, what was found, what to do."""

    server_id: str | None
    kind: str
    reason: str

    @property
    def hint(self) -> str:
        return f"{self.reason}: {KINDS[self.kind].hint}"


@dataclass(frozen=True)
class Resolved:
    """What a registry says about one release; as in Recipe."""

    version: str | None
    integrity: str
    python: str | None = None
    released: str | None = None
    instead_of: str | None = None


Resolve = Callable[[Package], Resolved]


def identify_server(listing: Listing) -> str | None:
    """`npm:NAME`, `pypi:normalised-name`, `mcpb:URL`, `oci:IMAGE` (no tag), `remote:URL` (no
    query), or None.

    Behind some gateways all servers share one URL and a header names the server: there the header
    is part of the id (`remote:https://remote.mcp.pipedream.net/v3#x-pd-app-slug=zoom`).
    """
    package = listing.package
    if package and package.type == "npm":
        return f"npm:{package.identifier}"
    if package and package.type == "pypi":
        return f"pypi:{normalise_name(package.identifier)}"
    if package and package.type == "mcpb":
        return f"mcpb:{normalise_address(package.identifier)}"
    if package and package.type == "oci":
        return f"oci:{parse_image(package)[0]}"
    if package is None and listing.url:
        return f"remote:{normalise_address(listing.url)}{_describe_gateway(listing)}"
    return None


def _describe_gateway(listing: Listing) -> str:
    if "hosted_gateway" not in listing.flags:
        return ""
    fixed = [f"{one.name}={one.default}" for one in listing.headers if one.required and one.default]
    return "".join(f"#{one}" for one in sorted(fixed))


def plan_recipe(
    listing: Listing, resolve: Resolve, *, placeholders: bool = True
) -> Recipe | Unlaunchable:
    """The pinned recipe of a listing, or why there is none. `resolve` asks the registry for the
    exact version and integrity; whatever it raises as PackageError becomes an Unlaunchable. Without
    `placeholders` nothing is made up: arguments, variables and headers that need a value are left
    out."""
    identity = identify_server(listing)
    by_name = _is_launched_by_name(listing)
    if not listing.runnable and not by_name:
        return Unlaunchable(identity, "no_recipe", listing.reason or "no way to launch it")
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
        return normalise_name(package.identifier)
    return parse_image(package)[0] if package.type == "oci" else package.identifier


def find_exact_version(package: Package) -> str | None:
    """The version of a package when it names one release."""
    return package.version if is_exact(package.version) else None


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
