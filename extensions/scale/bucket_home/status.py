"""What a home in a bucket is, as one of its machines sees it."""

import time
from typing import Any

from extensions.scale.bucket_home.carried import count_changed, count_given_up
from extensions.scale.bucket_home.manifest import read_manifest
from extensions.scale.bucket_home.root import format_time, read_root
from extensions.scale.bucket_home.session import BucketHome
from extensions.scale.bucket_home.working_copy import read_base, read_record
from warehouse.errors import UnusableInput


def refuse_superseded(home: BucketHome) -> None:
    """Raises UnusableInput where another machine has committed since this copy was fetched, and
    files were written here: they would give way to its commit."""
    root, record = read_root(home.bucket), read_record(home.home, home.bucket.url)
    if not record.number or root.number <= record.number:
        return
    if lost := count_given_up(home.copy, read_base(home.home, home.bucket, record.version)):
        raise UnusableInput(
            f"{home.home}: {lost} files were written here since commit {record.number}, and commit"
            f" {root.number} was made elsewhere; nothing was committed and nothing changed here:"
            " copy what you want to keep, then `toolmill bucket pull` takes that commit"
        )


def describe_home(home: BucketHome) -> dict[str, Any]:
    """The last commit, the lease, and the working copy, as JSON values; nothing is changed. Raises
    BucketUnavailable."""
    root, record = read_root(home.bucket), read_record(home.home, home.bucket.url)
    made = read_manifest(home.bucket, root.version) if root.number else None
    lease = root.lease
    ended = lease is not None and lease.until < time.time()
    return {
        "bucket": home.bucket.url,
        "commit": root.number,
        "at": format_time(root.at) if root.number else None,
        "files": len(made.files) if made else 0,
        "bytes": sum(one.size for one in made.files.values()) if made else 0,
        "holder": lease.holder if lease and not ended else None,
        "until": format_time(lease.until) if lease and not ended else None,
        "home": str(home.home),
        "fetched": record.number,
        "whole": record.whole,
        "changed_here": count_changed(home.copy, read_base(home.home, home.bucket, record.version)),
    }
