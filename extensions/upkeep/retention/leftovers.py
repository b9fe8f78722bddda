"""What killed writers leave: files beside those they were to become, folders on their way out."""

import re
from collections.abc import Iterator
from pathlib import Path

# `.name.<pid>.<8 hex>` of `write_atomically`; `.going-<8 hex>` of a folder that was being removed.
_BESIDE = re.compile(r"\..+\.\d+\.[0-9a-f]{8}|\.going-[0-9a-f]{8}")
_FOLDERS = ("blobs", "champions", "jobs", "models", "releases", "router", "tables", "training_sets")


def list_leftovers(home: Path, before: float) -> Iterator[Path]:
    """Those that nobody has written to since `before` (epoch seconds)."""
    for name in _FOLDERS:
        for path in (home / name).rglob(".*"):
            if _BESIDE.fullmatch(path.name) and _find_age(path) < before:
                yield path


def _find_age(path: Path) -> float:
    try:
        return path.lstat().st_mtime
    except FileNotFoundError:  # its writer ended meanwhile
        return float("inf")
