"""The pointer of a bucket: which version is current, numbered, moved by condition alone."""

import json
import re
import time
from dataclasses import dataclass
from pathlib import Path

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable, parse_object
from warehouse.storage.pointers import read_pointer, write_pointer

KEY = "current.json"
_MOST = 1 << 16
_VERSION = re.compile(r"[0-9a-f]{64}")


@dataclass(frozen=True)
class Current:
    """What a bucket's pointer says. number: one more with each move; tag: of the object as read."""

    version: str
    number: int
    previous: str
    at: float
    tag: str


class StaleRead(BucketUnavailable):
    """The bucket, or a cache before it, answers with a pointer that it had before."""


def read_current(bucket: Bucket, memory: Path) -> Current | None:
    """The pointer as it is now; None where nothing was published. memory: the file in which this
    machine keeps the last number that it has seen. Raises StaleRead, BucketUnavailable."""
    found = bucket.read(KEY, _MOST)
    seen = (read_pointer(memory, "remove it") or {}).get("number", 0)
    current = _parse(found, f"{bucket.url}/{KEY}") if found else None
    number = current.number if current else 0
    if number < seen:
        raise StaleRead(
            f"{bucket.url}/{KEY}: says number {number} and has said {seen}; it or a cache before"
            f" it answers with what was: try again later, or remove {memory} where the prefix was"
            " emptied on purpose"
        )
    if number > seen:
        write_pointer(memory, {"number": number})
    return current


def move_current(bucket: Bucket, memory: Path, version: str, before: Current | None) -> Current:
    """Makes a version current if `before` still is. Raises PointerMoved, BucketUnavailable."""
    number = before.number + 1 if before else 1
    body = {
        "version": version, "number": number, "previous": before.version if before else "",
        "at": time.time(),
    }  # fmt: skip
    data = json.dumps(body).encode()
    tag = bucket.swap(KEY, data, before.tag if before else None)
    write_pointer(memory, {"number": number})
    return Current(tag=tag, **body)


def _parse(found: tuple[bytes, str], where: str) -> Current:
    body = parse_object(found[0], where)
    try:
        version, number = str(body["version"]), int(body["number"])
        made = Current(version, number, str(body["previous"]), float(body["at"]), found[1])
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BucketUnavailable(f"{where}: is no pointer of ours; name another prefix") from None
    if not _VERSION.fullmatch(version) or number < 1:
        raise BucketUnavailable(f"{where}: is no pointer of ours; name another prefix")
    return made
