"""The home of all data, marked with its layout: another version's home is refused unread."""

import json
import os
from contextlib import suppress
from pathlib import Path

from warehouse.errors import UnusableInput
from warehouse.storage.files import write_atomically

LAYOUT = 3  # raise it when what lies in a home can no longer be read as it is
MARKER = "home.json"
# What 0.1.0 made in a home, before homes were marked.
_UNMARKED = ("tables", "blobs", "lance", "models", "router", "releases", "state/ledger.db")


class HomeUnavailable(RuntimeError):
    """The data folder cannot be written, or is no home that can be used."""


class HomeUnusable(HomeUnavailable, UnusableInput):
    """The folder that settings name is a file, another version's home, or none was made there."""


def check_home(home: Path) -> None:
    """Raises HomeUnusable where a folder was made by another version; writes nothing."""
    require_folder(home)
    marker = home / MARKER
    try:
        layout = json.loads(marker.read_bytes())["layout"]
        if type(layout) is not int:  # nor a bool, which is one
            raise TypeError
    except FileNotFoundError:
        if leftover := next((name for name in _UNMARKED if (home / name).exists()), None):
            raise _describe_unmarked(home, f"holds {leftover}, and no {MARKER}") from None
        return
    except OSError as error:
        raise describe_unwritable(home, error) from error
    except (ValueError, KeyError, TypeError, RecursionError):
        raise _describe_unmarked(home, f"its {MARKER} does not say which layout it has") from None
    if layout != LAYOUT:
        raise HomeUnusable(
            f"{home}: made by another version (layout {layout}, expected {LAYOUT}); install that"
            " version of toolmill, or set TOOLMILL_HOME to another folder"
        )


def require_folder(home: Path) -> None:
    """Raises HomeUnusable where a file is in the home's place, or on the way to it."""
    with suppress(OSError):  # whoever reads or writes there tells of it
        for path in (home, *home.parents):
            if path.exists():
                if path.is_dir():
                    return
                below = "" if path == home else f"{path} "
                raise HomeUnusable(f"{home}: {below}is a file; set TOOLMILL_HOME to a folder")


def require_home(home: Path) -> Path:
    """A home that this version made something in, else HomeUnusable; writes nothing."""
    check_home(home)
    if not (home / MARKER).exists():
        raise HomeUnusable(
            f"{home}: nothing was made there yet; `toolmill run` makes it, TOOLMILL_HOME names"
            " another folder"
        )
    return home


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
    return HomeUnavailable(
        f"{folder}: {error.strerror or error}; Toolmill keeps all it makes there."
        " Make it writable, free some space, or set TOOLMILL_HOME to another folder"
    )


def _describe_unmarked(home: Path, problem: str) -> HomeUnusable:
    return HomeUnusable(
        f'{home}: {problem}; if this version made it, put {{"layout": {LAYOUT}}} into'
        f" {home / MARKER}, or restore a backup; else use the version that made it, or set"
        " TOOLMILL_HOME to another folder"
    )


POSTGRES = "DAGSTER_POSTGRES_URL"


def find_instance_folder(state: Path) -> Path | None:
    """The folder of Dagster's instance; None before the first run."""
    folder = Path(os.environ.get("DAGSTER_HOME") or state / "dagster")
    return folder if (folder / "dagster.yaml").is_file() else None


def is_own_instance(folder: Path, state: Path) -> bool:
    """Whether an instance is the state's; others, and a Postgres, may hold other homes' runs."""
    return POSTGRES not in os.environ and folder.resolve() == (state / "dagster").resolve()
