"""`toolmill match`: files in, verdicts out."""

from pathlib import Path
from typing import Any

from assets.contracts.match.files import (
    Schemas,
    parse_calls,
    read_calls,
    read_json,
    read_rows,
    read_schemas,
)
from assets.contracts.match.match import match_call, match_parallel
from assets.contracts.match.result import MatchResult, ParallelResult
from extensions.bench.bfcl.data import is_truth, read_bfcl
from extensions.bench.bfcl.values import LANGUAGES
from extensions.bench.bfcl.verdict import build_truth, match_bfcl
from warehouse.errors import UnusableInput


def match_files(
    schema: Path, expected: Path, called: Path, bfcl: bool = False, language: str = "python"
) -> MatchResult | ParallelResult:
    """The verdict on the calls of three files: one call each, or several made at once.

    bfcl: BFCL's verdict; the expected file may then hold its truth. Raises UnusableInput.
    """
    if language not in LANGUAGES:
        raise UnusableInput(f"--language {language}: expected {', '.join(LANGUAGES)}")
    schemas = read_schemas(schema)
    if bfcl:
        truth = _read_truth(expected)
        names = [next(iter(one)) for one in truth]
        docs = [{"name": name, "parameters": _find_schema(schemas, name, schema)} for name in names]
        calls, _ = read_calls(called, any_arguments=True)
        docs = list({doc["name"]: doc for doc in docs}.values())
        shape = "simple" if len(truth) == 1 else "parallel"
        return match_bfcl(docs, truth, calls, language=language, category=shape)
    wanted, several = read_calls(expected)
    calls, also = read_calls(called, any_arguments=True)
    named = {call["name"]: _find_schema(schemas, call["name"], schema) for call in wanted}
    if several or also:
        return match_parallel(named, wanted, calls)
    return match_call(named[wanted[0]["name"]], wanted[0], calls[0])


def match_rows(data: Path, calls: Path) -> tuple[list[dict[str, Any]], list[str]]:
    """({id, match, error_kind} of each row of calls, in order; a line per BFCL file left out).

    Raises UnusableInput before any verdict.
    """
    skipped: list[str] = []
    items = {item.id: item for item in read_bfcl(data, skipped)}
    rows = read_rows(calls)
    for line, item, _ in rows:
        if item not in items:
            raise UnusableInput(
                f"{calls}, line {line}: no item {item[:80]!r} in {data}; expected an id like"
                f" {next(iter(items), 'simple_python_0')!r}, of one of the categories read there"
            )
    out = []
    for _, name, made in rows:
        item = items[name]
        verdict = match_bfcl(
            item.functions, item.truth, made, language=item.language, category=item.category
        )
        out.append({"id": name, "match": verdict.match, "error_kind": verdict.error_kind})
    return out, skipped


def _read_truth(path: Path) -> list[dict[str, Any]]:
    """BFCL's truth, as it stands or made of expected calls."""
    value = read_json(path)
    if isinstance(value, dict) and "ground_truth" in value:
        value = value["ground_truth"]
    as_list = [value] if isinstance(value, dict) else value
    if is_truth(as_list) and as_list:
        return as_list
    return [build_truth(call) for call in parse_calls(value, path)[0]]


def _find_schema(schemas: Schemas, name: str, path: Path) -> Any:
    found = schemas.of(name)
    if found is None:
        known = ", ".join(sorted(schemas.named)[:8]) or "none"
        raise UnusableInput(
            f"{path}: no tool {name[:80]!r}, which a call is expected of; it has {known[:300]};"
            " give that tool's contract, or an input schema alone"
        )
    return found
