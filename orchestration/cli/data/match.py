"""The command `toolmill match`: is a call the expected one, by our rules or by BFCL's?"""

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from orchestration.cli.terminal import fail, print_json, print_line

if TYPE_CHECKING:
    from assets.contracts.match.result import MatchResult, ParallelResult

app = typer.Typer(add_completion=False)

_USAGE = (
    "toolmill match --schema S --expected E --called C [--bfcl] --json,"
    " or: toolmill match --bfcl --data DIR --calls CALLS.jsonl --json"
)


@app.command()
def match(
    schema: Annotated[
        Path | None,
        typer.Option(help="contract, input schema, OpenAI function; or a list or mapping of them"),
    ] = None,
    expected: Annotated[
        Path | None, typer.Option(help="{name, arguments} or a list of them; or BFCL's truth")
    ] = None,
    called: Annotated[
        Path | None, typer.Option(help="{name, arguments}, or a list of them (parallel calls)")
    ] = None,
    bfcl: Annotated[bool, typer.Option("--bfcl", help="reproduce BFCL's verdict")] = False,
    language: Annotated[
        str, typer.Option(help="with --bfcl: python, java or javascript values")
    ] = "python",
    data: Annotated[
        Path | None, typer.Option(help="with --bfcl: a folder of BFCL-format files")
    ] = None,
    calls: Annotated[
        Path | None,
        typer.Option(help="with --data: JSON Lines of {id, calls: [{name, arguments}]}"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table")] = False,
) -> None:
    """Compare called tool calls with the expected ones. Exit 0 when they match, 1 when not, 2 where
    a file or option is wrong; over --data every row has its own verdict and the exit is 0."""
    from assets.contracts.match.adhoc import match_files, match_rows

    files, over = (schema, expected, called), (data, calls)
    if None not in files and over == (None, None):
        result = match_files(schema, expected, called, bfcl, language)  # type: ignore[arg-type]
    elif None not in over and files == (None, None, None) and bfcl:
        _print_rows(*match_rows(data, calls), as_json)  # type: ignore[arg-type]
        return
    else:
        fail(f"{_find_wrong(files, over, bfcl)}; usage: {_USAGE}", 2)
    _print_one(result, as_json)
    sys.exit(0 if result.match else 1)


def _find_wrong(files: tuple[Any, ...], over: tuple[Any, ...], bfcl: bool) -> str:
    """What is wrong with the options, in a few words."""
    given = dict(zip(("--schema", "--expected", "--called"), files, strict=True))
    rows = dict(zip(("--data", "--calls"), over, strict=True))
    some, more = (any(options.values()) for options in (given, rows))
    if some and more:
        return "found options of both forms"
    if more and not bfcl:
        return "found --data without --bfcl"
    absent = [name for name, value in (rows if more else given).items() if value is None]
    return f"found no {' and no '.join(absent)}"


def _print_one(result: "MatchResult | ParallelResult", as_json: bool) -> None:
    from assets.contracts.match.result import MatchResult, render_result

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


def _print_rows(rows: list[dict[str, Any]], skipped: list[str], as_json: bool) -> None:
    for line in skipped:
        print_line(f"left out: {line}", err=True)
    for row in rows:
        if as_json:
            print_json(row)
        else:
            print_line(f"{row['id'][:80]}  {row['error_kind'] or 'match'}")
    matching = sum(row["match"] for row in rows)
    print_line(f"{matching} of {len(rows)} rows match", err=True)
