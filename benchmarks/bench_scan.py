"""Scan: how often each rule fires on tools and answers of real servers, and how fast it reads.

    python -m benchmarks.bench_scan

Tools: `smithery/servers.jsonl`, `real-servers/`, `docker-catalogue/` and `mcp-tools/`, each
server's as one list beside the names of all other tools of its source, as a nightly run does.
Answers, each as a call's result: `api-bank/`, the sample pages of `marketplaces/`, and what a file
or fetch server would hand on of the packages installed here. All with a high finding are named, to
be read by a person (docs/benchmarks.md holds what was read). One process, one thread.
"""

import json
import sysconfig
import time
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from assets.contracts.scan import HIGH, RULES, scan_list
from assets.servers.calls.content import check_result
from assets.servers.calls.result import CallResult
from benchmarks.shared_data import SHARED, require_paths
from warehouse.statistics import wilson_interval

Lists = Iterator[tuple[str, str, list[Any]]]
_LONGEST = 262_144  # characters of one text block, as calls hand them on


def main() -> None:
    require_paths(SHARED)
    packages = Path(sysconfig.get_paths()["purelib"])
    sources = {
        "api-bank": read_api_answers(SHARED),
        "pages": read_files((SHARED / "marketplaces").rglob("*")),
        "package texts": read_files(packages.glob("*.dist-info/METADATA")),
        "python files": read_files(sorted(packages.rglob("*.py"))[::20]),
    }
    answers = {name: measure_alarms(texts) for name, texts in sources.items()}
    print(json.dumps({"tools": measure_rules(SHARED), "answers": answers}, indent=1))


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


def measure_alarms(texts: Iterator[tuple[str, str]]) -> dict[str, Any]:
    """Alarms and changes over (where, text) of honest results of one text each."""
    count = size = 0
    high: list[str] = []
    changed: list[str] = []
    seconds = 0.0
    for where, text in texts:
        content = [{"type": "text", "text": text[:_LONGEST]}]
        began = time.perf_counter()
        made, _ = check_result(CallResult("ok", content), "read", {}, own_words=True)
        seconds += time.perf_counter() - began
        count, size = count + 1, size + len(content[0]["text"])
        high += [f"{where} {rule}" for rule in made.alarming]
        changed += [where] if made.content != content else []
    flagged = len({line.rsplit(" ", 1)[0] for line in high})
    return {
        "results": count,
        "characters": size,
        "characters_per_second": round(size / seconds) if seconds else 0,
        "high": flagged,
        "high_interval": wilson_interval(flagged, count),
        "changed": changed,
        "alarms": high,
    }


def read_api_answers(data: Path) -> Iterator[tuple[str, str]]:
    """(file and line, answer) of every API answer of API-Bank's dialogues."""
    for path in sorted((data / "api-bank" / "lv1-lv2-samples").rglob("*.jsonl")):
        for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
            turn = json.loads(line)
            if turn["role"] == "API":
                yield f"{path.name}:{number}", json.dumps(turn["result"], ensure_ascii=False)


def read_files(paths: Any) -> Iterator[tuple[str, str]]:
    """(name, text) of each file that is text."""
    for path in sorted(paths):
        if path.is_file():
            try:
                text = path.read_text(encoding="utf-8")
            except UnicodeDecodeError:
                continue
            yield f"{path.parent.name}/{path.name}", text


if __name__ == "__main__":
    main()
