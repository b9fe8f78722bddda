"""Restoring: a home and its state from a backup, whole or not at all."""

import os
import shutil
import uuid
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from itertools import takewhile
from pathlib import Path

from extensions.upkeep.backup.manifest import (
    MARK,
    Entry,
    Manifest,
    get_pool_path,
    list_stamps,
    read_manifest,
)
from warehouse.errors import UnusableInput
from warehouse.storage.files import hash_file

_LOCKS = {"run.lock", "ledger.lock"}


class BackupBroken(RuntimeError):
    """A file of a backup is missing or another one."""


@dataclass(frozen=True)
class Restored:
    """What was restored. tables: those that have a current version, each marketplace's by
    itself."""

    stamp: str
    version: str
    tables: int
    files: int


def restore_backup(folder: Path, home: Path, state: Path, stamp: str | None = None) -> Restored:
    """Makes home and state as they were at a backup (default: the last). Every file is held against
    its digest; both are made beside their place and take it last, the home at the very end.

    Raises UnusableInput for a home or state that holds anything but locks of ours, and for a
    backup of another version; BackupBroken with nothing in place.
    """
    manifest = _read_backup(folder, stamp)
    for place in (home, state):
        if place.exists() and not _is_vacant(place, state):
            raise UnusableInput(
                f"{place}: holds something already; restore into an empty or absent folder"
                " (TOOLMILL_HOME, TOOLMILL_STATE), or move it away first"
            )
    if state.is_relative_to(home):
        tops = [home]
    else:
        tops = [state] if home.is_relative_to(state) else [state, home]
    beside = {place: _make_place_beside(place) for place in tops}
    try:
        made_home, made_state = (_find_made(beside, place) for place in (home, state))
        sides = ((manifest.state, made_state), (manifest.home, made_home))
        for entries, to in sides:
            _restore_files(folder, entries, to)
        _restore_links(folder, {to / name: one for side, to in sides for name, one in side.items()})
        for place, made in beside.items():
            if place.exists():
                _remove_vacant(place)
            made.rename(place)
    finally:
        for made in beside.values():
            shutil.rmtree(made, ignore_errors=True)
    files = len(manifest.home) + len(manifest.state)
    return Restored(manifest.stamp, manifest.version, manifest.count_tables(), files)


def _is_vacant(place: Path, state: Path) -> bool:
    """Whether a folder holds nothing but locks of ours, which a refused command may leave."""
    if not place.is_dir():
        return False
    others = [path for path in place.rglob("*") if path.name not in _LOCKS]
    return all(path == state and not path.is_symlink() for path in others)


def _remove_vacant(place: Path) -> None:
    """Raises OSError where something else was put there meanwhile."""
    for path in sorted(place.rglob("*"), reverse=True):
        path.unlink() if path.name in _LOCKS else path.rmdir()
    place.rmdir()


def _find_made(beside: Mapping[Path, Path], place: Path) -> Path:
    """Where a home or state is made: beside its place, or in the other one that holds it."""
    top, made = next((top, to) for top, to in beside.items() if place.is_relative_to(top))
    return made / place.relative_to(top)


def _read_backup(folder: Path, stamp: str | None) -> Manifest:
    stamps = list_stamps(folder) if (folder / MARK).is_file() else []
    if not stamps:
        raise UnusableInput(f"{folder}: no folder of backups; `toolmill backup` makes one")
    if stamp is None:
        _require_one_source(folder, stamps)
    return read_manifest(folder, stamp or stamps[-1])


def _require_one_source(folder: Path, stamps: Sequence[str]) -> None:
    """Raises UnusableInput where the last backup may be of another home than the one meant."""
    last: dict[str, str] = {}
    for stamp in stamps:
        try:
            last[read_manifest(folder, stamp).source] = stamp
        except UnusableInput:  # an old one that cannot be read says nothing of the last
            continue
    if len(last) > 1:
        listed = "; ".join(f"--at {stamp} of {name or 'unknown'}" for name, stamp in last.items())
        raise UnusableInput(f"{folder}: holds backups of {len(last)} homes, say which: {listed}")


def _make_place_beside(place: Path) -> Path:
    place.parent.mkdir(parents=True, exist_ok=True)
    return place.with_name(f".{place.name}.restoring.{uuid.uuid4().hex[:8]}")


def _restore_files(folder: Path, entries: Mapping[str, Entry], to: Path) -> None:
    to.mkdir(parents=True, exist_ok=True)
    for name, entry in entries.items():
        if entry.target:
            continue
        path = to / name
        _make_folders(path.parent)
        source = get_pool_path(folder, entry.sha256)
        try:
            shutil.copyfile(source, path)
        except FileNotFoundError:
            raise BackupBroken(f"{folder}: {name[:120]} is lost; restore another backup") from None
        if hash_file(path) != entry.sha256:
            raise BackupBroken(
                f"{source}: holds other bytes than its name ({name[:120]}); restore another backup"
            )
        path.chmod(entry.mode)
        os.utime(path, ns=(entry.written, entry.written))
        with suppress(PermissionError):
            os.chown(path, entry.owner, entry.group)


def _restore_links(folder: Path, entries: Mapping[Path, Entry]) -> None:
    """After all files, the innermost first: nothing is ever written by way of a link."""
    links = [(path, one.target) for path, one in entries.items() if one.target]
    for path, target in sorted(links, key=lambda link: -len(link[0].parts)):
        _make_folders(path.parent)
        try:
            path.symlink_to(target)
        except FileExistsError:
            raise BackupBroken(
                f"{folder}: {path.name[:120]} is a link and a folder at once; restore another"
                " backup"
            ) from None


def _make_folders(folder: Path) -> None:
    """A folder and those that it lies in; `mkdir` goes up by recursion, a server's may lie deep."""
    missing = [*takewhile(lambda one: not one.exists(), (folder, *folder.parents))]
    for one in reversed(missing):
        one.mkdir(exist_ok=True)
