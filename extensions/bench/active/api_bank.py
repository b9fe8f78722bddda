"""API-Bank (Li et al. 2023, arXiv 2304.08244; Apache-2.0) as cases, one for each API turn.

<folder>/data/all_apis.csv                              a row an API: class name, scenario, api_info
<folder>/lv1-lv2-samples/level-1-given-desc/*.jsonl     a dialogue a file: User, AI and API turns

MCP-Zero's own files of it (arXiv 2506.01056) were not published. Here: *single* where one user turn
stands before the call, *multi* where several do; the pool is the API's scenario (Domain) or all
APIs (Full).
"""

import ast
import csv
import json
from collections import Counter
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from assets.contracts.canonical import ContractError, canonicalize_contract, contract_digest
from assets.contracts.tool_id import ToolId
from extensions.bench.active.cases import Case, CaseSet
from serving.index.model import IndexSource
from warehouse.errors import UnusableInput

NAME, DOMAIN, FULL, SINGLE, MULTI = "api-bank", "Domain", "Full", "single", "multi"
_APIS, _DIALOGUES = Path("data/all_apis.csv"), Path("lv1-lv2-samples/level-1-given-desc")
_CLASS, _SCENARIO, _INFO = "类名", "应用场景", "api_info"
_TYPES = {"str": "string", "int": "integer", "float": "number", "bool": "boolean",
          "list": "array", "dict": "object"}  # fmt: skip
_RESULT = 400  # characters of an earlier result in a dialogue
_LARGEST = 1_000_000  # characters of a file


def read_api_bank(folder: Path) -> CaseSet:
    """All cases of level 1, twice each: Domain and Full. Raises UnusableInput."""
    tools, scenario = _read_apis(folder / _APIS)
    files = sorted((folder / _DIALOGUES).glob("*.jsonl"))
    if not files:
        raise UnusableInput(f"{folder / _DIALOGUES}: no dialogues; expected API-Bank's *.jsonl")
    of_scenario: dict[str, list[str]] = {}
    for name, where in scenario.items():
        of_scenario.setdefault(where, []).append(name)
    cases, left = [], Counter[str]()
    for path in files:
        for number, messages, api in _iterate_calls(path):
            gold = str(ToolId(api, api))
            if gold not in tools:
                left["api_not_listed"] += 1
                continue
            users = sum(message["role"] == "user" for message in messages)
            if not users:
                left["no_request_before_it"] += 1
                continue
            turns = SINGLE if users == 1 else MULTI
            for pool, held in ((DOMAIN, of_scenario[scenario[gold]]), (FULL, list(tools))):
                cell = (("pool", pool), ("dialogue", turns))
                at = f"{path.stem}:{number}:{pool}"
                cases.append(Case(at, tuple(messages), gold, tuple(held), cell, path.stem))
    return CaseSet(NAME, IndexSource([_make_row(*one) for one in tools.items()]), cases, dict(left))


def _read_apis(path: Path) -> tuple[dict[str, dict[str, Any]], dict[str, str]]:
    """(tool id -> contract, tool id -> scenario)."""
    try:
        rows = list(csv.DictReader(path.read_text(encoding="utf-8")[:_LARGEST].splitlines(True)))
    except (OSError, UnicodeDecodeError, csv.Error) as error:
        raise UnusableInput(f"{path}: {error}; expected API-Bank's list of APIs") from None
    tools, scenario = {}, {}
    for row in rows:
        name = (row.get(_CLASS) or "").strip()
        if not name:
            continue
        about, inputs = _parse_info(row.get(_INFO) or "")
        try:
            contract = canonicalize_contract(_make_contract(name, about, inputs))
        except ContractError:
            contract = canonicalize_contract(_make_contract(name, about, {}))
        tool_id = str(ToolId(name, name))
        tools[tool_id], scenario[tool_id] = contract, row.get(_SCENARIO) or ""
    if not tools:
        raise UnusableInput(f"{path}: no APIs; expected columns {_CLASS}, {_SCENARIO}, {_INFO}")
    return tools, scenario


def _parse_info(text: str) -> tuple[str, Mapping[str, Any]]:
    """(description, input parameters) of the Python literals in a cell; nothing is run."""
    held: dict[str, Any] = {}
    try:
        for one in ast.parse(text.strip()).body:
            if isinstance(one, ast.Assign) and isinstance(one.targets[0], ast.Name):
                held[one.targets[0].id] = ast.literal_eval(one.value)
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


def _make_row(tool_id: str, contract: Mapping[str, Any]) -> dict[str, Any]:
    of = ToolId.parse(tool_id)
    return {
        "server_id": of.server_id,
        "tool": of.tool,
        "contract_digest": contract_digest(dict(contract)),
        "contract": json.dumps(contract, ensure_ascii=False),
        "marketplace": NAME,
    }


def _iterate_calls(path: Path) -> Iterator[tuple[int, list[dict[str, str]], str]]:
    """(line, messages before it, API) of each call. An earlier call stands as the assistant's words
    with its result; what the assistant said last before the call is left out: it announces it."""
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
                yield number, [*messages[: last + 1], *before], str(turn["api_name"])
                result = json.dumps((turn.get("result") or {}).get("output"), ensure_ascii=False)
                text = f"[called {turn['api_name']}: {result[:_RESULT]}]"
                messages.append({"role": "assistant", "content": text})
            else:
                role = "user" if turn["role"] == "User" else "assistant"
                messages.append({"role": role, "content": str(turn["text"])})
    except (OSError, ValueError, KeyError, TypeError, AttributeError, RecursionError) as error:
        raise UnusableInput(
            f"{path}: {type(error).__name__}: {str(error)[:120]}; expected a JSON object a line"
            " with role, and text or api_name"
        ) from None
