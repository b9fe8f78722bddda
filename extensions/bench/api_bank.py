"""API-Bank (https://arxiv.org/abs/2304.08244): its APIs as contracts, its dialogues as items.

api-bank        the first call of a dialogue that its user asks for, with its arguments
api-bank-turns  each call of level 1, among the APIs of its scenario (Domain) or all (Full), as
                MCP-Zero has it: only the choice of the API is judged. MCP-Zero's own files are
                unpublished, so the cells differ from its cells
"""

import ast
import csv
import json
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

from assets.contracts.canonical import ContractError, canonicalize_contract
from extensions.bench.benchmark_items import (
    BenchmarkPlan,
    BenchmarkSet,
    judge_calls,
    judge_first_tool,
    make_item,
)
from warehouse.errors import UnusableInput
from warehouse.json_types import Contract

DOMAIN, FULL, SINGLE, MULTI = "Domain", "Full", "single", "multi"
APIS, _DIALOGUES = Path("data/all_apis.csv"), Path("lv1-lv2-samples/level-1-given-desc")
_CLASS, _SCENARIO, _INFO = "类名", "应用场景", "api_info"
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean",
          "list": "array", "dict": "object"}  # fmt: skip
_TOKEN = "GetUserToken"
_RESULT = 400  # characters of an earlier result in a dialogue
_LARGEST = 1_000_000  # characters of a file


def read_first_calls(plan: BenchmarkPlan) -> BenchmarkSet:
    """The first call of each dialogue of level 1 but for the token, which no user asks for, with
    all that the user said before it, where that holds every value of the call."""
    folder = plan.require_folder()
    apis, _ = read_apis(folder / APIS)
    paths = list_dialogues(folder)
    calls_of = {path: list(iterate_calls(path)) for path in paths}
    _take_names(apis, [call[2:] for calls in calls_of.values() for call in calls])
    pool = list(apis.values())
    items, left_out = [], Counter[str]()
    for path, calls in calls_of.items():
        asked = [call for call in calls if call[2] != _TOKEN]
        number, messages, name, values = next(iter(asked), (0, [], "", {}))
        text = "\n".join(turn["content"] for turn in messages if turn["role"] == "user")
        if reason := _find_unfit_reason(text, name, values, apis):
            left_out[reason] += 1
            continue
        expected = [{"name": name, "arguments": dict(values)}]
        items.append(make_item(f"{path.stem}:{number}", "first call", name, text, pool, expected))
    measures = ("ast_ok", "tool_ok", "valid")
    files = (folder / APIS, *paths)
    return BenchmarkSet("api-bank", items, judge_calls, measures, files, dict(left_out))


def _take_names(
    apis: Mapping[str, dict[str, Any]], calls: Iterable[tuple[str, Mapping[str, Any]]]
) -> None:
    """Names an API's parameters as its calls do: of 141 calls 54 have names that the published list
    of APIs does not have, as it is of another version. Required is what every call of it has."""
    names_of: dict[str, list[set[str]]] = {}
    for name, values in calls:
        names_of.setdefault(name, []).append(set(values))
    for name, contract in apis.items():
        schema = contract["inputSchema"]
        listed, used = schema["properties"], names_of.get(name, [])
        schema["required"] = sorted(set.intersection(*used) if used else listed)
        if not set().union(*used) <= set(listed):
            schema["properties"] = {key: listed.get(key, {}) for key in sorted(set().union(*used))}


def _find_unfit_reason(
    text: str, name: str, values: Mapping[str, Any], apis: Mapping[str, Contract]
) -> str:
    """Why a call is no item; "" where it is one."""
    if not name:
        return "no_call"
    if name not in apis:
        return "api_not_listed"
    if not text:
        return "no_request_before_it"
    said = text.casefold()
    grounded = all(str(value).casefold() in said for value in values.values())
    return "" if grounded else "value_not_said"


def read_turns(plan: BenchmarkPlan) -> BenchmarkSet:
    """All calls of level 1, twice each: Domain and Full."""
    folder = plan.require_folder()
    apis, scenario = read_apis(folder / APIS)
    of_scenario: dict[str, list[Contract]] = {}
    for name, where in scenario.items():
        of_scenario.setdefault(where, []).append(apis[name])
    items, left_out = [], Counter[str]()
    paths = list_dialogues(folder)
    for path in paths:
        for number, messages, name, _ in iterate_calls(path):
            said = [turn["content"] for turn in messages if turn["role"] == "user"]
            if name not in apis or not said:
                left_out["no_request_before_it" if name in apis else "api_not_listed"] += 1
                continue
            turns = SINGLE if len(said) == 1 else MULTI
            calls = [{"name": name, "arguments": {}}]
            for pool, tools in ((DOMAIN, of_scenario[scenario[name]]), (FULL, [*apis.values()])):
                at, category = f"{path.stem}:{number}:{pool}", f"{pool}, {turns}"
                item = make_item(at, category, path.stem, said[-1], tools, calls, tuple(messages))
                items.append(item)
    files = (folder / APIS, *paths)
    return BenchmarkSet(
        "api-bank-turns",
        items,
        judge_first_tool,
        ("tool_ok",),
        files,
        dict(left_out),
        narrows=False,
    )


def list_dialogues(folder: Path) -> list[Path]:
    """The files of level 1. Raises UnusableInput."""
    paths = sorted((folder / _DIALOGUES).glob("*.jsonl"))
    if not paths:
        raise UnusableInput(f"{folder / _DIALOGUES}: no dialogues; expected API-Bank's *.jsonl")
    return paths


def read_apis(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """(API -> contract, API -> scenario). Raises UnusableInput."""
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8")[:_LARGEST].splitlines(True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnusableInput(f"{path}: {error}; expected API-Bank's list of APIs") from None
    apis, scenario = {}, {}
    for row in rows:
        name = (row.get(_CLASS) or "").strip()
        if not name:
            continue
        about, inputs = _parse_info(row.get(_INFO) or "")
        try:
            contract = canonicalize_contract(_make_contract(name, about, inputs))
        except ContractError:
            contract = canonicalize_contract(_make_contract(name, about, {}))
        apis[name], scenario[name] = contract, row.get(_SCENARIO) or ""
    if not apis:
        raise UnusableInput(f"{path}: no APIs; expected columns {_CLASS}, {_SCENARIO}, {_INFO}")
    return apis, scenario


def _parse_info(text: str) -> tuple[str, Mapping[str, Any]]:
    """(description, input parameters) of the Python literals in a cell; nothing is run."""
    held: dict[str, Any] = {}
    try:
        for item in ast.parse(text.strip()).body:
            if isinstance(item, ast.Assign) and isinstance(item.targets[0], ast.Name):
                held[item.targets[0].id] = ast.literal_eval(item.value)
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        pass  # one cell of the published file is a full stop
    inputs = held.get("input_parameters")
    return str(held.get("description") or ""), inputs if isinstance(inputs, Mapping) else {}


def _make_contract(name: str, about: str, inputs: Mapping[str, Any]) -> dict[str, Any]:
    properties = {}
    for key, facts in inputs.items():
        schema = facts if isinstance(facts, Mapping) else {}
        kind = _TYPES.get(str(schema.get("type", "")).split("[")[0].lower())
        described = {"description": str(schema.get("description") or "")}
        properties[str(key)] = {**({"type": kind} if kind else {}), **described}
    return {
        "name": name,
        "description": about,
        "inputSchema": {"type": "object", "properties": properties},
    }


def iterate_calls(path: Path) -> Iterator[tuple[int, list[dict[str, str]], str, dict[str, Any]]]:
    """(line, messages before it, API, its arguments) of each call. An earlier call stands as the
    assistant's words with its result; what the assistant said last before the call is left out: it
    announces it."""
    messages: list[dict[str, str]] = []
    try:
        lines = path.read_text(encoding="utf-8")[:_LARGEST].splitlines()
        turns = [(n, json.loads(line)) for n, line in enumerate(lines, 1) if line.strip()]
        for number, turn in turns:
            if turn["role"] == "API":
                last = max(
                    (at for at, one in enumerate(messages) if one["role"] == "user"), default=-1
                )
                before = [
                    message
                    for message in messages[last + 1 :]
                    if message["content"].startswith("[called ")
                ]
                values = dict(turn["param_dict"])
                yield number, [*messages[: last + 1], *before], str(turn["api_name"]), values
                result = json.dumps((turn.get("result") or {}).get("output"), ensure_ascii=False)
                text = f"[called {turn['api_name']}: {result[:_RESULT]}]"
                messages.append({"role": "assistant", "content": text})
            else:
                role = "user" if turn["role"] == "User" else "assistant"
                messages.append({"role": role, "content": str(turn["text"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableInput(
            f"{path}: {type(error).__name__}: {str(error)[:120]}; expected a JSON object a line"
            " with role, and text or api_name and param_dict"
        ) from None
