"""Scan: how often each rule fires on tools of real servers, and how many tools a second it reads.

    python -m benchmarks.bench_scan

Reads the lists of `smithery/servers.jsonl`, `real-servers/`, `docker-catalogue/` and `mcp-tools/`,
each server's tools as one list beside the names of all other tools of its source, as a nightly run
does, and prints one JSON object. Every tool with a high finding is named, to be read by a person
(docs/benchmarks.md holds what was read). One process, one thread.
"""

import json
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assets.contracts.scan import HIGH, RULES, scan_list
from benchmarks.shared_data import SHARED, require_paths
from warehouse.statistics import wilson_interval

Lists = Iterator[tuple[str, str, list[Any]]]


def main() -> None:
    require_paths(SHARED)
    print(json.dumps(measure_rules(SHARED), indent=1))


def measure_rules(data: Path) -> dict[str, Any]:
    """Hits of each rule by severity in tools, the tools with a high one, and the rate."""
    tools: Counter[str] = Counter()
    hits: dict[str, Counter[str]] = {name: Counter() for name in sorted(RULES)}
    high: list[str] = []
    servers = list(read_lists(data))
    names: dict[str, set[str]] = {source: set() for source, _, _ in servers}
    for source, _, listed in servers:
        names[source].update(str(tool["name"]) for tool in listed)
    started = time.perf_counter()
    for source, server, listed in servers:
        tools[source] += len(listed)
        found = {(item.tool, item.rule, item.severity) for item in scan_list(listed, names[source])}
        for _, rule, severity in found:
            hits[rule][severity] += 1
        alarms = sorted({(tool, rule) for tool, rule, severity in found if severity == HIGH})
        high += [f"{source} {server} {tool} {rule}" for tool, rule in alarms]
    seconds = time.perf_counter() - started
    total, flagged = sum(tools.values()), len({line.rsplit(" ", 1)[0] for line in high})
    return {
        "tools": dict(tools),
        "total": total,
        "tools_per_second": round(total / seconds),
        "high_tools": flagged,
        "high_rate": flagged / total if total else 0.0,
        "high_interval": wilson_interval(flagged, total),
        "high": high,
        "rules": {name: dict(counts) for name, counts in hits.items()},
    }


def read_lists(data: Path) -> Lists:
    """(source, server, its tools) of every record."""
    for line in (data / "smithery" / "servers.jsonl").open(encoding="utf-8"):
        record = json.loads(line)
        yield "smithery", record["qualified_name"], record["tools"] or []
    for path in sorted((data / "real-servers").glob("*.json")):
        pages = json.loads(path.read_text(encoding="utf-8"))["tools_list"]
        yield "real-servers", path.stem, [tool for page in pages for tool in page["tools"]]
    for path in sorted((data / "docker-catalogue" / "servers").glob("*/tools.json")):
        yield "docker-catalogue", path.parent.name, json.loads(path.read_text(encoding="utf-8"))
    for line in (data / "mcp-tools" / "mcp_zero_servers.jsonl").open(encoding="utf-8"):
        record = json.loads(line)
        yield "mcp-tools", record["server_id"], [_rename_fields(tool) for tool in record["tools"]]


def _rename_fields(tool: dict[str, Any]) -> dict[str, Any]:
    return {
        "name": tool["tool_name"],
        "description": tool.get("description"),
        "inputSchema": tool.get("input_schema"),
    }


if __name__ == "__main__":
    main()
