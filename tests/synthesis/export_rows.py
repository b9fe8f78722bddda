"""A published warehouse with a pair of every task, and written and judged pairs to review."""

import json
import time
from typing import Any

from assets.contracts.canonical import canonicalize_contract, contract_digest
from assets.contracts.snapshot import SNAPSHOTS
from assets.synthesis.judging.mutants import GOOD, make_cases
from assets.synthesis.tables import JUDGEMENTS, PAIRS, TASKS, dump_text, make_pair_id
from tests.synthesis.contracts import make_tool
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

Tool = dict[str, Any]
MARKET = "registry"
TRAIN_SERVERS = ("npm:file", "npm:issue")  # by the frozen split
TEST_SERVERS = ("npm:note",)


def tool(server: str, verb: str) -> Tool:
    thing = server.split(":")[1]
    properties = {
        "title": {"type": "string", "enum": ["A", 1]},
        f"{thing}_only": {"type": ["object", "null"], "properties": {"deep": {}}},
    }
    about = f"{verb.capitalize()} a {thing} by its title"
    return make_tool(f"{verb}.{thing}", about, properties, "title")


def snapshot(server: str, verb: str) -> dict[str, Any]:
    raw = tool(server, verb)
    return {
        "marketplace": MARKET, "server_id": server, "tool": raw["name"],
        "contract_digest": contract_digest(raw), "contract": json.dumps(canonicalize_contract(raw)),
        "recipe_digest": "r" * 64, "first_seen": "2026-01-01", "last_seen": "2026-01-01",
    }  # fmt: skip


def golden(server: str, verb: str, arguments: Any) -> dict[str, Any]:
    answer = snapshot(server, verb)
    base = {name: answer[name] for name in ("server_id", "tool", "contract_digest")}
    return {**base, "arguments": arguments}


def called(*calls: tuple[str, dict[str, Any], Any]) -> dict[str, Any]:
    """An assistant's message that makes calls: (id, golden, arguments)."""
    answer = [
        {"id": name, "type": "function",
         "function": {"name": item["tool"], "arguments": json.dumps(arguments)}}
        for name, item, arguments in calls
    ]  # fmt: skip
    return {"role": "assistant", "content": None, "tool_calls": answer}


def conversation(task: str, calls: list[dict[str, Any]], ask: str) -> list[dict[str, Any]]:
    messages: list[dict[str, Any]] = [{"role": "user", "content": ask}]
    if task in ("no_tool", "missing_parameter"):
        return [*messages, {"role": "assistant", "content": "Which title do you mean?"}]
    first = calls[0]
    if task == "parallel":
        both = [(f"c{n}", item, item["arguments"]) for n, item in enumerate(calls)]
        answers = [{"role": "tool", "tool_call_id": f"c{n}", "content": "ok"} for n in range(2)]
        return [*messages, called(*both), *answers, {"role": "assistant", "content": "Both done."}]
    if task == "sequential":
        result = {"role": "tool", "tool_call_id": "c0", "content": '{"title": "A"}'}
        last = called(("c1", calls[1], calls[1]["arguments"]))
        return [*messages, called(("c0", first, first["arguments"])), result, last]
    if task == "clarification":
        messages += [
            {"role": "assistant", "content": "Which title?"},
            {"role": "user", "content": "A"},
        ]
    if task == "recovery":
        error = {"role": "tool", "tool_call_id": "w", "content": "'title' is required"}
        messages += [called(("w", first, {})), error]
    return [*messages, called(("c0", first, first["arguments"]))]


def pair(server: str, task: str, index: int = 0, **columns: Any) -> dict[str, Any]:
    base = golden(server, "find", {"title": "A", f"{server.split(':')[1]}_only": {"deep": None}})
    second = golden(server, "drop", {"title": "A"})
    calls = [base, second] if task in ("parallel", "sequential") else [base]
    if task in ("no_tool", "missing_parameter"):
        calls = []
    ask = f"Please do what {task} {index} of {server} says, with 'A' (été)."
    rivals = [snapshot(item, "drop")["contract_digest"] for item in (*TRAIN_SERVERS, *TEST_SERVERS)]
    offered = dump_text([*rivals, base["contract_digest"]])
    pair_row = dict.fromkeys(PAIRS.columns) | {
        "marketplace": MARKET, "server_id": server, "tool": base["tool"], "task": task,
        "contract_digest": base["contract_digest"], "recipe_digest": "r" * 64, "plan_digest": "p",
        "index": index, "kind": "direct", "instruction": ask,
        "arguments": dump_text(base["arguments"]) if calls else None, "calls": dump_text(calls),
        "messages": dump_text(conversation(task, calls, ask)), "contracts": offered,
        "offered": offered, "simulated": task == "parallel", "provider": "offline",
        "model": "rules", "prompts": "{}", "steps": "[]", "seed": 7, "prompt_tokens": 0,
        "completion_tokens": 0, "usd": 0.0, "license": "MIT", "status": "ok",
        "verdict": "accept", "flaws": "[]",
        **columns,
    }  # fmt: skip
    return {**pair_row, "pair_id": make_pair_id(pair_row)}


def judgement(row: dict[str, Any], verdict: str = "accept") -> dict[str, Any]:
    base = ("pair_id", "marketplace", "server_id", "tool", "contract_digest", "plan_digest")
    outcome = {"judge": "offline:rules", "score": 8.0, "verdict": verdict, "status": "ok"}
    return {**{name: row[name] for name in base}, **outcome}


def publish(warehouse: Warehouse, spec: TableSpec, rows: list[dict[str, Any]]) -> None:
    tables = warehouse.tables
    listed = [{k: v for k, v in row.items() if k in spec.columns} for row in rows]
    partition = MARKET if spec in (PAIRS, JUDGEMENTS, SNAPSHOTS) else None
    tables.promote(tables.stage(spec, spec.frame(listed), partition), "test", [])


def published(warehouse: Warehouse, pairs: list[dict[str, Any]] | None = None) -> list[Any]:
    servers = (*TRAIN_SERVERS, *TEST_SERVERS)
    if pairs is None:
        pairs = [pair(server, task) for server in servers for task in TASKS]
    publish(warehouse, SNAPSHOTS, [snapshot(s, verb) for s in servers for verb in ("find", "drop")])
    publish(warehouse, PAIRS, pairs)
    publish(warehouse, JUDGEMENTS, [judgement(row) for row in pairs])
    time.sleep(0.01)  # publications are ordered by the clock
    return pairs


Row = dict[str, Any]
HOSTILE = "<img src=x onerror=\"document.title='owned'\"><script>document.title='owned'</script>"


def judged_pairs() -> tuple[list[Row], list[Row], dict[str, Row]]:
    """Pairs, their judgements, and the contracts by digest: good rows accepted, and of each third
    a nonsense one that the judge rejected; the first tool's text tries to be a page."""
    result, contracts = make_cases([], {}, seed=1, good=0)
    pairs, judgements = [], []
    for place, case in enumerate(c for c in result if c.kind in (GOOD, "unrealistic")):
        if case.kind != GOOD and place % 3:
            continue
        row = {**case.row, "pair_id": f"p1:{place:040d}", "marketplace": "registry"}
        accepted = case.kind == GOOD
        pairs.append(row)
        score = 9.0 if accepted else 3.0
        judgements.append({
            "pair_id": row["pair_id"], "judge": "offline:rules", "status": "ok", "score": score,
            "verdict": "accept" if accepted else "reject", "threshold": 6.0,
            "scores": dump_text({"realism": int(score)}), "reasons": "SECRET-REASON",
        })  # fmt: skip
    hostile = {name: dict(item) for name, item in contracts.items()}
    for item in hostile.values():
        item["description"] = f"{item['description']} {HOSTILE}"
    pairs[0]["instruction"] += f" {HOSTILE}"
    return pairs, judgements, hostile
