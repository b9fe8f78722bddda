"""The recipe: one pinned way to launch one server, and its digest.

Belongs here: reading a listing into a recipe (exact version, integrity, arguments, environment with
typed placeholders), and the server's identity. A recipe names no marketplace: two listings of one
server give the same recipe.
Does not belong here: asking a registry (`resolve.py`), fetching (`fetch.py`), launching
(`deploy.py`). Recipes of private servers come from `byhand.py`.
"""

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal
from urllib.parse import urlsplit, urlunsplit

from pydantic import BaseModel, ConfigDict

from assets.marketplaces.command import is_exact, launch_args, launch_entry, placeholder
from assets.marketplaces.listing import Listing, Package
from assets.servers.placeholders import DATA, value_for
from assets.servers.taxonomy import KINDS
from warehouse.digest import digest

RECIPE_VERSION = 1

Ecosystem = Literal["npm", "pypi", "mcpb", "remote", "private"]
_AUTHORS_PATH = re.compile(
    r"(?:/(?:Users|home|root|opt|absolute|path|mnt|var|srv)\b|~/|[A-Za-z]:\\)"
)
_ENV_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
_LOOPBACK = ("127.0.0.1", "localhost", "::1")


class Recipe(BaseModel):
    """How to launch one server, pinned.

    name: package name, bundle or remote URL, or the private server's name. integrity: what the
    download must hash to (npm's `sha512-…`, else space-separated `sha256:<hex>`). spare_env:
    values of optional variables, tried when the server lists nothing without them. placeholders:
    which arguments (`arg:0`) and variables (`env:NAME`) are made up. command: a private server's
    own program, run in `directory` of this host.
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
    recipe_version: int = RECIPE_VERSION

    @property  # not cached: a changed copy would carry its original's digest
    def digest(self) -> str:
        """Over everything that changes the launch. The address of content that is pinned by its
        hash does not: the same bundle from elsewhere is the same recipe."""
        facts = self.model_dump(mode="json")
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
    """What a registry says about one release."""

    version: str | None
    integrity: str


class ResolveError(RuntimeError):
    """A release that cannot be pinned; `kind` is of the taxonomy."""

    def __init__(self, kind: str, detail: str) -> None:
        super().__init__(detail)
        self.kind = kind


Resolve = Callable[[Package], Resolved]


def server_id(listing: Listing) -> str | None:
    """`npm:NAME`, `pypi:normalised-name`, `mcpb:URL`, `remote:URL` (no query), or None.

    Behind some gateways all servers share one URL and a header names the server: there the header
    is part of the id (`remote:https://remote.mcp.pipedream.net/v3#x-pd-app-slug=zoom`).
    """
    package = listing.package
    if package and package.type == "npm":
        return f"npm:{package.identifier}"
    if package and package.type == "pypi":
        return f"pypi:{normalised(package.identifier)}"
    if package and package.type == "mcpb":
        return f"mcpb:{address(package.identifier)}"
    if package is None and listing.url:
        return f"remote:{address(listing.url)}{_behind_the_gateway(listing)}"
    return None


def _behind_the_gateway(listing: Listing) -> str:
    if "hosted_gateway" not in listing.flags:
        return ""
    fixed = [f"{one.name}={one.default}" for one in listing.headers if one.required and one.default]
    return "".join(f"#{one}" for one in sorted(fixed))


def plan_recipe(listing: Listing, resolve: Resolve) -> Recipe | Unlaunchable:
    """The pinned recipe of a listing, or why there is none. `resolve` asks the registry for the
    exact version and integrity; whatever it raises as ResolveError becomes an Unlaunchable."""
    identity = server_id(listing)
    if not listing.runnable:
        return Unlaunchable(identity, "no_recipe", listing.reason or "no way to launch it")
    package = listing.package
    if package is None and listing.url:
        return _remote(listing, str(identity))
    if package is None or identity is None:
        kind = package.type if package else "nothing"
        return Unlaunchable(None, "policy_denied", f"{kind} to launch, expected npm, pypi or mcpb")
    problem = _bad_name(package)
    if problem:
        return Unlaunchable(identity, "no_recipe", problem)
    try:
        resolved = resolve(package)
    except ResolveError as error:
        return Unlaunchable(identity, error.kind, str(error))
    args, made_up = _arguments(launch_args(listing))
    env, spare, env_made_up = _environment(listing)
    pypi = package.type == "pypi"
    return Recipe(
        server_id=identity,
        ecosystem=package.type,  # type: ignore[arg-type]
        name=normalised(package.identifier) if pypi else package.identifier,
        version=resolved.version,
        integrity=resolved.integrity,
        entry=launch_entry(listing),
        args=args,
        env=env,
        spare_env=spare,
        placeholders=(*made_up, *env_made_up),
        url=package.identifier if package.type == "mcpb" else None,
    )


def normalised(name: str) -> str:
    """PEP 503: runs of `-`, `_` and `.` are one `-`, lower case."""
    return re.sub(r"[-_.]+", "-", name).lower()


def exact_version(package: Package) -> str | None:
    """The version of a package when it names one release."""
    return package.version if is_exact(package.version) else None


def _remote(listing: Listing, identity: str) -> Recipe:
    env, spare, made_up = _environment(listing)
    return Recipe(
        server_id=identity,
        ecosystem="remote",
        name=address(str(listing.url)),
        url=listing.url,
        env=env,
        spare_env=spare,
        placeholders=made_up,
    )


def _bad_name(package: Package) -> str | None:
    """A name that a package manager could take for an option, a path or a URL never reaches it."""
    patterns = {
        "npm": r"(@[a-z0-9~\-_][a-z0-9._~\-]*/)?[a-z0-9~_][a-z0-9._~\-]*",
        "pypi": r"[a-z0-9](?:[a-z0-9._\-]*[a-z0-9])?",
        "mcpb": r"https?://\S+",
    }
    if re.fullmatch(patterns[package.type], package.identifier, re.IGNORECASE):
        return None
    return f"{package.identifier[:80]!r} is no {package.type} name"


def _arguments(args: tuple[str, ...]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """(arguments with places filled in, which of them are made up)."""
    filled, made_up = [], []
    for position, text in enumerate(args):
        place = placeholder(text)
        if place:
            value = value_for(place[0], None, place[1])
            text = re.sub(r"\{[A-Za-z][\w.\-]*(?::\w+)?\}", value, text) if "{" in text else value
        elif _AUTHORS_PATH.match(text):
            text = DATA
        else:
            filled.append(text)
            continue
        filled.append(text)
        made_up.append(f"arg:{position}")
    return tuple(filled), tuple(made_up)


def _environment(
    listing: Listing,
) -> tuple[tuple[tuple[str, str], ...], tuple[tuple[str, str], ...], tuple[str, ...]]:
    """(variables, spare variables, which of either are made up), each sorted by name."""
    env: dict[str, str] = {}
    spare: dict[str, str] = {}
    made_up: list[str] = []
    for variable in listing.env:
        if not _ENV_NAME.fullmatch(variable.name):
            continue
        default = variable.default
        if default is not None and default != "" and placeholder(default) is None:
            path = bool(_AUTHORS_PATH.match(default))
            env[variable.name] = DATA if path else default
            made_up += [f"env:{variable.name}"] if path else []
            continue
        needed = variable.required or variable.secret
        target = env if needed else spare
        target[variable.name] = value_for(variable.name, variable.description)
        made_up.append(f"env:{variable.name}")
    return tuple(sorted(env.items())), tuple(sorted(spare.items())), tuple(sorted(made_up))


def address(url: str) -> str:
    """A URL without query, fragment and credentials; on loopback also without the port, which is
    another at every start of a local marketplace."""
    parts = urlsplit(url)
    host = (parts.hostname or "").lower()
    port = f":{parts.port}" if parts.port and host not in _LOOPBACK else ""
    return urlunsplit((parts.scheme.lower(), host + port, parts.path.rstrip("/"), "", ""))
