"""MetaTool, LiveMCPBench and MCP-Atlas: requests with the tools that they are for."""

import csv
import io
from collections.abc import Iterator, Mapping
from pathlib import Path

from extensions.bench.benchmark_items import (
    BenchmarkPlan,
    BenchmarkSet,
    judge_calls,
    make_item,
)
from warehouse.errors import UnusableInput
from warehouse.user_files import parse_json, read_text

_NO_PARAMETERS = {"type": "object", "properties": {}}


def read_metatool(plan: BenchmarkPlan) -> BenchmarkSet:
    """MetaTool (https://arxiv.org/abs/2310.03128): queries for one tool, and for two.
    Its tools have no parameters, so the choice alone is judged."""
    folder = plan.require_folder()
    about_file, single_file = folder / "plugin_des.json", folder / "all_clean_data.csv"
    several_file = folder / "multi_tool_query_golden.json"
    about = parse_json(read_text(about_file), about_file)
    if not isinstance(about, Mapping) or not all(isinstance(text, str) for text in about.values()):
        raise _make_version_error(about_file, "one object of tool names and descriptions")
    pool = [
        {"name": str(name), "description": text, "inputSchema": _NO_PARAMETERS}
        for name, text in about.items()
    ]
    items = []
    for number, text, names in (*_read_queries(single_file), *_read_pairs(several_file)):
        if absent := [name for name in names if name not in about]:
            raise _make_version_error(
                about_file, f"each tool of the queries; {absent[0]!r:.60} is not in it"
            )
        category = "one tool" if len(names) == 1 else "two tools"
        calls = [{"name": name, "arguments": {}} for name in names]
        items.append(make_item(f"{category}:{number}", category, names[0], text, pool, calls))
    files = (about_file, single_file, several_file)
    return BenchmarkSet("metatool", items, judge_calls, ("tool_ok", "parsed"), files)


def _make_version_error(path: Path, expected: str) -> UnusableInput:
    return UnusableInput(
        f"{path}: expected {expected}; take all files from one version of the benchmark"
    )


def _read_queries(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
    if not {"Query", "Tool"} <= set(rows.fieldnames or ()):
        raise _make_version_error(path, "a CSV with columns Query and Tool")
    for number, row in enumerate(rows, 2):
        yield number, row["Query"] or "", [row["Tool"] or ""]


def _read_pairs(path: Path) -> Iterator[tuple[int, str, list[str]]]:
    rows = parse_json(read_text(path), path)
    expected = 'a JSON list of {"query": text, "tool": [two names]}'
    if not isinstance(rows, list):
        raise _make_version_error(path, expected)
    for number, row in enumerate(rows, 1):
        query = row.get("query") if isinstance(row, Mapping) else None
        names = row.get("tool") if isinstance(row, Mapping) else None
        if not isinstance(query, str) or not isinstance(names, list) or len(set(names)) < 2:
            raise _make_version_error(path, f"{expected}; entry {number} is another")
        yield number, query, [str(name) for name in names]
