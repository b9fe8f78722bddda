"""Checks of the machine under a home: its layout, room on the disk, who may read and write."""

import os
import shutil
import stat
from collections.abc import Iterator
from pathlib import Path

from extensions.upkeep.doctor.check import NOTICE, Finding, Home, Looked
from extensions.upkeep.retention.leftovers import list_leftovers
from extensions.upkeep.retention.policy import DAY
from warehouse.home import HomeUnavailable, check_home

_ROOM = 1 << 30  # bytes; a first run of the demo leaves 0.8 GB
_INODES = 50_000  # the same run makes 37,000 files
_FOLDERS = ("tables", "blobs", "lance", "models", "router", "releases")


def check_layout(at: Home) -> Looked:
    """Whether this version can read the home."""
    try:
        check_home(at.home)
    except HomeUnavailable as error:
        problem, _, fix = str(error).partition("; ")
        return Looked(1, [Finding("home.json", problem, fix)])
    return Looked(1)


def check_room(at: Home) -> Looked:
    """Whether the next run finds room: bytes and names."""
    folders = [folder for folder in dict.fromkeys((at.home, at.state)) if folder.is_dir()]
    found = [one for folder in folders for one in _find_lack(folder)]
    return Looked(len(folders), found)


def _find_lack(folder: Path) -> Iterator[Finding]:
    free = shutil.disk_usage(folder).free
    if free < _ROOM:
        problem = f"{free / 1e6:,.0f} MB are free, expected {_ROOM / 1e6:,.0f} before a run"
        yield Finding(str(folder), problem, "toolmill gc")
    names = os.statvfs(folder)
    if names.f_files and names.f_favail < _INODES:
        problem = f"{names.f_favail:,} files can still be made, expected {_INODES:,}"
        yield Finding(str(folder), problem, "toolmill gc")


def check_permissions(at: Home) -> Looked:
    """Whether a run can write, and nobody else can read a secret."""
    folders = [at.home, at.state, *(at.home / name for name in _FOLDERS)]
    there = [folder for folder in folders if folder.exists()]
    found = [one for folder in there if (one := _find_closed_folder(folder))]
    secret = [at.state / "salt", *sorted((at.state / "oauth").glob("*.json"))]
    kept = [path for path in secret if path.is_file()]
    found += [one for path in kept if (one := _find_open_secret(path))]
    return Looked(len(there) + len(kept), found)


def _find_closed_folder(folder: Path) -> Finding | None:
    if not folder.is_dir():
        return Finding(str(folder), "is no folder", "move it away and run again")
    if os.access(folder, os.R_OK | os.W_OK | os.X_OK):
        return None
    owner = folder.stat()
    problem = f"cannot be written (owner {owner.st_uid}, mode {stat.S_IMODE(owner.st_mode):o})"
    return Finding(str(folder), problem, f"chown -R or chmod u+rwX {folder}")


def _find_open_secret(path: Path) -> Finding | None:
    mode = stat.S_IMODE(path.stat().st_mode)
    if mode & 0o077 == 0:
        return None
    return Finding(
        str(path), f"others may read it (mode {mode:o}), expected 600", f"chmod 600 {path}"
    )


def check_leftovers(at: Home) -> Looked:
    """Whether killed writers left files beside those they were to become, or folders on their way
    out. What is younger than a day may still be written."""
    found = sorted(list_leftovers(at.home, at.now - DAY))
    if not found:
        return Looked(0)
    problem = f"{len(found)} files or folders that killed writers left, first {found[0].name[:60]}"
    return Looked(len(found), [Finding(str(at.home), problem, "toolmill gc --yes", NOTICE)])
