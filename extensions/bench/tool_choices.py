"""MetaTool, LiveMCPBench and MCP-Atlas: requests with the tools that they are for."""

import csv
import io
import re
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assets.contracts.tool_id import ToolId
from extensions.bench.benchmark_items import (
    BenchmarkPlan,
    BenchmarkSet,
    judge_calls,
    judge_first_tool,
    make_item,
)
from warehouse.errors import UnusableInput
from warehouse.sanitize.redact import redact
from warehouse.user_files import parse_json, read_json_lines, read_text

_LONGEST = 4_000  # characters of a description
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


_LISTED = re.compile(r"^\s{0,8}\d{1,3}[.)]\s{0,4}([\w.-]{1,120})\s{0,8}$")
_TOOLS, _TASKS = Path("tools/LiveMCPTool/tools.json"), "annotated_data/all_annotations.json"


def read_live_mcp(plan: BenchmarkPlan) -> BenchmarkSet:
    """LiveMCPBench (https://github.com/icip-cas/LiveMCPBench): its tasks with the tools that their
    annotators used, found among the tools of all its servers. Whether a task is then solved is
    judged by a language model there, and not here. Option tasks: the file of tasks in its folder.
    """
    folder = plan.require_folder()
    tools_file, tasks_file = folder / _TOOLS, folder / plan.options.get("tasks", _TASKS)
    pool: dict[str, dict[str, Any]] = {}
    for entry in _read_rows(tools_file, "name", "tools"):
        for server, listed in entry["tools"].items() if isinstance(entry["tools"], dict) else ():
            for tool in listed.get("tools") or () if isinstance(listed, Mapping) else ():
                tool_id = ToolId(str(server), str(tool["name"]))
                pool.setdefault(str(tool_id), _read_tool(str(tool_id), tool))
    by_name: dict[str, list[str]] = {}
    for name in pool:
        by_name.setdefault(ToolId.parse(name).tool, []).append(name)
    tools, items, left_out = list(pool.values()), [], Counter[str]()
    for task in _read_rows(tasks_file, "task_id", "Question", "Annotator Metadata"):
        text = str((task["Annotator Metadata"] or {}).get("Tools") or "")
        names = [match[1] for line in text.splitlines() if (match := _LISTED.match(line))]
        right = [name for used in dict.fromkeys(names) for name in by_name.get(used, ())]
        if not right:
            left_out["no_listed_tool"] += 1
            continue
        category, item_id = str(task.get("category") or "all"), str(task["task_id"])
        calls = [{"name": name, "arguments": {}} for name in right]
        items.append(make_item(item_id, category, item_id, str(task["Question"]), tools, calls))
    files, counts = (tools_file, tasks_file), dict(left_out)
    return BenchmarkSet("livemcpbench", items, judge_first_tool, ("tool_ok",), files, counts)


def read_mcp_atlas(plan: BenchmarkPlan) -> BenchmarkSet:
    """MCP-Atlas (https://github.com/scaleapi/mcp-atlas): its prompts, right where the first call is
    of a tool of the reference trajectory. --data: its CSV. Option tools: JSON Lines of
    `qualified_name` (as in its tools' names) and `tools`, say of the servers that need no key; a
    task is asked among those of its tools, and left out where none of its trajectory is there. Its
    claims are judged by a language model, and not here.
    """
    path, servers_file = plan.data, Path(plan.options.get("tools", ""))
    if path is None or not path.is_file() or not servers_file.is_file():
        raise UnusableInput(
            "mcp-atlas: expected --data FILE.csv, its tasks, and --option tools=SERVERS.jsonl, the"
            " servers' tools"
        )
    pool = {
        f"{server['qualified_name']}_{tool['name']}": tool
        for _, server in read_json_lines(servers_file)
        for tool in server.get("tools") or ()
    }
    rows = csv.DictReader(io.StringIO(read_text(path), newline=""))
    if not {"TASK", "ENABLED_TOOLS", "PROMPT", "TRAJECTORY"} <= set(rows.fieldnames or ()):
        raise _make_version_error(path, "columns TASK, ENABLED_TOOLS, PROMPT and TRAJECTORY")
    items, left_out = [], Counter[str]()
    for number, row in enumerate(rows, 2):
        where = f"{path}, row {number}"
        enabled = parse_json(row["ENABLED_TOOLS"] or "[]", where)
        steps = parse_json(row["TRAJECTORY"] or "[]", where)
        try:
            called = {
                call["function"]["name"] for step in steps for call in step.get("tool_calls") or ()
            }
            tools = [_read_tool(name, pool[name]) for name in enabled if name in pool]
        except (TypeError, KeyError, AttributeError):
            raise _make_version_error(
                Path(where), "a list of tool names, and of messages with tool_calls"
            ) from None
        calls = [
            {"name": tool["name"], "arguments": {}} for tool in tools if tool["name"] in called
        ]
        if not calls:
            left_out["no_listed_tool"] += 1
            continue
        group = str(calls[0]["name"]).partition("_")[0]
        items.append(make_item(str(row["TASK"]), "all", group, row["PROMPT"] or "", tools, calls))
    files, counts = (path, servers_file), dict(left_out)
    return BenchmarkSet("mcp-atlas", items, judge_first_tool, ("tool_ok",), files, counts)


def _read_rows(path: Path, *names: str) -> list[Mapping[str, Any]]:
    """The objects of a JSON list, each with these fields. Raises UnusableInput."""
    rows = parse_json(read_text(path), path)
    for number, row in enumerate(rows if isinstance(rows, list) else [None], 1):
        if not isinstance(row, Mapping) or not set(names) <= set(row):
            expected = f"a JSON list of objects with {', '.join(names)}; entry {number} is another"
            raise _make_version_error(path, expected)
    return rows


def _read_tool(name: str, tool: Mapping[str, Any]) -> dict[str, Any]:
    schema = tool.get("inputSchema")
    about = redact(str(tool.get("description") or "")[:_LONGEST])
    inputs = schema if isinstance(schema, dict) else _NO_PARAMETERS
    return {"name": name, "description": about, "inputSchema": inputs}
