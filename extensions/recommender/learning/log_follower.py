"""Reads what is appended to the log of calls, by whichever process, without reading it again."""

import os
from datetime import UTC, datetime
from typing import Any, BinaryIO

from assets.servers.calls.log import CallLog, parse_line

_CHUNK = 1 << 20  # bytes that one reading takes of a file; a line has at most some 100,000


class LogFollower:
    """The lines of a log from one day on, each read once."""

    def __init__(self, outcomes: CallLog, since: float) -> None:
        """since: epoch seconds; files of the days before are not opened."""
        self._outcomes = outcomes
        self._first = datetime.fromtimestamp(max(0.0, since), UTC).date().isoformat()
        self._read: dict[str, tuple[int, int]] = {}  # day -> (inode, bytes that were read)

    def read_lines(self) -> list[dict[str, Any]]:
        """The next lines, of at most a megabyte; [] when all is read. One that is no line of the
        log is passed over. Raises LogRewritten."""
        files = [path for path in self._outcomes.list_files() if path.stem >= self._first]
        if self._read.keys() - {path.stem for path in files}:
            raise LogRewritten
        for path in files:
            inode, start = self._read.get(path.stem, (0, 0))
            try:
                with path.open("rb") as file:
                    data, found = self._read_chunk(file, path.stem, inode, start)
            except FileNotFoundError:
                raise LogRewritten from None
            if data:
                self._read[path.stem] = found
                return [line for text in data.split(b"\n") if (line := _parse(text)) is not None]
        return []

    def _read_chunk(
        self, file: BinaryIO, day: str, inode: int, start: int
    ) -> tuple[bytes, tuple[int, int]]:
        """(whole lines, where they are read to): what follows the last one is being written."""
        stat = os.fstat(file.fileno())
        if inode and (stat.st_ino != inode or stat.st_size < start):
            raise LogRewritten
        file.seek(start)
        data = file.read(_CHUNK)
        whole = data[: data.rfind(b"\n") + 1]
        if not whole and len(data) == _CHUNK:  # no line of ours
            whole = data
        return whole, (stat.st_ino, start + len(whole))


class LogRewritten(Exception):
    """Lines that were read are deleted: what remains is to be read anew."""


def _parse(text: bytes) -> dict[str, Any] | None:
    return parse_line(text.decode("utf-8", "replace")) if text.strip() else None
