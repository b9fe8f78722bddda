"""What one backup holds, and where the backups of a home lie.

<folder>/backup.json             {"format": 1}: the folder is ours
<folder>/files/ab/<sha256>       every file that any backup holds, once
<folder>/backups/<stamp>.json    one backup: which files, where they were, of which version
"""

import json
import socket
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.home import LAYOUT
from warehouse.storage.digest import is_sha256
from warehouse.storage.files import write_atomically

FORMAT = 1
MARK = "backup.json"


class OtherLayout(UnusableInput):
    """A backup that another version made."""


@dataclass(frozen=True)
class Entry:
    """One file. sha256: of its bytes, "" for a link. target: where a link leads. written: its time
    of change in ns; with `size` and, of a database, the same of its log, what tells that a file is
    as it was."""

    sha256: str
    size: int
    mode: int
    owner: int
    group: int
    written: int
    target: str = ""
    log: str = ""


@dataclass(frozen=True)
class Manifest:
    """One backup. version: of the program that made it. home, state: path below it -> file.
    source: which home it is of; "" in backups of before there was a name for that."""

    stamp: str
    at: float
    layout: int
    version: str
    home: Mapping[str, Entry]
    state: Mapping[str, Entry]
    source: str = ""

    def count_tables(self) -> int:
        """How many tables, each marketplace's by itself, have a current version in it."""
        return sum(fnmatchcase(name, "tables/*/*/HEAD.json") for name in self.home)

    def dump(self) -> bytes:
        return json.dumps({"format": FORMAT, **asdict(self)}).encode()


def identify_source(home: Path) -> str:
    """The name of a home among those whose backups share a folder: its host and place."""
    return f"{socket.gethostname()}:{home.resolve()}"


def get_pool_path(folder: Path, sha: str) -> Path:
    return folder / "files" / sha[:2] / sha


def open_folder(folder: Path) -> None:
    """Makes or checks the folder of backups. Raises UnusableInput for one that holds other
    things."""
    if (folder / MARK).exists():
        return
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise UnusableInput(f"{folder}: neither empty nor a folder of backups; name another")
    folder.mkdir(parents=True, exist_ok=True, mode=0o700)
    write_atomically(folder / MARK, json.dumps({"format": FORMAT}).encode())


def list_stamps(folder: Path) -> list[str]:
    """The backups of a folder by their time, oldest first; a file that is half there is none."""
    return sorted(path.stem for path in (folder / "backups").glob("[0-9]*.json"))


def read_manifest(folder: Path, stamp: str) -> Manifest:
    """Raises UnusableInput for what is no backup, or one that this version cannot restore."""
    path = folder / "backups" / f"{stamp}.json"
    try:
        body: dict[str, Any] = json.loads(path.read_bytes())
        layout, version = body["layout"], body.pop("format") and body["version"]
        _check_layout(path, layout, str(version)[:20])
        parts = {side: _read_entries(body[side]) for side in ("home", "state")}
        return Manifest(**{**body, **parts})
    except FileNotFoundError:
        known = ", ".join(list_stamps(folder)[-5:]) or "none"
        raise UnusableInput(f"{folder}: no backup {stamp[:40]!r}; the last ones: {known}") from None
    except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
        if isinstance(error, UnusableInput):
            raise
        reason = " ".join(str(error).split())[:160]
        raise UnusableInput(f"{path}: cannot be read ({reason}); restore another") from error


def _check_layout(path: Path, layout: Any, version: str) -> None:
    if layout == LAYOUT:
        return
    age = "a newer" if isinstance(layout, int) and layout > LAYOUT else "an older"
    raise OtherLayout(
        f"{path}: made by {age} version ({version}, layout {str(layout)[:20]}, expected {LAYOUT});"
        " restore it with that version"
    )


def _read_entries(rows: Mapping[str, Mapping[str, Any]]) -> dict[str, Entry]:
    """Raises ValueError for a path that leads out of its root, or a name that is no SHA-256."""
    found = {}
    for name, row in rows.items():
        entry = Entry(**row)
        parts = Path(name).parts
        if Path(name).is_absolute() or ".." in parts or not parts:
            raise ValueError(f"{name[:80]!r} leads out of its folder")
        if not entry.target and not is_sha256(entry.sha256):
            raise ValueError(f"{name[:80]!r} has no SHA-256")
        found[name] = entry
    return found
