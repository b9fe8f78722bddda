"""The command `toolmill match`: does a call equal the expected one?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orchestration.cli.terminal import print_json, print_line

if TYPE_CHECKING:
    from assets.contracts.match.match import MatchResult, ParallelResult

app = typer.Typer(add_completion=False)


@app.command()
def match(
    schema: Annotated[
        Path,
        typer.Option(help="contract, input schema, OpenAI function; or a list or mapping of them"),
    ],
    expected: Annotated[Path, typer.Option(help="{name, arguments}, or a list of them")],
    called: Annotated[
        Path, typer.Option(help="{name, arguments}, or a list of them (parallel calls)")
    ],
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table")] = False,
) -> None:
    """Compare called tool calls with the expected ones. Exit 0 when they match, 1 when they do not,
    2 when a file or option is wrong."""
    from assets.contracts.match.call_files import match_files

    result = match_files(schema, expected, called)
    print_verdict(result, as_json)
    sys.exit(0 if result.match else 1)


def print_verdict(result: "MatchResult | ParallelResult", as_json: bool) -> None:
    """The verdict as JSON, or as a table of parameters for each call."""
    from assets.contracts.match.match import MatchResult, render_result

    if as_json:
        print_json(render_result(result))
        return
    if isinstance(result, MatchResult):
        _print_parameters(result.per_parameter, "")
    else:
        for call in result.calls:
            where = "called too much" if call.expected is None else f"expected {call.expected}"
            by = "nobody" if call.called is None else f"call {call.called}"
            print_line(f"{call.name[:80]} ({where}, by {by}): {call.error_kind or 'match'}")
            _print_parameters(call.per_parameter, "  ")
    word = "match" if result.match else f"no match: {result.error_kind}"
    print_line(f"{word} (names F1 {result.name_f1:.2f}, values F1 {result.value_f1:.2f})")


def _print_parameters(verdicts: dict[str, str], indent: str) -> None:
    width = min(40, max(map(len, verdicts), default=0))
    for name, verdict in verdicts.items():
        print_line(f"{indent}{name[:80]:<{width}}  {verdict}")
