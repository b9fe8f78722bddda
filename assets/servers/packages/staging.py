"""The folder of one fetch: what the tools may write, and what is published of it."""

import json
import os
import shutil
import time
import uuid
from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from stat import S_ISDIR
from typing import Any

from assets.servers.probe.failure_kinds import PackageError

TREE = "tree"  # the part that the run phase sees
MANIFEST = "toolmill.json"
FETCH_UID = 1_199_999_999
_CREATE = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW


@dataclass(frozen=True)
class Staging:
    """opened: the one folder that is writable inside. Nothing of ours is written there once a tool
    has run in it: third-party code may have left links and pipes in our way."""

    folder: Path

    @property
    def opened(self) -> Path:
        return self.folder / "opened"

    @property
    def tree(self) -> Path:
        return self.opened / TREE

    def write_request(self, name: str, text: str) -> None:
        """A file for a tool to read; before any tool runs."""
        _write_new(self.opened / name, text)
        set_fetch_owner(self.opened / name)

    def publish(self, facts: Mapping[str, Any], folder: Path) -> None:
        """Moves the tree and its manifest to `folder`, by way of one that no tool has seen."""
        sealed = self.folder / "sealed"
        sealed.mkdir()
        self.tree.rename(sealed / TREE)
        if not S_ISDIR((sealed / TREE).lstat().st_mode):  # it would be mounted, wherever it leads
            raise PackageError(
                "build_failed", "its install scripts put a link in place of its folder"
            )
        _write_new(sealed / MANIFEST, json.dumps(facts))
        folder.parent.mkdir(parents=True, exist_ok=True)
        try:
            sealed.rename(folder)
        except OSError:
            if not (folder / MANIFEST).exists():  # else another run was first with the same
                raise


@contextmanager
def open_staging(home: Path) -> Iterator[Staging]:
    """A fresh folder with an empty tree, removed in the end."""
    parent = home / "cache" / "staging"
    _sweep_folder(parent)
    staging = Staging(parent / uuid.uuid4().hex)
    try:
        staging.tree.mkdir(parents=True)
        set_fetch_owner(staging.opened)
        set_fetch_owner(staging.tree)
        yield staging
    finally:
        shutil.rmtree(staging.folder, ignore_errors=True)


def set_fetch_owner(path: Path) -> None:
    """Gives one file or folder to the user of the fetch phase (only root needs to)."""
    if os.geteuid() == 0:
        os.chown(path, FETCH_UID, FETCH_UID, follow_symlinks=False)


def _write_new(path: Path, text: str) -> None:
    with open(os.open(path, _CREATE, 0o644), "w") as file:
        file.write(text)


def _sweep_folder(folder: Path) -> None:
    """Removes what fetches that were killed left behind more than a day ago."""
    for path in folder.glob("*"):
        with suppress(OSError):
            if path.lstat().st_mtime < time.time() - 86_400:
                shutil.rmtree(path) if path.is_dir() else path.unlink()
