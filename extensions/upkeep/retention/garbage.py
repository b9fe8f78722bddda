"""What a collection finds and takes away, by kind, and how one file or folder goes."""

import shutil
import uuid
from collections import defaultdict
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

_GOING = ".going-"


@dataclass(frozen=True)
class Garbage:
    """One thing that nothing refers to. size: bytes. remove: takes it away, and says whether it
    did: what is used again since it was found stays."""

    kind: str
    name: str
    size: int
    remove: Callable[[], bool]


def count_garbage(found: Iterable[Garbage]) -> dict[str, dict[str, Any]]:
    """Kind -> {count, bytes}."""
    made: dict[str, dict[str, Any]] = defaultdict(lambda: {"count": 0, "bytes": 0})
    for one in found:
        made[one.kind]["count"] += 1
        made[one.kind]["bytes"] += one.size
    return dict(made)


def measure_size(path: Path) -> int:
    """Bytes of a file, or of all files below a folder."""
    if path.is_symlink() or not path.is_dir():
        return path.lstat().st_size
    return sum(one.lstat().st_size for one in path.rglob("*") if not one.is_dir())


def remove_path(path: Path) -> bool:
    """Takes a file or a folder away; a folder goes out of sight first, so that a kill leaves
    nothing half there."""
    if path.is_symlink() or not path.is_dir():
        path.unlink(missing_ok=True)
        return True
    aside = path
    if not path.name.startswith(_GOING):
        aside = path.with_name(f"{_GOING}{uuid.uuid4().hex[:8]}")
        path.rename(aside)
    shutil.rmtree(aside, ignore_errors=True)
    return True
