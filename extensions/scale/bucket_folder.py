"""Publishing a folder to a bucket and fetching it: every file is there before it is current.

<prefix>/files/<sha256>            each file once, whatever versions hold it
        /versions/<sha256>.json    {files {path: [sha256, bytes]}, left_out {path: why}}, named by
                                   its own digest
        /current.json              the pointer to the current version, numbered, moved by a
                                   conditional put alone
"""

import errno
import hashlib
import json
import os
import shutil
import time
import uuid
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path, PurePosixPath

from extensions.scale.bucket_store import Bucket, BucketUnavailable, parse_object
from warehouse.errors import UnusableInput
from warehouse.storage.digest import is_sha256, sha256
from warehouse.storage.files import read_pointer, write_pointer
from warehouse.storage.untrusted_files import UnreadableFile, list_files, open_file

KEY = "current.json"
_MOST = 1 << 16


@dataclass(frozen=True)
class CurrentVersion:
    """What a bucket's pointer says. number: one more with each move; tag: of the object as read."""

    version: str
    number: int
    previous: str
    at: float
    tag: str


class StaleRead(BucketUnavailable):
    """The bucket, or a cache before it, answers with a pointer that it had before."""


def read_current(bucket: Bucket, memory: Path | None = None) -> CurrentVersion | None:
    """The pointer as it is now; None where nothing was published. memory: the file, if any, in
    which this machine keeps the last number that it saw. Raises StaleRead, BucketUnavailable."""
    pointer = bucket.read(KEY, _MOST)
    last_pointer = read_pointer(memory, "remove it") if memory else None
    last_number = (last_pointer or {}).get("number", 0)
    current = _parse(pointer, f"{bucket.url}/{KEY}") if pointer else None
    number = current.number if current else 0
    if number < last_number:
        raise StaleRead(
            f"{bucket.url}/{KEY}: found number {number}, expected {last_number} or more; a cache"
            f" answers: try again later, or remove {memory} if the prefix was emptied on purpose"
        )
    if memory and number > last_number:
        write_pointer(memory, {"number": number})
    return current


def move_current(
    bucket: Bucket, memory: Path | None, version: str, before: CurrentVersion | None
) -> CurrentVersion:
    """Makes a version current if `before` still is. Raises PointerMoved, BucketUnavailable."""
    number = before.number + 1 if before else 1
    body = {
        "version": version, "number": number, "previous": before.version if before else "",
        "at": time.time(),
    }  # fmt: skip
    tag = bucket.swap(KEY, json.dumps(body).encode(), before.tag if before else None)
    if memory:
        write_pointer(memory, {"number": number})
    return CurrentVersion(tag=tag, **body)


def _parse(pointer: tuple[bytes, str], where: str) -> CurrentVersion:
    body = parse_object(pointer[0], where)
    try:
        version, number = str(body["version"]), int(body["number"])
        current = CurrentVersion(
            version, number, str(body["previous"]), float(body["at"]), pointer[1]
        )
    except (KeyError, TypeError, ValueError, OverflowError):
        raise BucketUnavailable(f"{where}: is no pointer of ours; name another prefix") from None
    if not is_sha256(version) or number < 1:
        raise BucketUnavailable(f"{where}: is no pointer of ours; name another prefix")
    return current


_MOST_PUBLISH = 64 << 20  # bytes of a version's list: some 150 a file
_LONGEST = 3000  # bytes of a path: the system takes 4,096 with the folder that it is fetched into
Files = dict[str, tuple[str, int]]
Limits = Mapping[str, int] | None


@dataclass(frozen=True)
class FolderTransfer:
    """What was published or fetched. sent: files that the bucket, or the folder, did not have.
    left_out: what could not be read when it was published, with the reason."""

    version: str
    number: int
    files: int
    sent: int
    bytes_sent: int
    left_out: Mapping[str, str] = field(default_factory=dict)


def publish_folder(
    bucket: Bucket, folder: Path, memory: Path | None = None, names: Collection[str] = ()
) -> FolderTransfer:
    """Publishes a version and makes it current. Raises UnusableInput (links, devices),
    PointerMoved, BucketUnavailable."""
    before = read_current(bucket, memory)
    published = send_folder(bucket, folder, names)
    if before is None or before.version != published.version:
        before = move_current(bucket, memory, published.version, before)
    return replace(published, number=before.number)


def send_folder(bucket: Bucket, folder: Path, names: Collection[str] = ()) -> FolderTransfer:
    """Sends files that the bucket lacks, of these names if any are given, and their list, for those
    who fetch it by its version; unreadable files are left out and named. Raises as above."""
    root = folder.resolve()
    try:
        digests, left_out = _digest_files(root, names)
        there = bucket.list_objects("files/")
        missing = {sha: (name, size) for name, (sha, size) in digests.items()
                   if there.get(f"files/{sha}") != size}  # fmt: skip
        for sha, (name, _) in missing.items():
            with open_file(root, name) as file:
                bucket.write_file(f"files/{sha}", file)
    except UnreadableFile as error:
        raise UnusableInput(f"{folder}: {error}; publish a folder of plain files") from None
    listed = {"files": digests, **({"left_out": left_out} if left_out else {})}
    file_list = json.dumps(listed, sort_keys=True, separators=(",", ":")).encode()
    version = sha256(file_list)
    with_list = bucket.read(f"versions/{version}.json", _MOST_PUBLISH)
    if with_list is None or with_list[0] != file_list:
        bucket.swap(f"versions/{version}.json", file_list, with_list[1] if with_list else None)
    size = sum(size for _, size in missing.values())
    return FolderTransfer(version, 0, len(digests), len(missing), size, left_out)


def fetch_folder(
    bucket: Bucket, out: Path, memory: Path | None = None, version: str = "", most: Limits = None,
    most_bytes: int = 1 << 62,
) -> FolderTransfer:  # fmt: skip
    """Makes a new folder of the current version, or `version`, whole or not at all, each file
    checked against its digest. most: the files that it may have, with the bytes of each at most;
    most_bytes: of all. Raises UnusableInput, StaleRead, BucketUnavailable."""
    if out.exists() and (not out.is_dir() or any(out.iterdir())):
        raise UnusableInput(f"{out}: it is there and not empty; give a new or an empty folder")
    current = None if version and memory is None else read_current(bucket, memory)
    if current is None and not version:
        why = "nothing was published there yet; look in the log of what should do it"
        raise BucketUnavailable(f"{bucket.url}: {why}")
    version_name = version or (current.version if current else "")
    if not is_sha256(version_name):
        raise UnusableInput(
            f"{version_name[:80]!r}: no version; the 64 hex digits that publishing gave"
        )
    files = _read_version(bucket, version_name)
    for name, (_, size) in files.items():
        if most and size > most.get(name, -1):
            raise BucketUnavailable(
                f"{bucket.url}: holds {name[:80]!r} of {size:,} bytes, expected {', '.join(most)}"
                f" of at most {most.get(name, 0):,}; remove that prefix and publish it again"
            )
    size = sum(size for _, size in files.values())
    if size > most_bytes:
        raise BucketUnavailable(f"{bucket.url}: {size:,} bytes, expected at most {most_bytes:,}")
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
    number = current.number if current else 0
    return FolderTransfer(version_name, number, len(files), len(files), size)


def _digest_files(root: Path, names: Collection[str]) -> tuple[Files, dict[str, str]]:
    """(the files, what is left out and why). Raises UnreadableFile for a link or a device."""
    digests, left_out = Files(), dict[str, str]()
    for path in list_files(root, unread=left_out):
        name = path.as_posix()
        if names and name not in names:
            continue
        if len(os.fsencode(name)) > _LONGEST:
            left_out[f"{name[:200]}..."] = "its path is too long"
            continue
        try:
            with open_file(root, path) as file:
                digest = hashlib.file_digest(file, "sha256").hexdigest()
                digests[name] = (digest, os.fstat(file.fileno()).st_size)
        except UnreadableFile as error:
            if error.errno != errno.EACCES:
                raise
            left_out[name] = error.strerror or ""
    return digests, left_out


def _read_version(bucket: Bucket, version: str) -> Files:
    """The files of a version, whose list is what its name says. Raises BucketUnavailable."""
    where = f"{bucket.url}/versions/{version}.json"
    stored = bucket.read(f"versions/{version}.json", _MOST_PUBLISH)
    if stored is None:
        raise BucketUnavailable(f"{where}: there is none; publish the folder again")
    if sha256(stored[0]) != version:
        raise BucketUnavailable(f"{where}: is not what its name says; publish the folder again")
    try:
        entries = parse_object(stored[0], where)["files"].items()
        files = {str(name): (str(sha), int(size)) for name, (sha, size) in entries}
        os.fsencode("".join(files))  # raises ValueError for a name that no file can have
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError):
        raise BucketUnavailable(f"{where}: is no list of ours; name another prefix") from None
    for name, (sha, size) in files.items():
        path = PurePosixPath(name)
        inside = not path.is_absolute() and str(path) == name and ".." not in path.parts
        if not inside or "\0" in name or name == "." or not is_sha256(sha) or size < 0:
            raise BucketUnavailable(
                f"{where}: names {name[:80]!r}, which is no file below a folder"
            )
    return files


def fetch_object(bucket: Bucket, key: str, sha: str, size: int, to: Path) -> None:
    """Writes an object to a new file. Raises BucketUnavailable if it differs from its digest."""
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
