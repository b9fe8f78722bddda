"""`toolmill backup` and `toolmill restore`: a home elsewhere, and back again."""

import sys
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line
from orchestration.settings.load import load_settings

if TYPE_CHECKING:
    from extensions.upkeep.backup.restore import Restored
    from extensions.upkeep.backup.save import Saved

app = typer.Typer(add_completion=False)


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="a new folder, or one of earlier backups")],
    link: Annotated[
        bool,
        typer.Option("--link/--copy", help="hard links in place of copies, where that is possible"),
    ] = False,
    keep: Annotated[
        int | None,
        typer.Option(min=1, help="then remove all backups but the last so many; default: all stay"),
    ] = None,
) -> None:
    """Save home and state as they are now, also while a run goes on; only what is new is copied.
    Left out: installed packages and caches, which are fetched again."""
    from extensions.upkeep.backup.save import prune_backups, save_backup
    from warehouse.home import require_home
    from warehouse.storage.files import PointerBroken

    settings = load_settings()
    home, state = require_home(settings.home_path()), settings.state_path()
    try:
        made = save_backup(home, state, folder, version("toolmill"), link=link)
        removed = prune_backups(home, folder, keep) if keep else 0
    except (OSError, PointerBroken) as error:
        reason = _describe_error(error) if isinstance(error, OSError) else str(error)
        fail(f"no backup was made: {reason}; the ones before are as they were", 1)
    _tell_empty(made)
    print_json({"folder": str(folder), **asdict(made), "removed_backups": removed})


@app.command()
def restore(
    folder: Annotated[Path, typer.Argument(help="the folder of backups")],
    at: Annotated[str | None, typer.Option("--at", help="which backup; default: the last")] = None,
) -> None:
    """Make the configured home, which must be empty or absent, from a backup, and check it as
    `toolmill doctor` does; exit 1 where something does not hold."""
    from extensions.upkeep.backup.restore import restore_backup
    from extensions.upkeep.doctor.catalogue import CHECKS
    from extensions.upkeep.doctor.check import Home, run_check
    from warehouse.home import require_folder

    settings = load_settings()
    home, state = settings.home.resolve(), settings.state_path()
    require_folder(home)
    try:
        made = restore_backup(folder.resolve(), home, state, at)
    except OSError as error:
        fail(f"nothing was restored: {_describe_error(error)}", 1)
    _tell_empty(made)
    results = [run_check(check, Home(home, state, everything=True)) for check in CHECKS]
    broken = [(result.name, one) for result in results for one in result.broken]
    for name, finding in broken:
        print_line(f"{name}: {finding.thing}: {finding.problem} -> {finding.fix}", err=True)
    print_json({"home": str(home), **asdict(made), "healthy": not broken})
    if broken:
        sys.exit(1)


def _tell_empty(made: "Saved | Restored") -> None:
    if not made.tables:
        files = "1 file" if made.files == 1 else f"{made.files:,} files"
        print_line(
            f"backup {made.stamp} holds no table, {files}: nothing was published in that home yet,"
            " or its tables are gone; TOOLMILL_HOME names the home",
            err=True,
        )


def _describe_error(error: OSError) -> str:
    where = f"{error.filename}: " if error.filename else ""
    return " ".join(f"{where}{error.strerror or error}".split())
