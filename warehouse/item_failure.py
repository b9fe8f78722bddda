"""One item's failure is its row: what nobody foresaw about one item never ends a whole run."""

import errno
import sqlite3
import traceback
from collections.abc import Callable
from pathlib import Path
from typing import TypeVar

from warehouse.home import HomeUnavailable
from warehouse.ledger.database import LedgerUnavailable
from warehouse.storage.digest import digest

INTERNAL = "internal"  # the error_kind of such a row
_ROOT = Path(__file__).resolve().parents[1]
_OF_THE_RUN = (HomeUnavailable, LedgerUnavailable, sqlite3.Error)
_OF_THE_MACHINE = frozenset(
    (errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EIO, errno.EMFILE, errno.ENFILE)
)

Made = TypeVar("Made")
Through = tuple[type[Exception], ...]


def try_item(
    make: Callable[[], Made], fail: Callable[[str], Made], *, through: Through = ()
) -> Made:
    """`make` of an item or, for unforeseen errors, `fail` of a hint (`describe_failure`)."""
    try:
        return make()
    except Exception as error:
        return fail(describe_failure(error, through))


def describe_failure(error: Exception, through: Through = ()) -> str:
    """`ValueError at assets/…/names.py:36 find_port, trace 0123456789ab`. One fault has one trace
    digest; its words may quote secrets. Raises errors that concern the run: a full disk, the
    ledger, `through`."""
    if isinstance(error, (*_OF_THE_RUN, *through)):
        raise error
    if isinstance(error, OSError) and error.errno in _OF_THE_MACHINE:
        raise error
    frames = traceback.extract_tb(error.__traceback__)
    places = [(_shorten_path(frame.filename), frame.lineno or 0, frame.name) for frame in frames]
    ours = [place for place in places if not place[0].startswith("…")] or places or [("?", 0, "?")]
    name, line, function = ours[-1]
    kind = type(error).__name__
    return f"{kind} at {name}:{line} {function}, trace {digest([kind, places])[:12]}"


def tell_failure(kind: str, hint: str) -> str:
    """`timeout: …` of a failed row, whether or not its hint begins with its kind."""
    return hint if hint.startswith(f"{kind}:") else f"{kind}: {hint}"


def _shorten_path(name: str) -> str:
    """A path within the repository, else the file's name alone: no path of this machine is told."""
    path = Path(name)
    inside = path.is_relative_to(_ROOT) and "site-packages" not in path.parts
    return str(path.relative_to(_ROOT)) if inside else f"…/{path.name}"
