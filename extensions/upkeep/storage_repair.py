"""Repair of a home's append-only files and pointers: torn lines out, pointers back to a version."""

import json
import time
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import polars as pl

from training.releases.champion import (
    CHAMPIONS,
    RoleChampion,
    get_pointer_path,
    hold_pointer_lock,
    list_attempts,
    list_promoted,
    read_champion,
)
from warehouse.storage.files import (
    PointerBroken,
    hold_lock,
    read_pointer,
    write_atomically,
    write_pointer,
)
from warehouse.storage.tables import Tables


@dataclass
class HomeRepairs:
    torn_lines: int = 0
    pointers: int = 0  # of tables: unreadable or lost, put back to the last whole version
    lost: list[str] = field(default_factory=list)  # pointers without a whole version
    files: list[str] = field(default_factory=list)

    @property
    def healthy(self) -> bool:
        return not self.files and not self.lost

    def row(self) -> dict[str, Any]:
        return {**asdict(self), "healthy": self.healthy}


def repair_home(home: Path, *, dry: bool = False) -> HomeRepairs:
    """Takes torn lines out of `.jsonl` files and puts unreadable or lost pointers of tables back;
    old files stay as `*.before-…`. `dry` only looks. Hold the run lock."""
    repairs = HomeRepairs()
    for path in list_line_files(home):
        if torn := split_lines(path)[1]:
            repairs.torn_lines += torn
            repairs.files.append(str(path.relative_to(home)))
            if not dry:
                with hold_lock(path.with_suffix(".lock")):
                    whole, _ = split_lines(path)
                    _keep(path)
                    write_atomically(path, whole)
    tables = Tables(home / "tables")
    for path in list_pointers(tables):
        _repair_pointer(tables, path, repairs, dry)
    return repairs


def list_pointers(tables: Tables) -> list[Path]:
    """The pointers of all partitions that were ever published, a lost one too."""
    found = (tables.root.glob(f"*/*/{name}") for name in ("HEAD.json", "HEADS.jsonl"))
    return sorted({path.with_name("HEAD.json") for paths in found for path in paths})


def list_line_files(home: Path) -> list[Path]:
    """Histories of tables, decisions, take-downs and reviews. Outcomes are left: a server may be
    writing there, and their reader passes a torn line over."""
    patterns = (
        "tables/*/*/HEADS.jsonl",
        "quarantine/*.jsonl",
        "reviews/*.jsonl",
        "takedowns/*.jsonl",
    )
    return sorted(path for pattern in patterns for path in home.glob(pattern) if path.is_file())


def split_lines(path: Path) -> tuple[bytes, int]:
    """The whole lines of a file, and how many are torn."""
    lines = [line for line in path.read_bytes().split(b"\n") if line.strip()]
    whole = [line for line in lines if _is_object(line)]
    return b"".join(line + b"\n" for line in whole), len(lines) - len(whole)


def _is_object(line: bytes) -> bool:
    try:
        return isinstance(json.loads(line), dict)
    except (ValueError, RecursionError):
        return False


def _repair_pointer(tables: Tables, path: Path, repairs: HomeRepairs, dry: bool) -> None:
    name, partition = path.parent.parent.name, path.parent.name
    with hold_lock(path.with_name(".lock")):
        try:
            if tables.head(name, partition) or not tables.list_publications(name, partition):
                return
        except PointerBroken:
            pass
        heads = tables.history(name, partition)
        last = next((head for head in reversed(heads) if _is_whole(path, head.digest)), None)
        where = str(path.relative_to(tables.root.parent))
        if last is None:
            repairs.lost.append(where)
            return
        repairs.pointers += 1
        repairs.files.append(where)
        if not dry:
            if path.exists():
                _keep(path)
            write_pointer(path, asdict(last))


def _is_whole(pointer: Path, digest: str) -> bool:
    try:
        pl.read_parquet(pointer.with_name(f"{digest}.parquet"))
    except (OSError, pl.exceptions.PolarsError):
        return False
    return True


def _keep(path: Path) -> None:
    stamp = time.strftime("%Y%m%dT%H%M%S", time.gmtime()) + f".{time.time_ns() % 1_000_000:06d}"
    write_atomically(path.with_name(f"{path.name}.before-{stamp}"), path.read_bytes())


def restore_pointer(home: Path, role: str) -> RoleChampion:
    """Writes a champion's broken pointer again from the history. Raises PointerBroken."""
    with hold_pointer_lock(home):
        try:
            if read_pointer(home / get_pointer_path(role), "") is not None:
                return read_champion(home, role)
        except PointerBroken:
            pass
        last_promoted = next(iter(list_promoted(home, role)[-1:]), None)
        if last_promoted is None:
            raise PointerBroken(
                f"{home / CHAMPIONS}: names no champion of {role}; delete {get_pointer_path(role)},"
                f" and the untrained model serves until {role}_champion is materialized"
            )
        attempts = [line["attempt"] for line in list_attempts(home, role)]
        after = replace(last_promoted, last_candidate=attempts[-1] if attempts else {})
        write_pointer(home / get_pointer_path(role), asdict(after))
        return after
