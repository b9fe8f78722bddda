"""Disagreements: what the listings of one server say differently."""

from collections import defaultdict
from collections.abc import Callable, Sequence

from assets.catalogue.identity import Member
from assets.catalogue.identity_keys import is_gateway
from assets.marketplaces.launch.command import read_launch
from assets.marketplaces.listing import Listing
from warehouse.storage.digest import canonical_json

Stated = dict[str, dict[str, list[str]]]  # kind -> what is said -> the listings that say it


def find_disagreements(members: Sequence[Member]) -> Stated:
    """Where the members differ, by kind (KINDS); empty where they agree."""
    if len(members) < 2:
        return {}
    found: Stated = {}
    for kind, says in KINDS.items():
        stated: dict[str, list[str]] = defaultdict(list)
        for member in members:
            text = says(member)
            if text is not None:
                stated[text].append(member.listing.listing_id)
        if len(stated) > 1 and not (kind in ("version", "digest") and _is_incomparable(stated)):
            found[kind] = {text: sorted(ids) for text, ids in sorted(stated.items())}
    return found


def _is_incomparable(stated: dict[str, list[str]]) -> bool:
    """Whether each ecosystem (or version, of digests) is named once: nothing to compare."""
    subjects = [text.partition(" ")[0] for text in stated]
    return len(subjects) == len(set(subjects))


def _read_version(member: Member) -> str | None:
    """The version, of its ecosystem: an image's tag need not be the npm release's."""
    package = member.listing.package
    if not package or not package.version:
        return None
    return f"{package.type} {package.version.removeprefix('v')}"


def _read_digest(member: Member) -> str | None:
    package = member.listing.package
    if not package or not package.digest:
        return None
    return f"{package.version or '-'} {package.digest}"


def _url(member: Member) -> str | None:
    url = member.keys.url
    return None if url is None or is_gateway(url) else url


def _read_transport(member: Member) -> str | None:
    url = member.keys.url
    return None if url and is_gateway(url) else member.listing.transport


def _read_arguments(member: Member) -> str | None:
    if member.listing.package is None or not member.listing.runnable:
        return None
    return canonical_json(list(read_launch(member.listing).own_args)).decode()


def _list_required(member: Member) -> str | None:
    listing: Listing = member.listing
    if not listing.runnable:
        return None
    names = {f"env {one.name}" for one in listing.env if one.required}
    names |= {f"header {header.name.lower()}" for header in listing.headers if header.required}
    return canonical_json(sorted(names)).decode()


KINDS: dict[str, Callable[[Member], str | None]] = {
    "version": _read_version,
    "digest": _read_digest,
    "repository": lambda member: member.keys.repository,
    "url": _url,
    "transport": _read_transport,
    "arguments": _read_arguments,
    "required": _list_required,
    "description": lambda member: (
        "described" if member.listing.description.strip() else "no description"
    ),
    "deprecated": lambda member: (
        "deprecated" if "deprecated" in member.listing.flags else "current"
    ),
}
