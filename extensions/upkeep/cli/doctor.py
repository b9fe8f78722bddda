"""`toolmill doctor`: which invariants of a home hold, what does not, and the command that fixes
it."""

import sys
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import fail, print_json, print_line, require_known

if TYPE_CHECKING:
    from extensions.upkeep.doctor.check import Home, Result

app = typer.Typer(add_completion=False)


@app.command()
def doctor(
    as_json: Annotated[bool, typer.Option("--json", help="one JSON object")] = False,
    everything: Annotated[
        bool, typer.Option("--all", help="read every blob and vector, not a sample")
    ] = False,
    only: Annotated[list[str] | None, typer.Option("--only", help="only these checks")] = None,
) -> None:
    """Check every invariant of the home; reads only, also while a run goes on. Exit 1 where one
    does not hold."""
    from extensions.upkeep.doctor.catalogue import list_checks
    from extensions.upkeep.doctor.check import run_check

    checks = list(list_checks())
    require_known("--only", only, [check.name for check in checks])
    at = _find_home(everything)
    results = []
    for check in checks:
        if not only or check.name in only:
            results.append(run_check(check, at))
            if not as_json:
                _print_result(results[-1])
    broken = sum(len(result.broken) for result in results)
    if as_json:
        made = [{**asdict(result), "holds": not result.broken} for result in results]
        print_json({"home": str(at.home), "healthy": not broken, "checks": made})
    else:
        notes = sum(len(result.findings) for result in results) - broken
        print_line(f"{len(results)} checks, {broken} findings, {notes} notes: {at.home}")
    if broken:
        sys.exit(1)


def _find_home(everything: bool) -> "Home":
    """The configured home, also one of another version. Ends the command where there is none."""
    from extensions.upkeep.doctor.check import Home
    from orchestration.settings.load import load_settings
    from warehouse.home import require_folder

    settings = load_settings()
    home = settings.home.resolve()
    require_folder(home)
    if not home.exists() or all(one.name.startswith(".") for one in home.iterdir()):
        fail(f"{home}: nothing was made there yet; `toolmill run` makes it", 2)
    return Home(home, settings.state_path(), everything)


def _print_result(result: "Result") -> None:
    mark = "FAIL" if result.broken else "note" if result.findings else "ok"
    print_line(f"{mark:<5} {result.name:<13} {result.claim} ({result.n:,} looked at)")
    for finding in result.findings:
        print_line(f"      {finding.thing}: {finding.problem}")
        print_line(f"      -> {finding.fix}")
