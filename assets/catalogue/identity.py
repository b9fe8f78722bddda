"""Identity: which listings are one server.

Level by level, strongest first: package, url, repository, name. At each level the listings that
share a key are proposed as one; a proposal falls if its members contradict each other:

- two packages of one ecosystem, or of two with different names, are two servers (a monorepo);
- two addresses that are not a gateway's and differ in more than `/sse` or `/mcp` are two servers;
- a URL that a marketplace gives to more than `_SHARED` names is a gateway's address;
- by repository only: where one marketplace lists several names, equal names join, others do not;
- by name only: two repositories, or two records of one marketplace, are two servers.

Proposals of a level that meet in one component are judged together, and fall together: no chain of
weak joins grows through one promiscuous key. What a stronger level joined is never parted. Nothing
depends on the order of the listings.
"""

import ipaddress
import re
import unicodedata
from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from urllib.parse import unquote, urlsplit

from packaging.utils import canonicalize_name

from assets.marketplaces.listing import Listing, PackageRef
from warehouse.patterns import compile_pattern
from warehouse.sanitize.redact import MARK
from warehouse.storage.digest import sha256

LEVELS = ("package", "url", "repository", "name")  # strongest first

# What runs or reaches some other server: its own name says nothing about which.
_RUNNERS = frozenset(
    (
        *("npm:@smithery/cli", "npm:mcp-remote", "npm:supergateway", "npm:mcp-proxy"),
        *("pypi:mcp-proxy", "oci:node", "oci:python", "oci:alpine", "oci:ubuntu", "oci:debian"),
        *("oci:denoland/deno", "oci:oven/bun", "oci:busybox", "oci:", "npm:", "pypi:", "mcpb:"),
    )
)
_CODE_HOSTS = ("github.com", "gitlab.com", "bitbucket.org")  # owner and name in any case
_OTHER_CODE_HOSTS = ("codeberg.org", "gitee.com", "git.sr.ht", "gist.github.com")
_GATEWAYS = ("smithery.ai", "run.tools", "mcphub.com", "pipedream.net", "zapier.com", "glama.ai")
_FILLERS = frozenset(("mcp", "server", "servers", "the", "official", "for", "a", "an"))
_SCP = re.compile(r"(?:ssh://)?git@([\w.\-]+)[:/](.+)")


@dataclass(frozen=True)
class ListingKeys:
    """The keys of one listing, None where a field gives none. `folder` of the repository."""

    package: str | None = None
    url: str | None = None
    repository: str | None = None
    name: str | None = None
    folder: str = ""

    def at(self, level: str) -> str | None:
        """The key of a level; the repository's with its folder."""
        key = getattr(self, level)
        return f"{key}#{self.folder}" if level == "repository" and key and self.folder else key


def find_keys(listing: Listing) -> ListingKeys:
    """The keys of a listing. A URL counts where no package says what runs."""
    repository, folder = make_repository_key(listing.repository)
    folder = folder or (listing.subfolder or "").strip("/").lower()
    package = make_package_key(listing.package)
    url = make_url_key(listing.url) if listing.package is None else None
    return ListingKeys(package, url, repository, name_key(listing.name), folder)


def make_package_key(package: PackageRef | None) -> str | None:
    """`npm:@scope/Name` (scope lower case), `pypi:` by PEP 503, `oci:` without tag and digest,
    `mcpb:` without query; others in lower case."""
    if package is None or not package.identifier.strip() or MARK in package.identifier:
        return None
    text = package.identifier.strip()
    if package.type == "npm":
        scope, slash, name = text.rpartition("/")
        key = f"npm:{scope.lower()}{slash}{name}"
    elif package.type == "pypi":
        key = f"pypi:{canonicalize_name(text)}"
    elif package.type == "oci":
        key = f"oci:{_image(text)}"
    elif package.type == "mcpb":
        key = f"mcpb:{_address(text) or text}"
    else:
        key = f"{package.type}:{text.lower().replace('_', '-')}"
    return None if key in _RUNNERS else key


def make_url_key(url: str | None) -> str | None:
    """A remote URL without scheme, credentials, query, fragment and trailing slash; None where it
    is a pattern, this machine or a private network: such a URL names no server."""
    if not url or MARK in url or re.search(r"[{}<>$]|%7[Bb]", url):
        return None
    return _address(url)


def is_gateway(url: str) -> bool:
    """Whether a URL's key lies behind a marketplace's gateway: another address of one server."""
    host = url.partition("/")[0]
    return any(host == item or host.endswith(f".{item}") for item in _GATEWAYS)


def make_repository_key(repository: str | None) -> tuple[str | None, str]:
    """("host/owner/name", folder) of any way to write a repository's address."""
    if not repository or MARK in repository:
        return None, ""
    text = repository.strip()
    text = re.sub(r"^(?:git\+|scm:git:)", "", text)
    if match := _SCP.fullmatch(text):
        text = f"https://{match[1]}/{match[2]}"
    elif "://" not in text:
        text = f"https://{text.removeprefix('//')}"
    try:
        url_parts = urlsplit(text)
        host = (url_parts.hostname or "").lower().removeprefix("www.")
    except ValueError:
        return None, ""
    path, folder = _split_folder([unquote(part) for part in url_parts.path.split("/") if part])
    if len(path) < 2 or not (
        host in _CODE_HOSTS + _OTHER_CODE_HOSTS
        or url_parts.path.endswith(".git")
        or host.startswith(("gitlab.", "git.", "gitea."))
    ):
        return None, ""
    path[-1] = path[-1].removesuffix(".git")
    key = f"{host}/{'/'.join(path)}"
    return (key.lower() if host in _CODE_HOSTS else key), folder.strip("/").lower()


def name_key(name: str) -> str | None:
    """Words of a name without those of every server; None where too little is left."""
    text = unicodedata.normalize("NFKC", name).casefold()
    text = text.rpartition("/")[2]
    words = [word for word in re.findall(r"[^\W_]+", text) if word not in _FILLERS]
    key = "-".join(words)
    return key if len(key) >= 4 else None


def shorten_name(package: str) -> str:
    """The name of a package's key without ecosystem, scope and filler words."""
    return name_key(package.partition(":")[2]) or package.rpartition("/")[2].lower()


def find_url_root(url: str) -> str:
    """A URL's key without the part that only names the transport: `/sse`, `/mcp`."""
    return compile_pattern(r"(?:/(?:mcp|sse|stream|http|v\d))+$").sub("", url)


def _image(text: str) -> str:
    name = text.lower().partition("@")[0]
    head, colon, tag = name.rpartition(":")
    name = head if colon and "/" not in tag else name
    for prefix in ("index.docker.io/", "registry-1.docker.io/", "docker.io/", "library/"):
        name = name.removeprefix(prefix)
    return name


def _address(url: str) -> str | None:
    try:
        url_parts = urlsplit(url.strip())
        host, port = (url_parts.hostname or "").lower(), url_parts.port
    except ValueError:
        return None
    if not host or _is_local(host):
        return None
    port_text = f":{port}" if port and port not in (80, 443) else ""
    return host + port_text + url_parts.path.rstrip("/")


def _is_local(host: str) -> bool:
    if host == "localhost" or host.endswith((".local", ".localhost", ".internal", ".lan")):
        return True
    try:
        return not ipaddress.ip_address(host).is_global
    except ValueError:
        return "." not in host


def _split_folder(path: list[str]) -> tuple[list[str], str]:
    """(owner and name, folder) of the path of a repository's page."""
    for mark in ("-", "tree", "blob", "src"):
        if mark in path[2:]:
            at = path.index(mark, 2)
            tail = path[at + 1 :]
            tail = tail[1:] if mark == "-" else tail  # gitlab: /-/tree/REF/folder
            return path[:at], "/".join(tail[1:])
    return path, ""


_SHARED = 2  # names that one marketplace may give to one URL before it counts as a gateway's
_CAP = 40  # listings that a key weaker than a package may join


@dataclass(frozen=True)
class GroupMember:
    """A listing of a component and the field by which it joined the others (None: it is alone)."""

    listing: Listing
    keys: ListingKeys
    joined_by: str | None


@dataclass(frozen=True)
class ServerGroup:
    """The listings of one server, sorted by listing id, and the identity they share."""

    members: tuple[GroupMember, ...]
    identity: str  # "package:npm:…", "url:…", … the strongest key that nobody else has

    @property
    def catalogue_id(self) -> str:
        return f"cat:{sha256(self.identity.encode())[:20]}"


def group_listings(listings: Iterable[Listing]) -> list[ServerGroup]:
    """The servers behind the listings, sorted by catalogue id. `listing_id`s must be unique."""
    ordered = sorted(listings, key=lambda listing: listing.listing_id)
    forest = _DisjointSets(ordered)
    for level in LEVELS:
        forest.join(level)
    return sorted(forest.components(), key=lambda component: component.catalogue_id)


class _DisjointSets:
    """Listings by position, the root of each, and the field by which each joined."""

    def __init__(self, listings: Sequence[Listing]) -> None:
        self.listings = listings
        self.keys = [find_keys(listing) for listing in listings]
        self.root = list(range(len(listings)))
        self.joined_by: list[str | None] = [None] * len(listings)

    def join(self, level: str) -> None:
        """Joins what shares a key of this level and does not contradict itself."""
        groups = [group for group in self._collect_groups(level) if len(group) > 1]
        trial = list(self.root)
        for group in groups:
            for position in group[1:]:
                _unite_roots(trial, group[0], position)
        together: dict[int, list[int]] = defaultdict(list)
        for position in range(len(self.listings)):
            together[find_root(trial, position)].append(position)
        for group in groups:
            everyone = together[find_root(trial, group[0])]
            if level != "package" and self._contradict(everyone, level):
                continue
            for position in group:
                self.joined_by[position] = self.joined_by[position] or level
                _unite_roots(self.root, group[0], position)

    def _collect_groups(self, level: str) -> list[list[int]]:
        """Positions that share a key; those of a shared address or of a monorepo apart."""
        positions: dict[str, list[int]] = defaultdict(list)
        for position, keys in enumerate(self.keys):
            key = keys.at(level)
            if key is not None:
                positions[key].append(position)
        if level == "package":
            return list(positions.values())
        if level == "url":
            return [group for group in positions.values() if not self._is_shared(group)]
        if level == "repository":
            return [part for group in positions.values() for part in self._join_by_name(group)]
        return [group for group in positions.values() if len(group) <= _CAP]

    def _is_shared(self, group: list[int]) -> bool:
        names = defaultdict(set)
        for position in group:
            listing = self.listings[position]
            names[listing.marketplace].add(self.keys[position].name or listing.listing_id)
        return len(group) > _CAP or any(len(item) > _SHARED for item in names.values())

    def _join_by_name(self, group: list[int]) -> list[list[int]]:
        """The group whole, or split by name where it holds several servers."""
        names = defaultdict(set)
        for position in group:
            # What a package or a URL joined before is one server under however many names.
            names[self.listings[position].marketplace].add(find_root(self.root, position))
        several = any(len(roots) > 1 for roots in names.values())
        if not several and len(group) <= _CAP and not self._contradict(group, "repository"):
            return [group]
        groups: dict[str, list[int]] = defaultdict(list)
        for position in group:
            if name := self.keys[position].name:
                groups[name].append(position)
        return [part for part in groups.values() if len(part) <= _CAP]

    def _contradict(self, positions: list[int], level: str) -> bool:
        keys = [self.keys[position] for position in positions]
        packages = {key.package for key in keys if key.package}
        kinds = [package.partition(":")[0] for package in packages]
        if (
            len(kinds) != len(set(kinds))
            or len({shorten_name(package) for package in packages}) > 1
        ):
            return True
        if len({find_url_root(key.url) for key in keys if key.url and not is_gateway(key.url)}) > 1:
            return True
        if level != "name":
            return False
        if len({key.repository for key in keys if key.repository}) > 1:
            return True
        roots_by_market: dict[str, set[int]] = defaultdict(set)
        for position in positions:
            roots_by_market[self.listings[position].marketplace].add(find_root(self.root, position))
        return any(len(roots) > 1 for roots in roots_by_market.values())

    def components(self) -> list[ServerGroup]:
        """The components, each with its strongest key that no listing outside it has."""
        members: dict[int, list[int]] = defaultdict(list)
        for position in range(len(self.listings)):
            members[find_root(self.root, position)].append(position)
        holders: dict[tuple[str, str], set[int]] = defaultdict(set)
        for position, keys in enumerate(self.keys):
            for level in LEVELS:
                if key := keys.at(level):
                    holders[level, key].add(find_root(self.root, position))
        results = []
        for positions in members.values():
            own_keys = sorted(
                # A gateway's address names a server less well than a repository.
                (2.5 if level == "url" and is_gateway(key) else LEVELS.index(level), level, key)
                for level in LEVELS
                for key in {self.keys[position].at(level) for position in positions}
                if key and len(holders[level, key]) == 1
            )
            first = self.listings[positions[0]].listing_id
            identity = f"{own_keys[0][1]}:{own_keys[0][2]}" if own_keys else f"listing:{first}"
            listed_members = tuple(
                GroupMember(self.listings[at], self.keys[at], self.joined_by[at])
                for at in positions
            )
            results.append(ServerGroup(listed_members, identity))
        return results


def find_root(root: list[int], position: int) -> int:
    while root[position] != position:
        root[position] = root[root[position]]
        position = root[position]
    return position


def _unite_roots(root: list[int], position: int, other: int) -> None:
    first, second = sorted((find_root(root, position), find_root(root, other)))
    root[second] = first
