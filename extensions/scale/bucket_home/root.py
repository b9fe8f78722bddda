"""The root of a home in a bucket: what is committed, and who may commit next, in one object.

<prefix>/root.json                 {version, number, previous, at, lease {token, holder, until}}
        /manifests/<sha256>.json   a commit (`extensions/scale/bucket_home/manifest.py`)
        /objects/<sha256>          each file once, whatever commits hold it

The lease stands in the object that a commit moves, so that whoever takes the home over has, by the
same conditional put, ended what the last holder could still commit: no clock is trusted with that.
"""

import json
import time
from contextlib import suppress
from dataclasses import asdict, dataclass, replace

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable, PointerMoved, parse_object
from warehouse.storage.digest import is_sha256

KEY = "root.json"
FORMAT = 1
_MOST = 1 << 16
_LONGEST = 200  # signs of who holds a home


class HomeHeld(BucketUnavailable):
    """Another machine works on the home."""


class HomeLost(BucketUnavailable):
    """Another machine has taken the home over."""


@dataclass(frozen=True)
class Lease:
    """Who may commit. token: of a working copy; until: epoch seconds."""

    token: str
    holder: str
    until: float


@dataclass(frozen=True)
class Root:
    """What is committed. version: digest of the manifest, "" before the first; number: one more
    with each commit; tag: of the object as read, None where there is none."""

    version: str = ""
    number: int = 0
    previous: str = ""
    at: float = 0.0
    lease: Lease | None = None
    tag: str | None = None


def read_root(bucket: Bucket) -> Root:
    """The root as it is now. Raises BucketUnavailable, also for one of a newer version."""
    found = bucket.read(KEY, _MOST)
    return _parse(found, f"{bucket.url}/{KEY}") if found else Root()


def take_lease(bucket: Bucket, lease: Lease, seen: str | None = None) -> tuple[Lease | None, Root]:
    """The lease before, and the root whose lease is this one from here on. seen: the entity tag of
    a root that stood still for as long as a lease lasts, whatever its clock says. Raises HomeHeld,
    which names the holder."""
    for _ in range(2):
        root = read_root(bucket)
        held = root.lease
        if held and held.token != lease.token and root.tag != seen and held.until > time.time():
            raise HomeHeld(_describe_holder(bucket, held))
        with suppress(PointerMoved):
            return held, swap_root(bucket, root, replace(root, lease=lease))
    raise HomeHeld(
        f"{bucket.url}: another machine takes it at this moment, or a cache before it answers with"
        " what was; try again"
    )


def swap_root(bucket: Bucket, before: Root, after: Root) -> Root:
    """Writes the root if it is still the one that was read. Raises PointerMoved."""
    body = {"format": FORMAT, **asdict(after)}
    del body["tag"]
    return replace(after, tag=bucket.swap(KEY, json.dumps(body).encode(), before.tag))


def require_lease(bucket: Bucket, token: str, version: str) -> Root:
    """The root, while that working copy holds it and nobody has committed since `version`. Raises
    HomeLost."""
    root = read_root(bucket)
    if root.lease and root.lease.token == token and root.version == version:
        return root
    by = f" by {root.lease.holder}" if root.lease and root.lease.token != token else ""
    raise HomeLost(
        f"{bucket.url}: taken over{by} while this machine was silent for longer than"
        " [storage] lease_minutes; nothing there was overwritten, and what was not committed stays"
        " here until the next run, which starts from what is committed now"
    )


class Standstill:
    """Whether another machine's lease stood still for as long as it lasts, by this machine's own
    clock: whatever time it names, its holder is gone."""

    def __init__(self, seconds: float) -> None:
        self._seconds, self._tag, self._since = seconds, "", time.monotonic()

    def note(self, tag: str | None) -> None:
        if tag != self._tag:
            self._tag, self._since = tag or "", time.monotonic()

    @property
    def tag(self) -> str | None:
        still = time.monotonic() - self._since >= self._seconds
        return self._tag if still and self._tag else None


def format_time(at: float) -> str:
    return time.strftime("%Y-%m-%d %H:%M:%S UTC", time.gmtime(at))


def _describe_holder(bucket: Bucket, held: Lease) -> str:
    return (
        f"{bucket.url}: held by {held.holder} until {format_time(held.until)}; wait for it to end"
        " ([storage] wait_minutes lets a run wait)"
    )


def _parse(found: tuple[bytes, str], where: str) -> Root:
    body = parse_object(found[0], where)
    if isinstance(newer := body.get("format"), int) and newer > FORMAT:
        raise BucketUnavailable(
            f"{where}: written by a newer version of toolmill (format {newer}, expected {FORMAT});"
            " update this one"
        )
    try:
        lease = Lease(**body["lease"]) if body["lease"] is not None else None
        facts = {name: body[name] for name in ("version", "number", "previous", "at")}
        root = Root(**facts, lease=lease, tag=found[1])
        if not _is_sound(root):
            raise ValueError
    except (KeyError, TypeError, ValueError):
        fix = "name another prefix, or put an earlier version of that object back"
        raise BucketUnavailable(f"{where}: is no root of a home; {fix}") from None
    return root


def _is_sound(root: Root) -> bool:
    lease = root.lease
    kinds = [(root.version, str), (root.number, int), (root.previous, str), (root.at, float | int)]
    if lease:
        kinds += [(lease.token, str), (lease.holder, str), (lease.until, float | int)]
    return (
        all(isinstance(value, kind) for value, kind in kinds)
        and root.number >= 0
        and (is_sha256(root.version) if root.number else not root.version)
        and (not lease or len(lease.holder) <= _LONGEST)
    )
