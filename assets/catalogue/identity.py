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

from collections import defaultdict
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from assets.catalogue.identity_keys import (
    LEVELS,
    Keys,
    find_keys,
    find_url_root,
    is_gateway,
    shorten_name,
)
from assets.marketplaces.listing import Listing
from warehouse.storage.digest import sha256

_SHARED = 2  # names that one marketplace may give to one URL before it counts as a gateway's
_CAP = 40  # listings that a key weaker than a package may join


@dataclass(frozen=True)
class Member:
    """A listing of a component and the field by which it joined the others (None: it is alone)."""

    listing: Listing
    keys: Keys
    joined_by: str | None


@dataclass(frozen=True)
class Component:
    """The listings of one server, sorted by listing id, and the identity they share."""

    members: tuple[Member, ...]
    identity: str  # "package:npm:…", "url:…", … the strongest key that nobody else has

    @property
    def catalogue_id(self) -> str:
        return f"cat:{sha256(self.identity.encode())[:20]}"


def group_listings(listings: Iterable[Listing]) -> list[Component]:
    """The servers behind the listings, sorted by catalogue id. `listing_id`s must be unique."""
    ordered = sorted(listings, key=lambda one: one.listing_id)
    forest = _Forest(ordered)
    for level in LEVELS:
        forest.join(level)
    return sorted(forest.components(), key=lambda found: found.catalogue_id)


class _Forest:
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
            together[_find_root(trial, position)].append(position)
        for group in groups:
            everyone = together[_find_root(trial, group[0])]
            if level != "package" and self._contradict(everyone, level):
                continue
            for position in group:
                self.joined_by[position] = self.joined_by[position] or level
                _unite_roots(self.root, group[0], position)

    def _collect_groups(self, level: str) -> list[list[int]]:
        """Positions that share a key; those of a shared address or of a monorepo apart."""
        found: dict[str, list[int]] = defaultdict(list)
        for position, keys in enumerate(self.keys):
            key = keys.at(level)
            if key is not None:
                found[key].append(position)
        if level == "package":
            return list(found.values())
        if level == "url":
            return [group for group in found.values() if not self._is_shared(group)]
        if level == "repository":
            return [part for group in found.values() for part in self._join_by_name(group)]
        return [group for group in found.values() if len(group) <= _CAP]

    def _is_shared(self, group: list[int]) -> bool:
        names = defaultdict(set)
        for position in group:
            one = self.listings[position]
            names[one.marketplace].add(self.keys[position].name or one.listing_id)
        return len(group) > _CAP or any(len(found) > _SHARED for found in names.values())

    def _join_by_name(self, group: list[int]) -> list[list[int]]:
        """The group whole, or split by name where it holds several servers."""
        names = defaultdict(set)
        for position in group:
            # What a package or a URL joined before is one server under however many names.
            names[self.listings[position].marketplace].add(_find_root(self.root, position))
        several = any(len(roots) > 1 for roots in names.values())
        if not several and len(group) <= _CAP and not self._contradict(group, "repository"):
            return [group]
        parts: dict[str, list[int]] = defaultdict(list)
        for position in group:
            if name := self.keys[position].name:
                parts[name].append(position)
        return [part for part in parts.values() if len(part) <= _CAP]

    def _contradict(self, positions: list[int], level: str) -> bool:
        keys = [self.keys[position] for position in positions]
        packages = {key.package for key in keys if key.package}
        kinds = [package.partition(":")[0] for package in packages]
        if len(kinds) != len(set(kinds)) or len({shorten_name(one) for one in packages}) > 1:
            return True
        if len({find_url_root(key.url) for key in keys if key.url and not is_gateway(key.url)}) > 1:
            return True
        if level != "name":
            return False
        if len({key.repository for key in keys if key.repository}) > 1:
            return True
        held: dict[str, set[int]] = defaultdict(set)
        for position in positions:
            held[self.listings[position].marketplace].add(_find_root(self.root, position))
        return any(len(roots) > 1 for roots in held.values())

    def components(self) -> list[Component]:
        """The components, each with its strongest key that no listing outside it has."""
        members: dict[int, list[int]] = defaultdict(list)
        for position in range(len(self.listings)):
            members[_find_root(self.root, position)].append(position)
        holders: dict[tuple[str, str], set[int]] = defaultdict(set)
        for position, keys in enumerate(self.keys):
            for level in LEVELS:
                if key := keys.at(level):
                    holders[level, key].add(_find_root(self.root, position))
        found = []
        for positions in members.values():
            own = sorted(
                (_rank_key(level, key), level, key)
                for level in LEVELS
                for key in {self.keys[position].at(level) for position in positions}
                if key and len(holders[level, key]) == 1
            )
            first = self.listings[positions[0]].listing_id
            identity = f"{own[0][1]}:{own[0][2]}" if own else f"listing:{first}"
            made = tuple(
                Member(self.listings[at], self.keys[at], self.joined_by[at]) for at in positions
            )
            found.append(Component(made, identity))
        return found


def _rank_key(level: str, key: str) -> float:
    """How well a key names a server for good; a gateway's address less than a repository."""
    return 2.5 if level == "url" and is_gateway(key) else LEVELS.index(level)


def _find_root(root: list[int], position: int) -> int:
    while root[position] != position:
        root[position] = root[root[position]]
        position = root[position]
    return position


def _unite_roots(root: list[int], one: int, other: int) -> None:
    first, second = sorted((_find_root(root, one), _find_root(root, other)))
    root[second] = first
