"""A commit: which files home and state hold, each by its digest, and what it follows.

Who can write to the bucket can name any path in one: none leads out of home and state, into what a
machine keeps for itself, or makes a file run as somebody else.
"""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable, parse_object
from warehouse.home import LAYOUT
from warehouse.storage.digest import is_sha256, sha256

FORMAT = 1
MOST = 64 << 20  # bytes: some 200 a file
SIDES = ("home", "state")
# What each machine has of its own: installed packages, caches, Dagster's databases.
LEFT_OUT = {"home": {"artifacts", "cache", "state"}, "state": {"dagster", "buckets"}}
VOLUMES = "volumes"  # of a state: what servers keep, whatever its names look like

Path_ = tuple[str, str]  # (side, path below it)


@dataclass(frozen=True)
class File:
    """One file. written: its time of change in ns, by which a working copy knows it again."""

    sha: str
    size: int
    mode: int
    written: int
    owner: int = 0
    group: int = 0


@dataclass(frozen=True)
class Manifest:
    """One commit. version: its own digest, "" of none. program: the version that made it."""

    files: Mapping[Path_, File] = field(default_factory=dict)
    number: int = 0
    previous: str = ""
    program: str = ""
    version: str = ""

    def holds_same(self, other: "Manifest") -> bool:
        """Whether both hold the same files with the same bytes."""
        if self.files.keys() != other.files.keys():
            return False
        pairs = ((one, other.files[path]) for path, one in self.files.items())
        return all((a.sha, a.mode) == (b.sha, b.mode) for a, b in pairs)


def dump_manifest(made: Manifest) -> bytes:
    sides: dict[str, dict[str, Any]] = {side: {} for side in SIDES}
    for (side, name), one in sorted(made.files.items()):
        sides[side][name] = [one.sha, one.size, one.mode, one.written, one.owner, one.group]
    facts = {"number": made.number, "previous": made.previous, "program": made.program}
    body = {"format": FORMAT, "layout": LAYOUT, **facts, **sides}
    return json.dumps(body, separators=(",", ":")).encode()


def read_manifest(bucket: Bucket, version: str) -> Manifest:
    """A commit. Raises BucketUnavailable where it is none, or of a version that this one cannot
    read."""
    key = get_manifest_key(version)
    found = bucket.read(key, MOST)
    if found is None:
        raise BucketUnavailable(f"{bucket.url}/{key}: there is none; restore it from a backup")
    return parse_manifest(found[0], version, f"{bucket.url}/{key}")


def parse_manifest(data: bytes, version: str, where: str) -> Manifest:
    """Raises BucketUnavailable."""
    if sha256(data) != version:
        raise BucketUnavailable(f"{where}: is not what its name says; restore it from a backup")
    body = parse_object(data, where)
    _check_versions(body, where)
    try:
        files = {
            (side, str(name)): File(str(row[0]), *map(int, row[1:]))
            for side in SIDES
            for name, row in body[side].items()
        }
        facts = (int(body["number"]), str(body["previous"]), str(body["program"]))
    except (KeyError, TypeError, ValueError, AttributeError, IndexError, OverflowError):
        raise BucketUnavailable(f"{where}: is no commit of ours; name another prefix") from None
    for (side, name), one in files.items():
        if not is_carried(side, name) or not is_sha256(one.sha) or not _is_sound(one):
            raise BucketUnavailable(f"{where}: names {name[:80]!r}, which is no file of a home")
    return Manifest(files, *facts, version)


def is_carried(side: str, name: str) -> bool:
    """Whether a path is one that commits hold: below its root, and neither left out nor passing
    (a lock, or a file that is being written)."""
    parts = name.split("/")
    if {"", ".", ".."} & set(parts) or "\0" in name or parts[0] in LEFT_OUT[side]:
        return False
    try:
        os.fsencode(name)
    except UnicodeEncodeError:
        return False
    own = (side, parts[0]) == ("state", VOLUMES)
    return own or not (parts[-1].startswith(".") or parts[-1].endswith(".lock"))


def _is_sound(one: File) -> bool:
    ids = all(0 <= number < 2**32 for number in (one.mode, one.owner, one.group))
    return ids and one.size >= 0 and 0 <= one.written < 2**63


def get_manifest_key(version: str) -> str:
    return f"manifests/{version}.json"


def get_object_key(sha: str) -> str:
    return f"objects/{sha}"


def _check_versions(body: Mapping[str, Any], where: str) -> None:
    for name, ours in (("format", FORMAT), ("layout", LAYOUT)):
        found = body.get(name)
        if found != ours:
            age = "a newer" if isinstance(found, int) and found > ours else "another"
            raise BucketUnavailable(
                f"{where}: made by {age} version of toolmill ({str(body.get('program'))[:20]};"
                f" {name} {str(found)[:20]}, expected {ours}); use that version"
            )
