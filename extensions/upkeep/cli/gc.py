"""`toolmill gc`: what of a home nothing refers to; shown first, taken away with --yes."""

import sys
import time
from contextlib import ExitStack
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import print_json, print_line
from orchestration.settings.load import load_settings
from orchestration.settings.sections import get_section

if TYPE_CHECKING:
    from extensions.upkeep.takedown.collect import Collection, Place
    from orchestration.settings.model import Settings

app = typer.Typer(add_completion=False)


@app.command("gc")
def collect(
    yes: Annotated[bool, typer.Option("--yes", help="take it away; default: only show it")] = False,
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
) -> None:
    """Show, or with --yes remove, old table versions, blobs, releases, packages, vectors and events
    that nothing refers to, and what was taken down.
    The settings `retention` say what stays; safe while a run goes on. Exit 1 where a part cannot
    be told, or removed."""
    from extensions.upkeep.takedown.collect import find_garbage, remove_garbage
    from orchestration.factories import require_home

    settings = load_settings()
    require_home(settings.home_path())
    with ExitStack() as held:
        place = _open_place(settings, held)
        found = find_garbage(place)
        gone = remove_garbage(found) if yes else []
    report = _describe_collection(found, gone, yes)
    print_json(report) if as_json else _print_report(report)
    if found.skipped or found.failed:
        sys.exit(1)


def _open_place(settings: "Settings", held: ExitStack) -> "Place":
    from assets.servers.sandbox.toolchain import find_toolchain
    from extensions.upkeep.takedown.collect import Place
    from orchestration.runs.instance import open_history
    from warehouse.errors import UnusableInput
    from warehouse.home import find_instance_folder, is_own_instance

    folder = find_instance_folder(settings.state_path())
    instance = None
    if folder is not None:
        try:
            instance = held.enter_context(open_history(folder))
        except UnusableInput:
            raise
        except Exception as error:  # of Dagster, of a database; their words may hold a password
            found = f"{folder}: Dagster's history cannot be opened ({type(error).__name__})"
            raise UnusableInput(f"{found}: make that folder writable, or run again") from None
    return Place(
        settings.home_path(),
        settings.state_path(),
        get_section(settings, "retention"),
        settings.training.releases,
        time.time(),
        instance,
        find_toolchain,
        folder is not None and is_own_instance(folder, settings.state_path()),
    )


def _describe_collection(found: "Collection", gone: list[Any], yes: bool) -> dict[str, Any]:
    from extensions.upkeep.retention.garbage import count_garbage

    kinds = count_garbage(found.garbage)
    removed = count_garbage(gone)
    return {
        "removed": yes,
        "written_before": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(found.before)),
        "kinds": {
            kind: {**of, **({"removed": removed.get(kind, {}).get("count", 0)} if yes else {})}
            for kind, of in kinds.items()
        },
        "bytes": sum(of["bytes"] for of in kinds.values()),
        "skipped": found.skipped,
        "failed": found.failed,
    }


def _print_report(report: dict[str, Any]) -> None:
    for kind, of in report["kinds"].items():
        gone = f", {of['removed']:,} removed" if report["removed"] else ""
        print_line(f"{kind:<10} {of['count']:>7,} {of['bytes'] / 1e6:>12,.1f} MB{gone}")
    for kind, why in report["skipped"].items():
        print_line(f"{kind:<10} nothing is removed: {why}")
    for kind, why in report["failed"].items():
        print_line(f"{kind:<10} not all could be removed: {why}")
    what = "removed" if report["removed"] else "can go (`toolmill gc --yes` removes them)"
    counted = sum(of["count"] for of in report["kinds"].values())
    print_line(
        f"{counted:,} things, {report['bytes'] / 1e6:,.1f} MB, {what};"
        f" nothing written after {report['written_before']} is looked at"
        f"{', but for what was taken down' if 'taken' in report['kinds'] else ''}"
    )
