"""The matcher: calls/s beside BFCL's checker, agreement with it, and the real contracts it lacks.

    TOOLMILL_BFCL_PYTHON=var/bfcl-venv/bin/python python -m benchmarks.bench_match [--mutants 10]

`scripts/bfcl_env.sh` makes that environment; BFCL's data comes with it. Every item of its AST and
relevance categories is asked with a golden call made of its truth and with so many calls that go
wrong in one or two ways (`tests/contracts/bfcl_mutants.py`). Speed: the same AST calls, one process
and one thread each, in seconds of the processor, the best of three rounds for ours, BFCL's a single
one inside its own process (calls that raise or hang are in no figure). Ours reads the docs as JSON
Schema and compares with the golden call alone.

With `../shared/data` (TOOLMILL_SHARED), the contracts of 13 real servers and of Smithery's live
ones: one call per tool that gives every declared parameter, held against itself by BFCL's checker
and by ours. "As is" hands BFCL the contract; "translated" first says `dict` for `object`, `float`
for `number` and `[]` for a missing `required`, as its own model handlers' tables do.
"""

import argparse
import json
import os
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from random import Random
from typing import Any

from assets.contracts.match.bfcl.data import BfclItem, read_bfcl
from assets.contracts.match.bfcl.verdict import bfcl_match, truth_of
from assets.contracts.match.match import match_call, match_parallel
from assets.contracts.match.result import MatchResult
from assets.contracts.schema.reading import resolve
from benchmarks.shared_data import SHARED
from tests.contracts.bfcl_mutants import golden, mutants, peer_answers
from warehouse.statistics import wilson

Call = dict[str, Any]
Asked = tuple[BfclItem, list[Call], list[Call]]  # item, its golden calls, those that are asked
_FIND = "import importlib.util as u; print(u.find_spec('bfcl_eval').submodule_search_locations[0])"
_TYPES = {"dict": "object", "float": "number", "tuple": "array", "HashMap": "object"}
_BACK = {"object": "dict", "number": "float"}
_ROUNDS = 3


def main() -> None:
    parser = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    parser.add_argument("--mutants", type=int, default=10, help="of each item")
    mutant_count = parser.parse_args().mutants
    python = os.environ.get("TOOLMILL_BFCL_PYTHON")
    if not python:
        print("skipped: TOOLMILL_BFCL_PYTHON is not set; `scripts/bfcl_env.sh` says what to set")
        return
    found = subprocess.run([python, "-c", _FIND], capture_output=True, text=True, check=True)
    items = read_bfcl(Path(found.stdout.strip()) / "data")
    asked = list(asked_of(items, mutant_count, Random(17)))
    report_agreement(python, items, asked)
    if SHARED.is_dir():
        report_contracts(python)
    else:
        print(f"\nreal contracts: skipped, {SHARED} is not there")


def asked_of(items: list[BfclItem], count: int, random: Random) -> Iterator[Asked]:
    for item in items:
        name = item.functions[0]["name"] if item.functions else "f"
        right = golden(item, random) if item.truth else [{"name": name, "arguments": {}}]
        yield item, right, right
        yield from ((item, right, calls) for calls in mutants(right, item, random, count))


def report_agreement(python: str, items: list[BfclItem], asked: list[Asked]) -> None:
    theirs, _ = peer_answers(python, items, [(item.id, calls) for item, _, calls in asked])
    ours = [compat(item, calls) for item, _, calls in asked]
    n, same, matching, raised = Counter(), Counter(), Counter(), Counter()
    for (item, _, _), told, result in zip(asked, theirs, ours, strict=True):
        n[item.category] += 1
        same[item.category] += verdict_of(told) == our_verdict(result)
        matching[item.category] += bool(told.get("valid"))
        raised[item.category] += "valid" not in told
    print("| category | calls | BFCL: match | BFCL: raises or hangs | same verdict |")
    print("| --- | ---: | ---: | ---: | ---: |")
    for name in sorted(n):
        print(f"| {name} | {n[name]:,} | {matching[name]:,} | {raised[name]} | {same[name]:,} |")
    low, high = wilson(same.total(), n.total())
    print(f"\nagreement {same.total():,} of {n.total():,} (95% {low:.5f} to {high:.5f}),")
    print("a raise or a hang told as one counts as the same verdict")
    wrong = [(i.id, c) for (i, _, c), t, r in zip(asked, theirs, ours, strict=True)
             if verdict_of(t) != our_verdict(r)]  # fmt: skip
    for one in wrong[:10]:
        print(f"  differs: {one}"[:300])
    unread = "decoder_wrong_output_format"  # never came to the checker
    came_back = [
        one
        for one, told in zip(asked, theirs, strict=True)
        if "valid" in told and told["error"] != unread and one[0].truth
    ]
    report_speed(python, came_back)


def compat(item: BfclItem, calls: list[Call]) -> MatchResult:
    return bfcl_match(
        item.functions, item.truth, calls, language=item.language, category=item.category
    )


def verdict_of(told: dict[str, Any]) -> Any:
    return "hangs" if "hang" in told else told.get("valid", "raises")


def our_verdict(result: MatchResult) -> Any:
    raises = result.error_kind in ("checker_crash", "no_function_doc")
    return "raises" if raises else "hangs" if result.error_kind == "checker_hang" else result.match


def report_speed(python: str, asked: list[Asked]) -> None:
    items = list({item.id: item for item, _, _ in asked}.values())
    schemas = {item.id: {doc["name"]: as_schema(doc["parameters"]) for doc in item.functions}
               for item in items}  # fmt: skip
    _, spent = peer_answers(python, items, [(item.id, calls) for item, _, calls in asked])
    peer = spent["n"] / spent["seconds"]
    ways: dict[str, Callable[[Asked], Any]] = {
        "ours, compatibility mode": lambda one: compat(one[0], one[2]),
        "ours": lambda one: own(schemas[one[0].id], one[1], one[2]),
    }
    print("\n| matcher | calls/s | times BFCL's checker |\n| --- | ---: | ---: |")
    print(f"| BFCL's checker ({spent['n']:,} answers) | {peer:,.0f} | 1.00 |")
    for name, way in ways.items():
        speed = len(asked) / best(way, asked)
        print(f"| {name} ({len(asked):,} answers) | {speed:,.0f} | {speed / peer:.2f} |")


def own(schemas: dict[str, Any], expected: list[Call], calls: list[Call]) -> Any:
    if len(expected) == len(calls) == 1:
        return match_call(schemas.get(expected[0]["name"], {}), expected[0], calls[0])
    return match_parallel(schemas, expected, calls)


def best(work: Callable[[Asked], Any], asked: list[Asked]) -> float:
    times = []
    for _ in range(_ROUNDS):
        begun = time.process_time()
        for one in asked:
            work(one)
        times.append(time.process_time() - begun)
    return min(times)


def as_schema(doc: Any, words: dict[str, str] = _TYPES) -> Any:
    """A doc with other type words, at any depth."""
    if isinstance(doc, list):
        return [as_schema(one, words) for one in doc]
    if not isinstance(doc, dict):
        return doc
    out = {key: as_schema(one, words) for key, one in doc.items()}
    if isinstance(out.get("type"), str):
        out["type"] = words.get(out["type"], out["type"])
    return out


def report_contracts(python: str) -> None:
    print("\n| contracts | tools | handed over | BFCL raises | share (95%) | ours: match |")
    print("| --- | ---: | --- | ---: | --- | ---: |")
    reasons: dict[str, Counter[str]] = {}
    named: dict[str, list[str]] = {}
    for source, tools in (("13 real servers", real_tools()), ("Smithery, live", smithery_tools())):
        for way in ("as is", "translated"):
            row, why, names = crashes(python, tools, way == "translated")
            print(f"| {source} | {len(tools):,} | {way} | {row}")
            reasons[f"{source}, {way}"] = why
            named[f"{source}, {way}"] = names
    for name, why in reasons.items():
        print(f"\n{name}, by the first thing it raises on:")
        for reason, count in why.most_common():
            print(f"  {count:5,}  {reason}")
        print(f"  such as {', '.join(named[name][:6])}")


def crashes(
    python: str, tools: list[tuple[str, Any]], translated: bool
) -> tuple[str, Counter[str], list[str]]:
    items, calls = [], []
    for place, (name, schema) in enumerate(tools):
        doc = as_schema(schema, _BACK) if translated else schema
        doc = {**doc, "required": doc.get("required", [])} if translated else doc
        call = {"name": name, "arguments": sample(schema, schema)}
        function = {"name": name, "parameters": doc}
        items.append(BfclItem(str(place), "simple_python", [], [function], [truth_of(call)]))
        calls.append(call)
    asked = [(item.id, [call]) for item, call in zip(items, calls, strict=True)]
    theirs, _ = peer_answers(python, items, asked)
    ours = sum(
        match_call(schema, call, call).match and not match_call(schema, call, astray(call)).match
        for (_, schema), call in zip(tools, calls, strict=True)
    )
    why, names = Counter(), []
    for item, call, told in zip(items, calls, theirs, strict=True):
        result = compat(item, [call])
        assert verdict_of(told) == our_verdict(result), (item, told, result)
        if "crash" in told:
            why[reason_of(str(result.checker_error))] += 1
            names.append(call["name"])
    low, high = wilson(len(names), len(tools))
    share = f"{len(names) / len(tools):.1%} ({low:.1%} to {high:.1%})"
    return f"{len(names):,} | {share} | {ours:,} |", why, names


def reason_of(raised: str) -> str:
    words = {
        "'required'": "no `required`",
        "'properties'": "no `properties`",
        "'type'": "no `type` (anyOf, $ref, enum alone)",
        "'items'": "an array without `items`",
    }
    if raised.startswith("TypeError: unhashable"):
        return "a list of types"
    detail = raised.partition(": ")[2]
    return words.get(detail, f"type {detail}" if raised.startswith("KeyError") else raised)


def astray(call: Call) -> Call:
    """The call with one argument too many: any matcher must refuse it."""
    return {**call, "arguments": {**call["arguments"], "no such parameter": 1}}


def sample(schema: Any, root: Any, depth: int = 0) -> Any:
    """A value that gives everything a schema declares."""
    schema = resolve(schema, root)
    if not depth:
        return {
            name: sample(one, root, 1) for name, one in (schema.get("properties") or {}).items()
        }
    for key in ("const", "default"):
        if schema.get(key) is not None:
            return schema[key]
    if schema.get("enum"):
        return schema["enum"][0]
    for key in ("anyOf", "oneOf", "allOf"):
        parts = [one for one in schema.get(key) or () if resolve(one, root).get("type") != "null"]
        if parts:
            return sample(parts[0], root, depth + 1)
    kind = schema.get("type", "object" if "properties" in schema else "string")
    kind = next((one for one in kind if one != "null"), "null") if isinstance(kind, list) else kind
    if kind == "object":
        given = schema.get("properties") or {}
        return (
            {name: sample(one, root, depth + 1) for name, one in given.items()} if depth < 6 else {}
        )
    if kind == "array":
        return [sample(schema.get("items", {}), root, depth + 1)] if depth < 6 else []
    return {"integer": 3, "number": 1.5, "boolean": True, "null": None}.get(kind, "some text")


def real_tools() -> list[tuple[str, Any]]:
    return [
        (tool["name"], tool["inputSchema"])
        for path in sorted((SHARED / "real-servers").glob("*.json"))
        for page in json.loads(path.read_text(encoding="utf-8"))["tools_list"]
        for tool in page["tools"]
    ]


def smithery_tools() -> list[tuple[str, Any]]:
    lines = (SHARED / "smithery" / "servers.jsonl").open(encoding="utf-8")
    servers = [server for server in map(json.loads, lines) if server["tools_source"] == "live"]
    return [
        (f"{server['qualified_name']}::{tool['name']}", tool["inputSchema"])
        for server in servers
        for tool in server["tools"]
        if isinstance(tool.get("inputSchema"), dict)
    ]


if __name__ == "__main__":
    main()
