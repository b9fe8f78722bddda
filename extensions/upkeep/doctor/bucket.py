"""The check of a home in a bucket: what is committed is there, and this copy is of it."""

import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable, open_bucket
from extensions.scale.bucket_home.manifest import File, Manifest, get_object_key, read_manifest
from extensions.scale.bucket_home.root import Root, format_time, read_root
from extensions.scale.bucket_home.working_copy import RECORD
from extensions.upkeep.doctor.check import NOTICE, Finding, Home, Looked
from warehouse.storage.pointers import read_pointer

_SEND = "toolmill bucket commit --all"


def check_bucket(at: Home) -> Looked:
    """Whether the bucket of this working copy answers and holds every file of the last commit."""
    record = read_pointer(at.home / RECORD, "remove it, then `toolmill bucket pull`")
    if record is None:
        return Looked(0)
    try:
        bucket = open_bucket(str(record.get("url")))
        root = read_root(bucket)
        made = read_manifest(bucket, root.version) if root.number else Manifest()
        sizes = {key: size for key, (size, _) in bucket.list_objects("objects/").items()}
    except BucketUnavailable as error:
        return Looked(0, [Finding("bucket", str(error), "correct what it names")])
    wanted = {get_object_key(one.sha): one for one in made.files.values()}
    found = [*_judge_copy(record, root, at.now), *_find_losses(wanted, sizes)]
    whole = [key for key, one in wanted.items() if sizes.get(key) == one.size]
    if at.everything:
        found += [_tell_other(key) for key in whole if not _is_true(bucket, key, wanted[key])]
    return Looked(len(wanted), found)


def _judge_copy(record: Mapping[str, Any], root: Root, now: float) -> Iterator[Finding]:
    if not record.get("whole", True):
        yield Finding("home", "a fetch of it was killed half-way", "toolmill bucket pull")
    lease = root.lease
    if lease and lease.until < now:
        problem = (
            f"held by {lease.holder} until {format_time(lease.until)}: it was killed, or cut off"
        )
        yield Finding("lease", problem, "nothing: the next run takes it over", NOTICE)


def _find_losses(wanted: Mapping[str, File], sizes: Mapping[str, int]) -> Iterator[Finding]:
    lost = sorted(key for key, one in wanted.items() if sizes.get(key) != one.size)
    if lost:
        problem = f"{len(lost)} objects of the last commit are gone or of another size"
        yield Finding(lost[0], problem, f"{_SEND}, on a machine that has the home")


def _tell_other(key: str) -> Finding:
    return Finding(key, "holds other bytes than its name", f"remove it in the bucket, then {_SEND}")


def _is_true(bucket: Bucket, key: str, one: File) -> bool:
    digest = hashlib.sha256()
    for chunk in bucket.iter_chunks(key):
        digest.update(chunk)
    return digest.hexdigest() == one.sha
