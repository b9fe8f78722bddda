"""The ledger's files: which lie beside each other, who has them open, what their errors mean.

ledger.db  the database      ledger.journal  one line for all that must outlive it
ledger.lock  held in share by everyone who has the ledger open, alone by who rebuilds it
"""

import fcntl
from pathlib import Path
from typing import BinaryIO

import psutil


class LedgerUnavailable(RuntimeError):
    """The ledger's file cannot be opened, read or written."""

    maybe_paid = True  # the answer that could not be written down was received


def find_journal(path: Path) -> Path:
    return path.with_suffix(".journal")


def hold_open(path: Path, *, alone: bool = False) -> BinaryIO:
    """The ledger's lock, held until it is closed or its process dies; `alone` raises
    LedgerUnavailable when anybody else holds it."""
    file = path.with_suffix(".lock").open("ab")
    try:
        fcntl.flock(file, (fcntl.LOCK_EX | fcntl.LOCK_NB) if alone else fcntl.LOCK_SH)
    except OSError:
        file.close()
        raise LedgerUnavailable(
            f"ledger {path}: {list_users(path)} has it open; end that run first, a ledger is"
            f" rebuilt"
            " when nobody uses it"
        ) from None
    return file


def make_unavailable(path: Path, error: Exception) -> LedgerUnavailable:
    """What an error of SQLite or the disk means, and what to do."""
    message = str(error)
    if "locked" in message:
        fix = f"{list_users(path)} holds its lock; end it or wait, then run again: nothing is lost"
    elif "malformed" in message or "not a database" in message or "no such" in message:
        fix = (
            "its answers are safe in the journal and the blobs: look with `toolmill ledger check`,"
            " make it anew with `toolmill ledger rebuild`"
        )
    else:
        fix = (
            "it must be a writable SQLite file on a disk with space (TOOLMILL_STATE moves it);"
            " `toolmill ledger check` looks at it"
        )
    return LedgerUnavailable(f"ledger {path}: {message}; {fix}")


def list_users(path: Path) -> str:
    """Who has one of the ledger's files open, for an error message."""
    ours = {str(path.resolve()), str(path.with_suffix(".lock").resolve())}
    found = []
    for process in psutil.process_iter(["pid", "name"]):
        try:
            opened = {file.path for file in process.open_files()}
        except (psutil.Error, OSError):
            continue
        if opened & ours and process.pid != psutil.Process().pid:
            found.append(f"process {process.pid} ({process.info['name']})")
    return ", ".join(found) or "another process"
