"""Blobs: bytes named by their SHA-256, zstd-compressed, verified whenever they are met."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import zstandard

from warehouse.storage.digest import Sha256, is_sha256, sha256
from warehouse.storage.files import hold_lock, keep_file_young, write_atomically


class BlobCorrupt(RuntimeError):
    """A blob's bytes no longer match its name."""


class Blobs:
    """A folder of blobs: `<root>/ab/cd/<sha256>`, each a zstd frame of the named bytes."""

    # A hostile frame may claim any size; nothing we store is larger than a capped page or list.
    max_bytes = 512 * 1024 * 1024

    def __init__(self, root: Path) -> None:
        self.root = root
        self._lock = root.with_name(f".{root.name}.lock")

    def path(self, sha: str) -> Path:
        """Where the blob of that name lies or would lie. Raises ValueError unless it is a SHA-256,
        of which there are no others: a name may come from a table or an index that others wrote."""
        sha = Sha256(sha)
        return self.root / sha[:2] / sha[2:4] / sha

    def has(self, sha: str) -> bool:
        """Whether the blob lies there whole: it is read, an empty or torn file is no blob."""
        try:
            self.get(sha)
        except (KeyError, BlobCorrupt):
            return False
        return True

    def put(self, data: bytes, *, durable: bool = True) -> str:
        """Stores raw bytes, synced, and returns their SHA-256; the same bytes again cost a read.

        A file of that name with other bytes is replaced. Not durable: a power cut may lose them,
        and `get` then says so. Raises ValueError beyond `max_bytes`.
        """
        if len(data) > self.max_bytes:
            raise ValueError(f"{len(data):,} bytes, a blob holds at most {self.max_bytes:,}")
        sha = sha256(data)
        # Held against `remove`: what is here when this returns stays for as long as its grace.
        with hold_lock(self._lock, shared=True):
            if self.has(sha):
                keep_file_young(self.path(sha))
            else:
                # The sync (1 ms here) is what a power cut turns into an empty file otherwise.
                frame = zstandard.ZstdCompressor(level=3).compress(data)
                write_atomically(self.path(sha), frame, durable=durable)
        return sha

    def list_files(self) -> Iterator[Path]:
        for folder in self.root.glob("??/??"):
            yield from (path for path in sorted(folder.iterdir()) if is_sha256(path.name))

    def remove(self, sha: str, before: float) -> bool:
        """Removes a blob that was last put before `before` (epoch seconds); whether it did."""
        path = self.path(sha)
        with hold_lock(self._lock):
            try:
                if path.stat().st_mtime >= before:
                    return False
                path.unlink()
            except FileNotFoundError:
                return False
        return True

    def get(self, sha: str) -> bytes:
        """The bytes of that name. Raises KeyError when absent, BlobCorrupt when they differ."""
        try:
            frame = self.path(sha).read_bytes()
        except FileNotFoundError:
            raise KeyError(f"no blob {sha} under {self.root}") from None
        fix = "run again: what made it is made once more and replaces it"
        try:
            data = self._decompress(frame)
        except zstandard.ZstdError as error:
            where = f"blob {sha} under {self.root}"
            raise BlobCorrupt(f"{where} is not a zstd frame ({error}); {fix}") from error
        if sha256(data) != sha:
            raise BlobCorrupt(
                f"blob {sha} under {self.root} holds other bytes than its name; {fix}"
            )
        return data

    def _decompress(self, frame: bytes) -> bytes:
        # The library heeds `max_output_size` only in a frame that does not claim its own size.
        claimed = zstandard.frame_content_size(frame)
        if claimed > self.max_bytes:
            raise zstandard.ZstdError(f"it claims {claimed:,} bytes, at most {self.max_bytes:,}")
        return zstandard.ZstdDecompressor().decompress(frame, max_output_size=self.max_bytes)

    def get_json(self, sha: str) -> Any:
        return json.loads(self.get(sha))
