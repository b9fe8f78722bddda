"""Reading a folder of BFCL-format files: what is asked, the functions' docs, and the truth.

The categories judged by AST match and by (ir)relevance are read; all others (several turns,
executable calls, SQL, web search, memory) need BFCL's own machines and are skipped by name.
"""

import re
import sys
from collections.abc import Iterator
from dataclasses import dataclass
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
from extensions.bench.bfcl_values import LANGUAGES
from extensions.bench.bfcl_verdict import build_truth, match_bfcl
from orchestration.cli.contracts import print_verdict
from orchestration.cli.terminal import fail, print_json, print_line
from warehouse.errors import UnusableInput
from warehouse.user_files import read_json_lines

_NAME = re.compile(r"^BFCL_v(\d+)_(\w+)\.json$")
_AST = {
    *("simple", "simple_python", "java", "simple_java", "javascript", "simple_javascript"),
    *("multiple", "parallel", "parallel_multiple"),
    *("live_simple", "live_multiple", "live_parallel", "live_parallel_multiple"),
}
_RELEVANCE = {"irrelevance", "live_irrelevance", "live_relevance", "relevance"}
TRUTHS = "possible_answer"
_EXPECTED = (
    "expected a folder with BFCL_v4_<category>.json (or v3) and possible_answer/;"
    " it comes with the PyPI package bfcl-eval, as bfcl_eval/data"
)


@dataclass(frozen=True)
class BfclItem:
    """One question: its messages, the functions' docs as they stand in the file, and per expected
    call `{name: {parameter: [allowed values]}}` ([] where the category asks only whether to call).
    """

    id: str
    category: str
    messages: list[dict[str, Any]]
    functions: list[dict[str, Any]]
    truth: list[dict[str, Any]]

    @property
    def language(self) -> str:
        """python, java or javascript: how the values of calls are written."""
        last = self.category.rpartition("_")[2]
        return last if last in ("java", "javascript") else "python"


def read_bfcl(folder: Path, skipped: list[str] | None = None) -> list[BfclItem]:
    """The items of every AST and relevance category in a folder, by category, in file order.

    skipped: a line per file that was left out, and why, is added to it. Raises UnusableInput.
    """
    left_out = [] if skipped is None else skipped
    files = _find_files(folder, left_out)
    items = [
        item for category, path in sorted(files.items()) for item in _read_items(category, path)
    ]
    seen: dict[str, str] = {}
    for item in items:
        if item.id in seen:
            where = f"{seen[item.id]} and {item.category}"
            raise UnusableInput(
                f"{folder}: id {item.id!r} stands in {where}; an id names one item: remove one"
            )
        seen[item.id] = item.category
    return items


def _find_files(folder: Path, left_out: list[str]) -> dict[str, Path]:
    """Category -> its file of the newest version."""
    if not folder.is_dir():
        found = "a file" if folder.exists() else "no such folder"
        raise UnusableInput(f"{folder}: {found}; {_EXPECTED}")
    newest: dict[str, tuple[int, Path]] = {}
    for path in sorted(folder.iterdir()):
        match = _NAME.match(path.name)
        if not match:
            continue
        version, category = int(match[1]), match[2]
        if category not in _AST | _RELEVANCE:
            left_out.append(f"{path.name}: {category} is not judged by AST match")
        elif category in newest and newest[category][0] > version:
            left_out.append(f"{path.name}: a newer version stands beside it")
        else:
            if category in newest:
                left_out.append(f"{newest[category][1].name}: a newer version stands beside it")
            newest[category] = version, path
    if not newest:
        inside = folder / "data"
        hint = f"; {inside} looks like it" if inside.is_dir() else ""
        raise UnusableInput(
            f"{folder}: no BFCL file that is judged by AST match; {_EXPECTED}{hint}"
        )
    return {category: path for category, (_, path) in newest.items()}


def _read_items(category: str, path: Path) -> Iterator[BfclItem]:
    rows = list(read_json_lines(path))
    truths = [[] for _ in rows] if category in _RELEVANCE else _read_truths(path, rows)
    for (line, row), truth in zip(rows, truths, strict=True):
        docs = row.get("function", row.get("functions"))
        docs = [docs] if isinstance(docs, dict) else docs
        wanted = 'expected {"id", "question", "function": [{"name", "parameters"}]}'
        if not isinstance(row.get("id"), str):
            raise UnusableInput(f"{path}, line {line}: found no text as id; {wanted}")
        if not isinstance(docs, list) or not all(isinstance(doc, dict) for doc in docs):
            raise UnusableInput(
                f"{path}, line {line} ({row['id']}): no list of functions; {wanted}"
            )
        yield BfclItem(row["id"], category, _read_messages(row.get("question")), docs, truth)


def _read_truths(path: Path, rows: list[tuple[int, dict[str, Any]]]) -> list[list[dict[str, Any]]]:
    """The truth of each row: by id, or by place where the file counts otherwise, as BFCL does."""
    truth_path = path.parent / TRUTHS / path.name
    if not truth_path.is_file():
        raise UnusableInput(
            f"{truth_path}: no such file; each AST category needs its truth there: copy it beside"
            f" {path.name}, or remove that"
        )
    truths = list(read_json_lines(truth_path))
    by_id = {row.get("id"): _check_truth(truth_path, line, row) for line, row in truths}
    if {row.get("id") for _, row in rows} <= by_id.keys():
        return [by_id[row.get("id")] for _, row in rows]
    if len(truths) != len(rows):
        absent = next(row.get("id") for _, row in rows if row.get("id") not in by_id)
        raise UnusableInput(
            f"{truth_path}: no truth for {absent!r} ({len(truths)} truths, {len(rows)} questions);"
            " take both files from one version of BFCL"
        )
    return [_check_truth(truth_path, line, row) for line, row in truths]


def _check_truth(path: Path, line: int, row: dict[str, Any]) -> list[dict[str, Any]]:
    truth = row.get("ground_truth")
    truth = [truth] if isinstance(truth, dict) else truth
    if not isinstance(truth, list) or not is_truth(truth):
        raise UnusableInput(
            f"{path}, line {line}: found no ground_truth;"
            ' expected [{"function": {"parameter": [allowed values]}}]'
        )
    return truth


def is_truth(value: Any) -> bool:
    """Whether this is BFCL's form of the expected calls."""
    return isinstance(value, list) and all(
        isinstance(call, dict)
        and len(call) == 1
        and all(isinstance(allowed, dict) for allowed in call.values())
        for call in value
    )


def _read_messages(question: Any) -> list[dict[str, Any]]:
    """The messages of the first turn, in any version's form."""
    if isinstance(question, str):
        return [{"role": "user", "content": question}]
    while isinstance(question, list) and question and isinstance(question[0], list):
        question = question[0]
    return (
        [item for item in question if isinstance(item, dict)] if isinstance(question, list) else []
    )


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
