"""Blobs: bytes named by their SHA-256, zstd-compressed, written once."""

import json
from pathlib import Path
from typing import Any

import zstandard

from warehouse.storage.digest import canonical_json, sha256
from warehouse.storage.files import write_atomically


class BlobCorrupt(RuntimeError):
    """A blob's bytes no longer match its name."""


class Blobs:
    """A folder of blobs: `<root>/ab/cd/<sha256>`, each a zstd frame of the named bytes."""

    # A hostile frame may claim any size; nothing we store is larger than a capped page or list.
    max_bytes = 512 * 1024 * 1024

    def __init__(self, root: Path) -> None:
        self.root = root

    def path(self, sha: str) -> Path:
        """Where the blob of that name lies or would lie."""
        return self.root / sha[:2] / sha[2:4] / sha

    def has(self, sha: str) -> bool:
        return self.path(sha).exists()

    def put(self, data: bytes) -> str:
        """Stores raw bytes and returns their SHA-256; storing the same bytes twice is free."""
        sha = sha256(data)
        if not self.has(sha):
            # No fsync: thousands of small answers a run, each verified by name when it is read.
            frame = zstandard.ZstdCompressor(level=3).compress(data)
            write_atomically(self.path(sha), frame, sync=False)
        return sha

    def get(self, sha: str) -> bytes:
        """The bytes of that name. Raises KeyError when absent, BlobCorrupt when they differ."""
        try:
            frame = self.path(sha).read_bytes()
        except FileNotFoundError:
            raise KeyError(f"no blob {sha} under {self.root}") from None
        fix = f"delete {self.path(sha)} and run again: what made it is made once more"
        try:
            data = zstandard.ZstdDecompressor().decompress(frame, max_output_size=self.max_bytes)
        except zstandard.ZstdError as error:
            raise BlobCorrupt(f"blob {sha} is not a zstd frame ({error}); {fix}") from error
        if sha256(data) != sha:
            raise BlobCorrupt(f"blob {sha} holds other bytes than its name says; {fix}")
        return data

    def put_json(self, obj: Any) -> str:
        """Stores the canonical JSON of `obj`; equal values share one blob."""
        return self.put(canonical_json(obj))

    def get_json(self, sha: str) -> Any:
        return json.loads(self.get(sha))
