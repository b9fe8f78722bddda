"""The recipe: one pinned way to launch one server, its digest, names and identity check."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Literal
from urllib.parse import SplitResult, urlsplit, urlunsplit

from packaging.utils import canonicalize_name
from pydantic import BaseModel, ConfigDict, ValidationError

from assets.marketplaces.launch.runners import is_exact, split_image
from assets.marketplaces.listing import Listing, PackageRef
from assets.servers.probe.failure_kinds import KINDS
from warehouse.patterns import Pattern, compile_pattern
from warehouse.storage.digest import digest

RECIPE_VERSION = 3  # of how listings are planned: when it rises, all are planned again
_FORM = 1  # of the digest

Ecosystem = Literal["npm", "pypi", "mcpb", "oci", "remote", "private"]
Transport = Literal["http", "sse", "auto"]
# Facts that came later: left out of the digest where unset, so that older digests stand.
_LATER = ("transport", "headers", "python", "as_of", "instead_of", "requirements")


class LaunchRecipe(BaseModel):
    """How to launch one server, pinned.

    name: package name, bundle or remote URL, image, or the private server's name. integrity: what
    the download must hash to (npm's `sha512-…`, else space-separated `sha256:<hex>`). spare_env:
    values of optional variables, tried when the server lists nothing without them. placeholders:
    what is made up: `arg:0`, `env:NAME`, `header:NAME`, `url:NAME`, `args`. command: a private
    server's own program, run in `directory` of this host; its integrity is that of what the folder
    holds. python: the minor version
    it needs where the usual one will not do. requirements: what is installed besides (`mcp<2`), or
    extras of its own (`name[cli]`). released: when the release came out (RFC 3339), as its
    registry says; as_of: the date whose dependencies are installed, None for today's. instead_of:
    the version that the listing names and its registry does not have.
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
    requirements: tuple[str, ...] = ()
    released: str | None = None
    as_of: str | None = None
    instead_of: str | None = None
    recipe_version: int = _FORM

    @property
    def is_image(self) -> bool:
        """Whether a container engine runs it."""
        return self.ecosystem == "oci"

    @property  # not cached: a changed copy would carry its original's digest
    def digest(self) -> str:
        """Over everything that changes the launch. The address of content that is pinned by its
        hash does not: the same bundle from elsewhere is the same recipe."""
        facts = self.model_dump(mode="json", exclude={"released"})  # the version says it
        facts = {name: fact for name, fact in facts.items() if name not in _LATER or fact}
        if self.ecosystem == "mcpb" and self.integrity:
            facts["url"] = facts["name"] = None
        return digest(facts)


@dataclass(frozen=True)
class UnlaunchableServer:
    """A listing that gives no recipe: kind of the taxonomy, what was found, what to do."""

    server_id: str | None
    kind: str
    reason: str

    @property
    def hint(self) -> str:
        return f"{self.reason}: {KINDS[self.kind].hint}"


@dataclass(frozen=True)
class ResolvedVersion:
    """What a registry says about one release; as in Recipe."""

    version: str | None
    integrity: str
    python: str | None = None
    released: str | None = None
    instead_of: str | None = None


class RecipeError(ValueError):
    """Facts that are no recipe of this version; says which part."""


def dump_recipe(recipe: LaunchRecipe) -> dict[str, Any]:
    """What it takes to launch the recipe again."""
    return recipe.model_dump(mode="json", exclude_defaults=True)


def load_recipe(facts: Mapping[str, Any]) -> LaunchRecipe:
    """The recipe of `dump_recipe`. Raises RecipeError."""
    try:
        return LaunchRecipe(**facts)
    except (ValidationError, TypeError) as error:
        message = " ".join(str(error).split())[:200]
        name = str(facts.get("server_id"))[:200]
        raise RecipeError(
            f"recipe of {name}: {message}; expected what `dump_recipe` writes:"
            " build the index again"
        ) from None


_LOOPBACK = ("127.0.0.1", "localhost", "::1")
_FORMS = {
    "npm": r"(@[a-z0-9~\-_][a-z0-9._~\-]*/)?[a-z0-9~_][a-z0-9._~\-]*",
    "pypi": r"[a-z0-9](?:[a-z0-9._\-]*[a-z0-9])?",
    "mcpb": r"https?://\S+",
    "oci": r"[a-z0-9][\w.\-/:]*(?:@sha256:[0-9a-f]{64})?",
}


def normalise_address(url: str) -> str:
    """A URL without query, fragment and credentials; on loopback also without the port, which is
    another at every start of a local marketplace."""
    try:
        address = urlsplit(url)
    except ValueError:  # a broken IPv6 address
        return re.split(r"[?#]", url, maxsplit=1)[0].rstrip("/")
    host = (address.hostname or "").lower()
    port = "" if host in _LOOPBACK else _find_port(address)
    return urlunsplit((address.scheme.lower(), host + port, address.path.rstrip("/"), "", ""))


def _find_port(address: SplitResult) -> str:
    """`:8443`, or as it stands where it is no number: `http://host:{port}/mcp` is to be filled."""
    try:
        return f":{address.port}" if address.port else ""
    except ValueError:
        return f":{address.netloc.rpartition('@')[2].rpartition(':')[2]}"


def parse_image(package: PackageRef) -> tuple[str, str | None, str | None]:
    """(name with its registry, tag, digest) of an image as Docker reads it: `redis` is
    `docker.io/library/redis`."""
    name, tag, pinned = split_image(package.identifier.strip())
    host, slash, path = name.partition("/")
    if not slash or not (set(".:") & set(host) or host == "localhost"):
        host, path = "docker.io", name
    host = "docker.io" if host in ("index.docker.io", "registry-1.docker.io") else host.lower()
    path = f"library/{path}" if host == "docker.io" and "/" not in path else path
    return f"{host}/{path.lower()}", tag or package.version, pinned or package.digest


def identify_server(listing: Listing) -> str | None:
    """`npm:NAME`, `pypi:normalised-name`, `mcpb:URL`, `oci:IMAGE` (no tag), `remote:URL` (no
    query), `private:FILE#KEY` of a local server, or None.

    Behind some gateways all servers share one URL and a header names the server: there the header
    is part of the id (`remote:https://remote.mcp.pipedream.net/v3#x-pd-app-slug=zoom`).
    """
    package = listing.package
    if package and package.type == "npm":
        return f"npm:{package.identifier}"
    if package and package.type == "pypi":
        return f"pypi:{canonicalize_name(package.identifier)}"
    if package and package.type == "mcpb":
        return f"mcpb:{normalise_address(package.identifier)}"
    if package and package.type == "oci":
        return f"oci:{parse_image(package)[0]}"
    if package is None and listing.url:
        return f"remote:{normalise_address(listing.url)}{_describe_gateway(listing)}"
    return f"private:{listing.native_id}" if listing.is_local else None


def _describe_gateway(listing: Listing) -> str:
    if "hosted_gateway" not in listing.flags:
        return ""
    fixed = [
        f"{header.name}={header.default}"
        for header in listing.headers
        if header.required and header.default
    ]
    return "".join(f"#{header}" for header in sorted(fixed))


def find_exact_version(package: PackageRef) -> str | None:
    """The version of a package when it names one release."""
    return package.version if is_exact(package.version) else None


def find_name_problem(package: PackageRef) -> str | None:
    """Why a name must not reach a package manager, which could take it for an option, a path or a
    URL; None where it may."""
    if compile_pattern(f"(?i){_FORMS[package.type]}").fullmatch(package.identifier):
        return None
    return f"{package.identifier[:80]!r} is no {package.type} name"


# One to fill in, in an escaped address: {name}, ${name}, {{name}}, <name>.
_PLACE = compile_pattern(r"(?:\\\$)?(?:\\\{)+[^{}]*?(?:\\\})+|<[^<>]*>")


def check_identity(recipe: LaunchRecipe) -> None:
    """Raises RecipeError, naming both, where name or address are not those of the server id. A
    private server is named by its user; what it launches is what they trusted."""
    kind, colon, identity = recipe.server_id.partition(":")
    try:
        right = colon and kind == recipe.ecosystem and _is_named(recipe, identity)
    except ValueError as error:  # an address that is none
        raise _make_error(recipe, f" ({error})") from None
    if not right:
        raise _make_error(recipe)
    if recipe.ecosystem not in ("remote", "private"):
        package = PackageRef(type=recipe.ecosystem, identifier=recipe.name)
        if problem := find_name_problem(package):
            raise RecipeError(f"recipe of {recipe.server_id[:200]!r}: {problem}")


def _is_named(recipe: LaunchRecipe, identity: str) -> bool:
    if recipe.ecosystem == "private":
        return bool(identity)
    if recipe.ecosystem == "pypi":
        return identity == canonicalize_name(recipe.name)
    if recipe.ecosystem == "mcpb":
        return _is_address(identity, recipe.name) and _is_address(identity, recipe.url or "")
    if recipe.ecosystem == "remote":
        return _is_address(identity.partition("#")[0], recipe.url or "")  # behind `#`: a gateway's
    return identity == recipe.name


def _is_address(identity: str, url: str) -> bool:
    """Whether an address is the one of the id; where that has places to fill in, they are filled
    with no more than a part of a path or host."""
    if not set("{<") & set(identity):
        return normalise_address(identity) == normalise_address(url)
    pattern = _PLACE.sub(r"[^/?#@:\\]+", re.escape(identity))
    return Pattern(f"(?i){pattern}").fullmatch(normalise_address(url)) is not None


def _make_error(recipe: LaunchRecipe, more: str = "") -> RecipeError:
    target = (recipe.url if recipe.ecosystem == "remote" else recipe.name) or "nothing"
    return RecipeError(
        f"recipe of {recipe.server_id[:200]!r} launches {recipe.ecosystem} {target[:200]!r}{more},"
        " which is another server; build the index again, and do not use the one that said so"
    )
