"""The marker that says which layout a home has: a home of another version is refused unread."""

import json
from pathlib import Path

from warehouse.storage.files import write_atomically

LAYOUT = 3  # raise it when what lies in a home can no longer be read as it is
MARKER = "home.json"
# What 0.1.0 made in a home, before homes were marked.
_UNMARKED = ("tables", "blobs", "lance", "models", "router", "releases", "state/ledger.db")


class HomeUnavailable(RuntimeError):
    """The data folder cannot be written, or has the layout of another version."""


def check_home(home: Path) -> None:
    """Raises HomeUnavailable where a folder was made by another version; writes nothing."""
    marker = home / MARKER
    try:
        found = json.loads(marker.read_bytes())["layout"]
    except FileNotFoundError:
        found = next((name for name in _UNMARKED if (home / name).exists()), None)
        if found is None:
            return
        raise _describe_other_version(
            home, f"made by an earlier version ({found} without {MARKER})"
        ) from None
    except OSError as error:
        raise describe_unwritable(home, error) from error
    except (ValueError, KeyError, TypeError):
        raise _describe_other_version(
            home, f"{MARKER} is not readable as {{'layout': {LAYOUT}}}"
        ) from None
    if found != LAYOUT:
        age = "a later" if isinstance(found, int) and found > LAYOUT else "another"
        raise _describe_other_version(
            home, f"made by {age} version (layout {str(found)[:20]}, expected {LAYOUT})"
        )


def require_home(home: Path) -> None:
    """Raises HomeUnavailable where nothing was made yet, or by another version; writes nothing."""
    check_home(home)
    if not (home / MARKER).exists():
        raise HomeUnavailable(
            f"{home}: nothing was made there yet; `toolmill run` makes it, TOOLMILL_HOME names"
            " another folder"
        )


def claim_home(home: Path) -> None:
    """Checks a home and marks one that is empty. Raises HomeUnavailable."""
    check_home(home)
    if (home / MARKER).exists():
        return
    try:
        write_atomically(home / MARKER, json.dumps({"layout": LAYOUT}).encode())
    except OSError as error:
        raise describe_unwritable(home, error) from error


def describe_unwritable(folder: Path, error: OSError) -> HomeUnavailable:
    """The error of a folder in which nothing can be written."""
    return HomeUnavailable(
        f"{folder}: {error.strerror or error}; Toolmill keeps all it makes there."
        " Make it writable, free some space, or set TOOLMILL_HOME to another folder"
    )


def _describe_other_version(home: Path, found: str) -> HomeUnavailable:
    return HomeUnavailable(
        f"{home}: {found}; it must be made anew: if it is Toolmill's, remove it (`make clean`) and"
        " run again, or set TOOLMILL_HOME to another folder"
    )
