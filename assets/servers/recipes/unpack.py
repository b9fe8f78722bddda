"""Unpacking one MCPB bundle; runs inside the sandbox as a program of its own: standard library
only, so that memory, time and writes of a hostile archive meet the sandbox's limits."""

import os
import stat
import sys
import zipfile
from pathlib import Path, PurePosixPath

MAX_ENTRIES = 20_000  # files and folders, those that a path implies counted too
MAX_UNPACKED_MB = 1024
_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


class BundleRefused(ValueError):
    """The bundle is not unpacked; the message says why."""


def extract_bundle(bundle: Path, folder: Path) -> None:
    """Unpacks into `folder`, which must be empty. No entry leaves it, none is a link; entries are
    counted and measured while they are written, because a zip's own figures may lie.

    Stored and deflate only: 438 bytes of bzip2 took 926 MB to read. Raises Refused."""
    try:
        with zipfile.ZipFile(bundle) as archive:
            entries = archive.infolist()
            left, created = MAX_UNPACKED_MB << 20, {PurePosixPath(".")}
            for entry in entries:
                name, mode = entry.filename[:80], entry.external_attr >> 16
                path = PurePosixPath(entry.filename.replace("\\", "/"))
                if path.is_absolute() or ".." in path.parts or ":" in entry.filename:
                    raise BundleRefused(f"the entry {name!r} points out of the bundle")
                if stat.S_ISLNK(mode):
                    raise BundleRefused(f"the entry {name!r} is a link")
                if stat.S_IFMT(mode) not in (0, stat.S_IFREG, stat.S_IFDIR):
                    raise BundleRefused(f"the entry {name!r} is neither a file nor a folder")
                if entry.compress_type not in _METHODS:
                    raise BundleRefused(
                        f"the entry {name!r} is packed by another method than deflate:"
                        " pack it again"
                    )
                created |= {path, *path.parents}
                if max(len(created), len(entries)) > MAX_ENTRIES:
                    raise BundleRefused(f"more than {MAX_ENTRIES} files and folders")
                target = folder / path
                if entry.is_dir():
                    target.mkdir(parents=True, exist_ok=True)
                else:
                    target.parent.mkdir(parents=True, exist_ok=True)
                    left -= _write_file(archive, entry, target, left)
    except BundleRefused:
        raise
    except Exception as error:  # whatever the bytes provoke is a fact about the bundle
        raise BundleRefused(f"no readable zip: {error or type(error).__name__}") from error


def _write_file(archive: zipfile.ZipFile, entry: zipfile.ZipInfo, target: Path, left: int) -> int:
    """Bytes written. A name that comes twice is refused: O_EXCL."""
    mode = 0o755 if entry.external_attr >> 16 & 0o111 else 0o644
    written = 0
    with archive.open(entry) as source, open(os.open(target, _CREATE, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        while chunk := source.read(1 << 16):
            written += len(chunk)
            if written > left:
                raise BundleRefused(f"it unpacks to more than {MAX_UNPACKED_MB} MB")
            file.write(chunk)
    return written


if __name__ == "__main__":
    try:
        extract_bundle(Path(sys.argv[1]), Path(sys.argv[2]))
    except BundleRefused as error:
        sys.exit(str(error).encode("ascii", "backslashreplace").decode())
