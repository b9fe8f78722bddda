"""The command `toolmill bfcl`: BFCL's verdict on calls, as its own checker gives it."""

import sys
from pathlib import Path
from typing import Annotated, Any

import typer

from assets.contracts.match.call_files import (
    find_schema,
    parse_calls,
    read_calls,
    read_json,
    read_rows,
    read_schemas,
)
from assets.contracts.match.match import MatchResult
from extensions.bench.bfcl.data import is_truth, read_bfcl
from extensions.bench.bfcl.values import LANGUAGES
from extensions.bench.bfcl.verdict import build_truth, match_bfcl
from orchestration.cli.contracts import print_verdict
from orchestration.cli.terminal import fail, print_json, print_line
from warehouse.errors import UnusableInput

app = typer.Typer(add_completion=False)

_USAGE = (
    "toolmill bfcl --schema S --expected E --called C --json,"
    " or: toolmill bfcl --data DIR --calls CALLS.jsonl --json"
)


@app.command()
def bfcl(
    schema: Annotated[
        Path | None,
        typer.Option(help="contract, input schema, OpenAI function; or a list or mapping of them"),
    ] = None,
    expected: Annotated[
        Path | None, typer.Option(help="BFCL's truth; or {name, arguments}, or a list of them")
    ] = None,
    called: Annotated[
        Path | None, typer.Option(help="{name, arguments}, or a list of them (parallel calls)")
    ] = None,
    language: Annotated[str, typer.Option(help="python, java or javascript values")] = "python",
    data: Annotated[Path | None, typer.Option(help="folder of BFCL-format files")] = None,
    calls: Annotated[
        Path | None,
        typer.Option(help="with --data: JSON Lines of {id, calls: [{name, arguments}]}"),
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="JSON instead of a table")] = False,
) -> None:
    """Judge called tool calls as BFCL's checker does. Exit 0 when they match, 1 when they do not, 2
    when a file or option is wrong; with --data every row has its own verdict and the exit is 0."""
    files, rows = (schema, expected, called), (data, calls)
    if None not in files and rows == (None, None):
        result = match_files(schema, expected, called, language)  # type: ignore[arg-type]
        print_verdict(result, as_json)
        sys.exit(0 if result.match else 1)
    if None in rows or files != (None, None, None):
        fail(f"{_find_wrong_options(files, rows)}; usage: {_USAGE}", 2)
    _print_rows(*match_rows(data, calls), as_json)  # type: ignore[arg-type]


def match_files(schema: Path, expected: Path, called: Path, language: str) -> MatchResult:
    """BFCL's verdict on the calls of three files; the expected one may hold its truth. Raises
    UnusableInput."""
    if language not in LANGUAGES:
        raise UnusableInput(f"--language {language}: expected {', '.join(LANGUAGES)}")
    schemas, truth = read_schemas(schema), _read_truth(expected)
    names = dict.fromkeys(next(iter(call)) for call in truth)
    docs = [{"name": name, "parameters": find_schema(schemas, name, schema)} for name in names]
    calls, _ = read_calls(called, any_arguments=True)
    shape = "simple" if len(truth) == 1 else "parallel"
    return match_bfcl(docs, truth, calls, language=language, category=shape)


def match_rows(data: Path, calls: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """({id, match, error_kind} of each row of calls, in order; a line per BFCL file left out).

    Raises UnusableInput before any verdict.
    """
    skipped: list[str] = []
    items = {item.id: item for item in read_bfcl(data, skipped)}
    rows = read_rows(calls)
    for line, item_id, _ in rows:
        if item_id not in items:
            raise UnusableInput(
                f"{calls}, line {line}: no item {item_id[:80]!r} in {data}; expected an id like"
                f" {next(iter(items), 'simple_python_0')!r}, of one of the categories read there"
            )
    verdicts = []
    for _, item_id, row_calls in rows:
        item = items[item_id]
        verdict = match_bfcl(
            item.functions, item.truth, row_calls, language=item.language, category=item.category
        )
        verdicts.append({"id": item_id, "match": verdict.match, "error_kind": verdict.error_kind})
    return verdicts, skipped


def _read_truth(path: Path) -> list[dict[str, Any]]:
    """BFCL's truth, as written or made of expected calls."""
    value = read_json(path)
    if isinstance(value, dict) and "ground_truth" in value:
        value = value["ground_truth"]
    truth = [value] if isinstance(value, dict) else value
    if is_truth(truth) and truth:
        return truth
    return [build_truth(call) for call in parse_calls(value, path)[0]]


def _find_wrong_options(files: tuple[Any, ...], rows: tuple[Any, ...]) -> str:
    by_file = dict(zip(("--schema", "--expected", "--called"), files, strict=True))
    by_row = dict(zip(("--data", "--calls"), rows, strict=True))
    if any(by_file.values()) and any(by_row.values()):
        return "found options of both forms"
    options = by_row if any(by_row.values()) else by_file
    return f"found no {' and no '.join(name for name, path in options.items() if path is None)}"


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
