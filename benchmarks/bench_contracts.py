"""Contracts: tools/s of canonicalisation and of the diff, against plain peers in the same run.

    python benchmarks/bench_contracts.py [--tools 12608] [--rounds 3] [--data servers.jsonl]

The list is generated from a fixed seed in the measured shape of a large marketplace, or read from
`--data` (one server a line, each with `tools`; records without `inputSchema` get one from their
`parameters`). Canonicalisation stands beside `json.dumps(sort_keys=True)` and SHA-256, which is no
contract: it takes `$schema`, white space and the order of `required` for changes. The diff stands
beside a comparison by name that lists the top-level keys that differ, with no class and no renames.
The second day changes 5% of the tools: texts, bounds, types, arguments, names. The best of the
rounds is told, each list in one process and one thread.
"""

import argparse
import copy
import hashlib
import json
import time
from collections.abc import Callable
from pathlib import Path
from random import Random
from typing import Any

from assets.contracts.canonical import contract, contract_digest
from assets.contracts.history.tool_diff import diff

Tool = dict[str, Any]
WORDS = (
    *("search", "list", "create", "update", "delete", "fetch", "send", "read", "write", "find"),
    *("item", "page", "order", "user", "file", "event", "message", "project", "issue", "invoice"),
    *("weather", "city", "price", "chart", "model", "image", "the", "a", "of", "by", "with", "for"),
    *("and", "optional", "default", "returns", "given", "all", "one", "new", "existing", "short"),
)
KINDS = (*("string",) * 12, *("number",) * 3, *("integer", "boolean") * 2, "array", "object")
CHANGED = 0.05


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--tools", type=int, default=12_608)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--data", type=Path, help="a JSON Lines file of servers")
    options = parser.parse_args()
    servers = read(options.data) if options.data else made_up(options.tools, Random(4))
    later = [next_day(tools, Random(i)) for i, tools in enumerate(servers)]
    count = sum(map(len, servers))
    same = copy.deepcopy(servers)
    stored = [[contract(tool) for tool in tools] for tools in servers]
    stored_same = copy.deepcopy(stored)
    stored_later = [[contract(tool) for tool in tools] for tools in later]
    told = (
        ("json.dumps(sort_keys) + SHA-256", lambda: [plain_digest(t) for s in servers for t in s]),
        ("contract", lambda: [contract(t) for s in servers for t in s]),
        ("contract_digest", lambda: [contract_digest(t) for s in servers for t in s]),
        ("naive comparison, same day", lambda: over(naive, servers, same)),
        ("diff, same day", lambda: over(diff, servers, same)),
        ("diff, same day, contracts as stored", lambda: over(diff, stored, stored_same)),
        ("naive comparison, next day", lambda: over(naive, servers, later)),
        ("diff, next day", lambda: over(diff, servers, later)),
        ("diff, next day, contracts as stored", lambda: over(diff, stored, stored_later)),
    )
    seconds = {name: best(work, options.rounds) for name, work in told}
    report(seconds, count, len(servers))
    print(f"\nchanges found on the second day: {classes(servers, later)}")


def best(work: Callable[[], Any], rounds: int) -> float:
    times = []
    for _ in range(rounds):
        begun = time.perf_counter()
        work()
        times.append(time.perf_counter() - begun)
    return min(times)


def report(seconds: dict[str, float], count: int, servers: int) -> None:
    print(f"{count:,} tools of {servers:,} servers\n")
    print("| what | tools/s | seconds | times its peer |")
    print("| --- | ---: | ---: | ---: |")
    peer = 0.0
    for name, took in seconds.items():
        if name.startswith(("json", "naive")):
            peer = took
        print(f"| {name} | {count / took:,.0f} | {took:.2f} | {took / peer:.1f} |")


def plain_digest(tool: Tool) -> str:
    return hashlib.sha256(json.dumps(tool, sort_keys=True).encode()).hexdigest()


def naive(old: list[Tool], new: list[Tool]) -> list[tuple[str, list[str]]]:
    before, after = {t["name"]: t for t in old}, {t["name"]: t for t in new}
    return [
        (name, [k for k in a.keys() | b.keys() if a.get(k) != b.get(k)])
        for name in before.keys() | after.keys()
        for a, b in [(before.get(name, {}), after.get(name, {}))]
        if a != b
    ]


def over(compare: Callable[..., Any], old: list[list[Tool]], new: list[list[Tool]]) -> int:
    return sum(len(compare(a, b)) for a, b in zip(old, new, strict=True))


def classes(old: list[list[Tool]], new: list[list[Tool]]) -> dict[str, int]:
    found: dict[str, int] = {}
    for before, after in zip(old, new, strict=True):
        for change in diff(before, after):
            kind = "renamed" if change.renamed_from else change.cls
            found[kind] = found.get(kind, 0) + 1
    return dict(sorted(found.items()))


def read(path: Path) -> list[list[Tool]]:
    servers = []
    with path.open(encoding="utf-8") as lines:
        for line in lines:
            servers.append([_usable(tool) for tool in json.loads(line)["tools"] or []])
    return [tools for tools in servers if tools]


def _usable(tool: Tool) -> Tool:
    if tool.get("inputSchema"):
        return tool
    listed = [p for p in tool.get("parameters") or [] if isinstance(p.get("name"), str)]
    schema = {
        "type": "object",
        "properties": {p["name"]: {"type": p.get("type", "string")} for p in listed},
        "required": [p["name"] for p in listed if p.get("required")],
    }
    kept = {key: value for key, value in tool.items() if key != "parameters"}
    return {**kept, "inputSchema": schema}


def made_up(count: int, rng: Random) -> list[list[Tool]]:
    servers: list[list[Tool]] = []
    while count > 0:
        size = min(count, max(1, int(rng.lognormvariate(1.7, 0.9))))
        servers.append([_tool(rng, i) for i in range(size)])
        count -= size
    return servers


def _tool(rng: Random, number: int) -> Tool:
    names = [f"{rng.choice(WORDS)}_{i}" for i in range(rng.choice((0, 1, 1, 2, 2, 3, 4, 6, 10)))]
    return {
        "name": f"{rng.choice(WORDS)}_{rng.choice(WORDS)}_{number}",
        "description": _text(rng, rng.choice((6, 12, 20, 60))),
        "inputSchema": {
            "$schema": "http://json-schema.org/draft-07/schema#",
            "type": "object",
            "properties": {name: _parameter(rng, 0) for name in names},
            "required": [name for name in names if rng.random() < 0.5],
            **({"additionalProperties": False} if rng.random() < 0.4 else {}),
        },
        "annotations": {"readOnlyHint": True} if rng.random() < 0.1 else None,
    }


def _parameter(rng: Random, depth: int) -> dict[str, Any]:
    schema: dict[str, Any] = {"type": rng.choice(KINDS)}
    if rng.random() < 0.8:
        schema["description"] = _text(rng, 8)
    if schema["type"] == "array":
        schema["items"] = _parameter(rng, depth + 1) if depth < 2 else {"type": "string"}
    elif schema["type"] == "object" and depth < 2:
        schema["properties"] = {rng.choice(WORDS): _parameter(rng, depth + 1) for _ in range(3)}
    elif schema["type"] in ("number", "integer") and rng.random() < 0.4:
        schema |= {"minimum": 1, "maximum": rng.choice((10, 50, 100)), "default": 10}
    elif rng.random() < 0.15:
        schema["enum"] = rng.sample(WORDS, 4)
    return schema


def _text(rng: Random, words: int) -> str:
    return " ".join(rng.choices(WORDS, k=words)).capitalize() + "."


def next_day(tools: list[Tool], rng: Random) -> list[Tool]:
    out = []
    for tool in tools:
        later = copy.deepcopy(tool)
        if rng.random() < CHANGED:
            properties = later["inputSchema"].setdefault("properties", {})
            edit = rng.randrange(5)
            if edit == 0 or not isinstance(properties, dict):
                later["description"] = f"{later.get('description') or ''} Now faster."
            elif edit == 1:
                properties["dry_run"] = {"type": "boolean", "default": False}
            elif edit == 2:
                later["name"] += "_v2"
            elif properties:
                name = rng.choice(sorted(properties))
                properties[name] = {"type": "integer", "maximum": 5} if edit == 3 else {
                    "anyOf": [properties[name], {"type": "null"}]
                }  # fmt: skip
        out.append(later)
    return out


if __name__ == "__main__":
    main()
