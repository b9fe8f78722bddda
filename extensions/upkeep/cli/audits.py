"""`toolmill audits`: what is expected of every table, as one page."""

import typer

from orchestration.cli.terminal import print_json
from orchestration.settings.load import load_settings

app = typer.Typer(add_completion=False)


@app.command()
def audits() -> None:
    """Write the page of expectations, rules and verdicts of every asset, and the suites of Great
    Expectations beside it; the asset `report` writes it, too."""
    from orchestration.runs.fork_server import silence_warnings
    from warehouse.home import require_home

    home = require_home(load_settings().home_path())
    silence_warnings()
    import orchestration.definitions  # noqa: F401  (declares every audit)
    from training.reporting.audits import write_audits
    from warehouse.publish import list_declared_audits

    declared = list_declared_audits()
    path = write_audits(home, declared)
    expected = sum(len(one.expectations) for one in declared)
    rules = sum(len(one.rules) for one in declared)
    counts = {"assets": len(declared), "expectations": expected, "rules": rules}
    print_json({"page": str(path), **counts})
