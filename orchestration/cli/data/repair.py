"""The command `toolmill repair`: does a call fit, and if not, what makes it fit?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import print_json, print_line

if TYPE_CHECKING:
    from serving.repair.revision import Revise

app = typer.Typer(add_completion=False)


@app.command()
def repair(
    call: Annotated[Path, typer.Argument(help="a call in any vendor's JSON, or a model's text")],
    tools: Annotated[Path, typer.Option(help="the request's tools: OpenAI, Anthropic, MCP")],
    conversation: Annotated[
        Path | None, typer.Option(help="the request's messages: what values they hold")
    ] = None,
    history: Annotated[
        Path | None, typer.Option(help="history.json, or a folder with a served index")
    ] = None,
    revise: Annotated[
        str | None,
        typer.Option(
            help="a model for what rules leave: champion, a sidecar's name or folder,"
            " endpoint:ROLE_or_MODEL"
        ),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="a line of JSON for each call")] = False,
) -> None:
    """Repair a draft call, or ask one precise question. Exit 0 when every call of the file fits as
    it was or is repaired, 1 when one is left as it was, 2 where a file is wrong."""
    from serving.repair.ladder import repair_files
    from serving.repair.report import ABSTAINED

    model = _open_model(revise) if revise else None
    reports = repair_files(call, tools, conversation, history, model)
    for report in reports:
        if as_json:
            print_json(report.as_dict())
            continue
        print_line(f"{report.name[:80] or 'no call'}: {report.outcome} ({report.ms:.1f} ms)")
        for rung in report.rungs if report.changed else ():
            for change in rung.what:
                print_line(f"  {rung.rung:<8}  {change}")
        if report.reason is not None:
            print_line(f"  {report.reason.kind}: {report.reason.question}")
        if report.changed:
            print_line(report.text)
    sys.exit(1 if any(report.outcome == ABSTAINED for report in reports) else 0)


def _open_model(name: str) -> "Revise":
    from orchestration.cli.models.predictors import open_reviser
    from orchestration.settings.load import load_settings

    return open_reviser(load_settings(), name)
