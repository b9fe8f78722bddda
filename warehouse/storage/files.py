"""Files that are whole or absent: write beside, fsync, rename; and a lock between processes."""

import fcntl
import os
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, data: bytes, *, sync: bool = True) -> None:
    """Writes `data` to `path` so that a reader or a kill never sees half of it.

    `sync` also makes it outlast a power cut, at some milliseconds a file.
    Raises OSError naming the path (disk full, read-only file system), with nothing left behind.
    """
    beside = path.with_name(f".{path.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        with _open_for_writing(beside) as file:
            file.write(data)
            if sync:
                file.flush()
                os.fsync(file.fileno())
        beside.replace(path)
    finally:
        beside.unlink(missing_ok=True)


def _open_for_writing(path: Path) -> BinaryIO:
    """`path` open for writing; its folder is made only when it is missing (a tenth of the cost of
    a small file, when thousands are written)."""
    try:
        return path.open("wb")
    except FileNotFoundError:
        path.parent.mkdir(parents=True, exist_ok=True)
        return path.open("wb")


def append_line(path: Path, line: str) -> None:
    """Appends one line in one write call, so that two processes never interleave within it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    handle = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o644)
    try:
        os.write(handle, (line.rstrip("\n") + "\n").encode())
        os.fsync(handle)
    finally:
        os.close(handle)


@contextmanager
def hold_lock(path: Path) -> Iterator[None]:
    """Holds an exclusive lock on `path` (a lock file) across processes; the kernel frees it when
    the holder dies."""
    path.parent.mkdir(parents=True, exist_ok=True)
    with path.open("a+") as file:
        fcntl.flock(file, fcntl.LOCK_EX)
        try:
            yield
        finally:
            fcntl.flock(file, fcntl.LOCK_UN)
