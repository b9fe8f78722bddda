"""Publishing a folder to a bucket and fetching it: all of it is there before it is current.

<prefix>/files/<sha256>            each file once, whatever versions hold it
        /versions/<sha256>.json    {files {path: [sha256, bytes]}}, named by its own digest
        /current.json              the pointer (`extensions/scale/bucket/pointer.py`)
"""

import hashlib
import json
import os
import shutil
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path, PurePosixPath

from extensions.scale.bucket.bucket import Bucket, BucketUnavailable, parse_object
from extensions.scale.bucket.pointer import Current, move_current, read_current
from warehouse.errors import UnusableInput
from warehouse.storage.digest import is_sha256, sha256
from warehouse.storage.untrusted_files import UnreadableFile, list_files, open_file

_MOST = 64 << 20  # bytes of a version's list: some 150 a file
Files = dict[str, tuple[str, int]]


@dataclass(frozen=True)
class Moved:
    """What was published or fetched. sent: files that the bucket, or the folder, did not have."""

    version: str
    number: int
    files: int
    sent: int
    bytes_sent: int


def publish_folder(bucket: Bucket, folder: Path, memory: Path) -> Moved:
    """Sends the files of a folder that the bucket lacks, then makes them current; the same folder
    again moves nothing. A kill before the end changes nothing that anybody reads.

    Raises UnusableInput for a folder with links or devices, PointerMoved where somebody published
    meanwhile, BucketUnavailable.
    """
    before = read_current(bucket, memory)
    root = folder.resolve()
    try:
        held = _digest_files(root)
        there = {key: size for key, (size, _) in bucket.list_objects("files/").items()}
        missing = {sha: (name, size) for name, (sha, size) in held.items()
                   if there.get(f"files/{sha}") != size}  # fmt: skip
        for sha, (name, _) in missing.items():
            with open_file(root, name) as file:
                bucket.write_file(f"files/{sha}", file)
    except UnreadableFile as error:
        raise UnusableInput(f"{folder}: {error}; publish a folder of plain files") from None
    listed = json.dumps({"files": held}, sort_keys=True, separators=(",", ":")).encode()
    version = sha256(listed)
    with_list = bucket.read(f"versions/{version}.json", _MOST)
    if with_list is None or with_list[0] != listed:
        bucket.swap(f"versions/{version}.json", listed, with_list[1] if with_list else None)
    current = before
    if before is None or before.version != version:
        current = move_current(bucket, memory, version, before)
    size = sum(size for _, size in missing.values())
    return Moved(version, current.number if current else 0, len(held), len(missing), size)


def fetch_folder(bucket: Bucket, out: Path, memory: Path, version: str | None = None) -> Moved:
    """Makes a new folder of the current version, or of `version`; each file is held against its
    digest, and the folder is there whole or not at all.

    Raises UnusableInput, StaleRead, BucketUnavailable.
    """
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnusableInput(f"{out}: it is there and not empty; give a new or an empty folder")
    current = read_current(bucket, memory)
    if current is None:
        raise BucketUnavailable(f"{bucket.url}: nothing was published there yet")
    wanted = version or current.version
    if not is_sha256(wanted):
        raise UnusableInput(f"{wanted[:80]!r}: no version; the 64 hex digits that publishing gave")
    files = _read_version(bucket, wanted)
    beside = out.resolve().parent / f".{out.name}.{uuid.uuid4().hex[:8]}"
    try:
        beside.mkdir(parents=True)
        for name, (sha, size) in files.items():
            (beside / name).parent.mkdir(parents=True, exist_ok=True)
            fetch_object(bucket, f"files/{sha}", sha, size, beside / name)
        if out.exists():
            out.rmdir()
        beside.rename(out)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return _describe(current, wanted, files)


def _describe(current: Current, version: str, files: Mapping[str, tuple[str, int]]) -> Moved:
    size = sum(size for _, size in files.values())
    return Moved(version, current.number, len(files), len(files), size)


def _digest_files(root: Path) -> Files:
    found: Files = {}
    for path in list_files(root):
        with open_file(root, path) as file:
            digest = hashlib.file_digest(file, "sha256").hexdigest()
            found[path.as_posix()] = (digest, os.fstat(file.fileno()).st_size)
    return found


def _read_version(bucket: Bucket, version: str) -> Files:
    """The files of a version, whose list is what its name says. Raises BucketUnavailable."""
    where = f"{bucket.url}/versions/{version}.json"
    found = bucket.read(f"versions/{version}.json", _MOST)
    if found is None:
        raise BucketUnavailable(f"{where}: there is none; publish the folder again")
    if sha256(found[0]) != version:
        raise BucketUnavailable(f"{where}: is not what its name says; publish the folder again")
    try:
        listed = parse_object(found[0], where)["files"].items()
        files = {str(name): (str(sha), int(size)) for name, (sha, size) in listed}
    except (KeyError, TypeError, ValueError, AttributeError):
        raise BucketUnavailable(f"{where}: is no list of ours; name another prefix") from None
    for name, (sha, _) in files.items():
        path = PurePosixPath(name)
        inside = not path.is_absolute() and str(path) == name and ".." not in path.parts
        if not inside or "\0" in name or name == "." or not is_sha256(sha):
            raise BucketUnavailable(
                f"{where}: names {name[:80]!r}, which is no file below a folder"
            )
    return files


def fetch_object(bucket: Bucket, key: str, sha: str, size: int, to: Path) -> None:
    """Writes a new file of an object that is named by its content. Raises BucketUnavailable where
    it holds other bytes."""
    digest, left = hashlib.sha256(), size
    with to.open("xb") as file:
        for chunk in bucket.iter_chunks(key):
            left -= len(chunk)
            if left < 0:
                break
            digest.update(chunk)
            file.write(chunk)
    if left or digest.hexdigest() != sha:
        raise BucketUnavailable(
            f"{bucket.url}/{key}: holds other bytes than its name; remove it there and publish"
            " again what holds it"
        )
