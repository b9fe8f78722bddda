"""What of a bucket no commit that stays names: sent and never committed, or of commits long ago."""

from collections.abc import Iterator
from functools import partial

from extensions.scale.bucket_home.manifest import (
    Manifest,
    get_manifest_key,
    get_object_key,
    read_manifest,
)
from extensions.scale.bucket_home.root import read_root
from extensions.scale.bucket_home.session import BucketHome
from extensions.scale.bucket_home.working_copy import lock_commit
from extensions.upkeep.retention.garbage import Garbage

KIND = "bucket"


def list_unnamed_objects(home: BucketHome, before: float) -> Iterator[Garbage]:
    """Objects that none of the last commits (as many as the policy keeps) names, and that were
    written before `before` (epoch seconds, by the store's clock). Raises BucketUnavailable: then
    nobody knows what must stay."""
    named = {key for commit in list_kept_commits(home) for key in _list_keys(commit)}
    for prefix in ("objects/", "manifests/"):
        for key, (size, at) in sorted(home.bucket.list_objects(prefix).items()):
            if key not in named and at < before:
                yield Garbage(KIND, key, size, partial(_remove, home, key, before))


def list_kept_commits(home: BucketHome) -> Iterator[Manifest]:
    """The last commits, the current one first; an older one may have been collected."""
    root = read_root(home.bucket)
    version, there = root.version, set(home.bucket.list_objects("manifests/"))
    for _ in range(home.policy.versions):
        if not version or (version != root.version and get_manifest_key(version) not in there):
            return
        made = read_manifest(home.bucket, version)
        yield made
        version = made.previous


def _list_keys(made: Manifest) -> Iterator[str]:
    yield get_manifest_key(made.version)
    yield from (get_object_key(one.sha) for one in made.files.values())


def _remove(home: BucketHome, key: str, before: float) -> bool:
    """Not while a commit is made here, and not what one has sent anew; others commit under the
    lease alone, which the caller holds."""
    with lock_commit(home.home):
        at = home.bucket.find_time(key)
        if at is None or at >= before:
            return False
        home.bucket.remove(key)
    return True
