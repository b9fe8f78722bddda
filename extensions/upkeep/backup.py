"""What makes a copy of a home's files whole: its pointers and its ledger, as of one moment.

Files of a home never change once a pointer names them, so any file backup may copy them while a run
goes on (docs/operations.md shows restic). Pointers move and the ledger is written to: those are
exported here, before the files are copied, so that all that they name is in the copy.

    <folder>/backup.json          {version, at, pointers, ledger, left_out {path: why}}
    <folder>/home/<path>          home.json, pointers and their histories
    <folder>/ledger.db            a whole copy; absent where the ledger is in Postgres
"""

import json
import os
import shutil
import sqlite3
import time
import uuid
from contextlib import closing
from pathlib import Path
from typing import Any

from warehouse.errors import UnusableInput
from warehouse.storage.files import PointerBroken, write_atomically

MARK = "backup.json"
_POINTERS = (
    *("router/*.json", "releases/*.json", "releases/*.jsonl", "champions/*.json"),
    *("champions/*.jsonl", "tables/*/*/HEAD.json", "tables/*/*/HEADS.jsonl", "home.json"),
)
_FOLDERS = ("router", "releases", "champions", "tables", "tables/*", "tables/*/*")
_READINGS = 20  # a run moves a pointer every few seconds, and reading all takes a few ms


def export_backup(home: Path, state: Path, folder: Path, version: str) -> dict[str, Any]:
    """Writes pointers and ledger into `folder` in place of an earlier export, which stays if it
    fails. Raises UnusableInput for a folder of other things, PointerBroken, OSError."""
    folder = folder.resolve()
    if folder.exists() and not folder.is_dir():
        raise UnusableInput(f"{folder}: a file, expected a folder; name another place")
    if folder.exists() and not (folder / MARK).is_file() and any(folder.iterdir()):
        raise UnusableInput(f"{folder}: neither empty nor an earlier export; name another folder")
    pointers, left_out = _read_pointers(home)
    _require_whole(home, pointers)
    beside = folder.with_name(f".{folder.name}.{os.getpid()}.{uuid.uuid4().hex[:8]}")
    try:
        for name, data in pointers.items():
            write_atomically(beside / "home" / name, data, 0o600)
        ledger = state / "ledger.db"
        if ledger.exists():
            _copy_ledger(ledger, beside / "ledger.db")
        facts = {
            "version": version,
            "at": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
            "pointers": len(pointers),
            "ledger": ledger.exists(),
            "left_out": left_out,
        }
        write_atomically(beside / MARK, json.dumps(facts).encode(), 0o600)
        beside.chmod(0o700)
        if folder.exists():
            shutil.rmtree(folder)
        beside.rename(folder)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return {"folder": str(folder), **facts}


def _read_pointers(home: Path) -> tuple[dict[str, bytes], dict[str, str]]:
    """(path -> content, path -> why left out) of pointers, read until two readings agree."""
    before: dict[str, bytes] = {}
    left_out: dict[str, str] = {}
    for _ in range(_READINGS):
        folders = sorted(path for pattern in _FOLDERS for path in home.glob(pattern))
        closed = [path for path in folders if not os.access(path, os.R_OK | os.X_OK)]
        left_out = {str(path.relative_to(home)): "it cannot be opened" for path in closed}
        now = {}
        for path in sorted(path for pattern in _POINTERS for path in home.glob(pattern)):
            try:
                now[str(path.relative_to(home))] = path.read_bytes()
            except FileNotFoundError:  # a release that is pruned meanwhile
                continue
            except OSError as error:
                left_out[str(path.relative_to(home))] = error.strerror or "it cannot be read"
        if now == before:
            break
        before = now
    return before, left_out


def _require_whole(home: Path, pointers: dict[str, bytes]) -> None:
    """Raises PointerBroken for a pointer that is lost, no JSON object, or names a lost version."""
    for name, data in pointers.items():
        if name.endswith(".jsonl"):
            if name.endswith("HEADS.jsonl") and name.replace("S.jsonl", ".json") not in pointers:
                why = "has no HEAD.json beside it; `toolmill doctor --fix` puts it back"
                raise PointerBroken(f"{home / name}: {why}")
            continue
        try:
            digest = json.loads(data).get("digest")
        except (ValueError, AttributeError) as error:
            raise PointerBroken(
                f"{home / name}: cannot be read ({error}), expected a JSON object; `toolmill"
                " doctor` says what to do"
            ) from error
        if name.startswith("tables/") and not (
            (home / name).with_name(f"{digest}.parquet").is_file()
        ):
            raise PointerBroken(
                f"{home / name}: names version {str(digest)[:12]}, which is not there; `toolmill"
                " doctor` says what to do"
            )


def _copy_ledger(path: Path, to: Path) -> None:
    """Raises OSError naming a ledger that cannot be read."""
    try:
        with closing(sqlite3.connect(f"{path.resolve().as_uri()}?mode=ro", uri=True)) as ledger:
            ledger.execute("VACUUM INTO ?", (str(to),))
    except sqlite3.Error as error:
        raise OSError(f"{path}: {error}; `toolmill doctor` says what to do") from error
    to.chmod(0o600)
