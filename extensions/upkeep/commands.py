"""Commands of the extension: `doctor`, `gc`, `takedown` and `backup`."""

import json
import sys
import time
from contextlib import ExitStack
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import AsJson, By, count_noun, fail, print_json, print_line
from orchestration.settings.load import load_settings
from orchestration.settings.sections import derive_policy, get_section

if TYPE_CHECKING:
    from extensions.upkeep.collect import GarbageScope
    from orchestration.settings.model import Settings

app = typer.Typer(rich_help_panel="Upkeep")


@app.command()
def doctor(
    as_json: AsJson = False,
    everything: Annotated[
        bool, typer.Option("--all", help="read every blob and vector, not a sample")
    ] = False,
    fix: Annotated[
        bool, typer.Option("--fix", help="first repair torn histories and broken pointers")
    ] = False,
) -> None:
    """Check every invariant of the home, and name the command that fixes what does not hold.

    Checks only read, also while a run goes on. --fix removes torn lines from histories and puts
    broken pointers back to their last whole version; the old files are kept beside. Exit 1 where
    something does not hold."""
    from extensions.upkeep.checks import CHECKS
    from extensions.upkeep.health import InspectedHome, run_check
    from warehouse.home import require_folder

    settings = load_settings()
    home = settings.home.resolve()  # also one of another version
    require_folder(home)
    if not home.exists() or all(path.name.startswith(".") for path in home.iterdir()):
        fail(f"{home}: nothing was made there yet; `toolmill run` makes it", 2)
    if fix:
        _repair(home, settings.state_path())
    results = []
    for check in CHECKS:
        results.append(run_check(check, InspectedHome(home, settings.state_path(), everything)))
        if not as_json:
            _print_result(results[-1])
    broken = sum(len(result.broken) for result in results)
    if as_json:
        rows = [{**asdict(result), "holds": not result.broken} for result in results]
        print_json({"home": str(home), "healthy": not broken, "checks": rows})
    else:
        notes = sum(len(result.findings) for result in results) - broken
        counts = count_noun(broken, "finding"), count_noun(notes, "note")
        print_line(f"{len(results)} checks, {', '.join(counts)}: {home}")
    if broken:
        sys.exit(1)


def _repair(home: Path, state: Path) -> None:
    from orchestration.runs.processes import silence_warnings

    silence_warnings()
    from extensions.upkeep.storage_repair import repair_home, restore_pointer
    from orchestration.runs.nightly import hold_run_lock
    from training.releases.champion import read_champion
    from training.role import list_roles
    from warehouse.storage.files import PointerBroken

    with hold_run_lock(state):
        print_line(json.dumps(repair_home(home, dry=False).row()), err=True)
        for role in list_roles():
            try:
                read_champion(home, role)
            except PointerBroken as error:
                try:
                    restore_pointer(home, role)
                except (PointerBroken, ValueError, RuntimeError):
                    print_line(f"champion of {role} cannot be restored: {error}", err=True)


def _print_result(result: Any) -> None:
    mark = "FAIL" if result.broken else "note" if result.findings else "ok"
    print_line(f"{mark:<5} {result.name:<13} {result.claim} ({result.n:,} checked)")
    for finding in result.findings:
        print_line(f"      {finding.thing}: {finding.problem}")
        print_line(f"      -> {finding.fix}")


@app.command("gc")
def collect(
    yes: Annotated[bool, typer.Option("--yes", help="remove it; default: only show it")] = False,
    as_json: AsJson = False,
) -> None:
    """Show what nothing refers to, or remove it with --yes.

    Old table versions, blobs, releases, packages, vectors, events, and what was taken down. The
    settings `retention` say what stays. Safe while a run goes on. Exit 1 where a part cannot be
    judged or removed."""
    from extensions.upkeep.collect import find_garbage, remove_garbage
    from warehouse.home import require_home

    settings = load_settings()
    require_home(settings.home_path())
    with ExitStack() as stack:
        garbage = find_garbage(_open_scope(settings, stack))
        removed = remove_garbage(garbage) if yes else []
    from extensions.upkeep.garbage import count_garbage

    kinds, gone = count_garbage(garbage.garbage), count_garbage(removed)
    if yes:
        for kind, counts in kinds.items():
            counts["removed"] = gone.get(kind, {}).get("count", 0)
    report = {
        "removed": yes,
        "written_before": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(garbage.before)),
        "kinds": kinds,
        "bytes": sum(counts["bytes"] for counts in kinds.values()),
        "skipped": garbage.skipped,
        "failed": garbage.failed,
    }
    print_json(report) if as_json else _print_collection(report)
    if garbage.skipped or garbage.failed:
        sys.exit(1)


def _open_scope(settings: "Settings", stack: ExitStack) -> "GarbageScope":
    from assets.servers.sandbox.toolchain import find_toolchain
    from extensions.upkeep.collect import GarbageScope
    from extensions.upkeep.policy import GarbageLimits
    from orchestration.runs.instance import open_history
    from warehouse.errors import UnusableInput
    from warehouse.home import find_instance_folder, is_own_instance

    folder = find_instance_folder(settings.state_path())
    instance = None
    if folder is not None:
        try:
            instance = stack.enter_context(open_history(folder))
        except UnusableInput:
            raise
        except Exception as error:  # of Dagster, of a database; its words may hold a password
            found = f"{folder}: Dagster's history cannot be opened ({type(error).__name__})"
            raise UnusableInput(f"{found}: make that folder writable, or run again") from None
    return GarbageScope(
        settings.home_path(),
        settings.state_path(),
        derive_policy(GarbageLimits, get_section(settings, "retention")),
        settings.training.releases,
        time.time(),
        instance,
        find_toolchain,
        folder is not None and is_own_instance(folder, settings.state_path()),
    )


def _print_collection(report: dict[str, Any]) -> None:
    for kind, counts in report["kinds"].items():
        removed = f", {counts['removed']:,} removed" if report["removed"] else ""
        megabytes = counts["bytes"] / 1e6
        print_line(f"{kind:<10} {counts['count']:>7,} {megabytes:>12,.1f} MB{removed}")
    for kind, why in report["skipped"].items():
        print_line(f"{kind:<10} nothing is removed: {why}")
    for kind, why in report["failed"].items():
        print_line(f"{kind:<10} not all could be removed: {why}")
    what = "removed" if report["removed"] else "can go (`toolmill gc --yes` removes them)"
    total = sum(counts["count"] for counts in report["kinds"].values())
    taken = ", except for what was taken down" if "taken" in report["kinds"] else ""
    print_line(
        f"{total:,} things, {report['bytes'] / 1e6:,.1f} MB, {what}; what was written after"
        f" {report['written_before']} stays{taken}"
    )


@app.command()
def takedown(
    name: Annotated[
        str | None, typer.Argument(help="id of a server, a listing or a tool (server::tool)")
    ] = None,
    lift: Annotated[bool, typer.Option("--lift", help="let NAME in again")] = False,
    renew: Annotated[
        bool, typer.Option("--renew", help="apply all take-downs to what came since")
    ] = False,
    by: By = "",
    why: Annotated[str, typer.Option("--why", help="who asked, and why")] = "",
    as_json: AsJson = False,
) -> None:
    """Take down a server or a tool, lift that again, or list what is taken down."""
    from extensions.upkeep.takedowns import (
        describe_tombstone,
        lift_takedown,
        renew_takedowns,
        take_down,
    )
    from orchestration.factories import open_made_warehouse
    from warehouse.storage.takedowns import find_active

    if (renew and name is not None) or (name is None and (lift or by or why)):
        fail("--lift, --by and --why go with NAME, and --renew without one", 2)
    warehouse = open_made_warehouse(load_settings())
    if name is not None:
        rows = [(lift_takedown if lift else take_down)(warehouse, name, by, why)]
    elif renew:
        rows = renew_takedowns(warehouse)
    else:
        rows = [describe_tombstone(tombstone) for tombstone in find_active(warehouse.home).values()]
    if as_json:
        print_json({"takedowns": rows})
        return
    for row in rows:
        reach = ", ".join(f"{count} {part}" for part, count in row["reach"].items() if count)
        print_line(f"{row['verdict']}  {row['name']}  ({row['kind']}; {reach})")
        print_line(f"    {row['at']}  by {row['by']}: {row['why']}")
    if name is None or lift:
        print_line(f"{len(find_active(warehouse.home))} taken down")
        return
    if (rows[0]["by"], rows[0]["why"]) != (by, why):
        print_line("it was taken down before, for the reason above, which stays")
    print_line("nothing reads it from now on; `toolmill gc --yes` removes its bytes")


@app.command()
def backup(
    folder: Annotated[Path, typer.Argument(help="a new folder, or one of an earlier export")],
) -> None:
    """Export pointers and ledger as of one moment, for a file backup of the home to go with.

    Safe while a run goes on."""
    from extensions.upkeep.backup import export_backup
    from warehouse.home import require_home
    from warehouse.storage.files import PointerBroken

    settings = load_settings()
    home = require_home(settings.home_path())
    try:
        print_json(export_backup(home, settings.state_path(), folder, version("toolmill")))
    except (OSError, PointerBroken) as error:
        fail(f"nothing was exported: {' '.join(str(error).split())}", 1)
