"""One request with the pool in which its tool must be found, and where requests come from."""

import ast
import csv
import json
import random
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import zip_longest
from pathlib import Path
from typing import Any

from assets.contracts.canonical import ContractError, canonicalize_contract, contract_digest
from assets.contracts.tool_id import ToolId
from assets.synthesis.tables import ONE_CALL
from serving.adhoc import read_source
from serving.index.model import IndexSource
from training.evaluation.adapter_predictor import AdapterPredictor
from training.evaluation.predictor import CannotPredict
from training.releases.index_source import build_published_source
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.errors import UnusableInput
from warehouse.llm.chat import ChatTurn
from warehouse.llm.roles import LLMError
from warehouse.store import Warehouse
from warehouse.user_files import read_json_lines

RETRIEVAL, STANDARD = "retrieval", "standard"
ACTIVE, ACTIVE_EXAMPLE = "active", "active_example"
ARMS = (RETRIEVAL, STANDARD, ACTIVE, ACTIVE_EXAMPLE)


@dataclass(frozen=True)
class ActiveCase:
    """messages: of users and the assistant, the last one is a user's. gold: the tool that comes
    next; one that says the same counts too. pool: tool ids in the order in which a model that is
    shown all of them sees them. cell: what it is counted under. group: resampled whole."""

    case_id: str
    messages: tuple[Mapping[str, str], ...]
    gold: str
    pool: tuple[str, ...]
    cell: tuple[tuple[str, Any], ...]
    group: str

    @property
    def request(self) -> str:
        """The user's last words."""
        return next(
            message["content"] for message in reversed(self.messages) if message["role"] == "user"
        )


@dataclass(frozen=True)
class CaseSet:
    """Cases of one set with the tools of all their pools. left_out: reason -> how many."""

    name: str
    source: IndexSource
    cases: Sequence[ActiveCase]
    left_out: Mapping[str, int] = field(default_factory=dict)


def select_source(source: IndexSource, pool: Iterable[str]) -> IndexSource:
    """The source of an index of these tools alone, without accepted requests: they may be the
    very requests that are asked."""
    held = set(pool)
    rows = [row for row in source.rows if str(ToolId.of_row(row)) in held]
    servers = {row["server_id"] for row in rows}
    about = {name: facts for name, facts in source.servers.items() if name in servers}
    return replace(source, rows=rows, servers=about, instructions={}, recipes={})


NEEDLE_NAME = "needle"


@dataclass(frozen=True)
class NeedlePlan:
    """sizes: how many pool sizes. positions: places of the needle in a pool, from first to last.
    seeds: a drawing of pools and needles each."""

    sizes: int = 8
    positions: int = 3
    seeds: tuple[int, ...] = (0,)


def space_sizes(most: int, count: int) -> list[int]:
    """`count` sizes from 1 to `most`, log-spaced, each once."""
    if count < 2 or most < 2:
        return [most]
    return sorted({round(most ** (at / (count - 1))) for at in range(count)})


def make_needles(
    source: IndexSource, requests: Sequence[Mapping[str, str]], plan: NeedlePlan | None = None
) -> CaseSet:
    """The grid over the tools of a source. requests: {tool_id, instruction}, written for a tool and
    never shown to what is measured. Pools of one seed are nested; same-named tools of other servers
    stay in. Raises UnusableInput where no request is for a tool of the source."""
    plan = plan or NeedlePlan()
    tools = list(dict.fromkeys(str(ToolId.of_row(row)) for row in source.rows))
    asked = [request for request in requests if request["tool_id"] in set(tools)]
    if not asked:
        raise UnusableInput(
            f"{len(requests)} requests, none for one of {len(tools)} tools; expected rows with"
            " `instruction` and the `tool_id` (server::tool) that it was written for"
        )
    cases = []
    for seed in plan.seeds:
        drawn = random.Random(seed)
        needed = dict.fromkeys(item["tool_id"] for item in drawn.sample(asked, len(asked)))
        others = [name for name in drawn.sample(tools, len(tools)) if name not in needed]
        # A needle first, and every second one while there are any: small pools hold several.
        mixed = zip_longest(needed, others)
        order = [name for pair in mixed for name in pair if name is not None]
        for size in space_sizes(len(tools), plan.sizes):
            cases += _make_cell(order[:size], asked, plan, seed, drawn)
    return CaseSet(NEEDLE_NAME, source, cases, {"other_tools": len(requests) - len(asked)})


def _make_cell(
    pool: Sequence[str],
    asked: Sequence[Mapping[str, str]],
    plan: NeedlePlan,
    seed: int,
    drawn: random.Random,
) -> list[ActiveCase]:
    inside = set(pool)
    here = [item for item in asked if item["tool_id"] in inside]
    size = len(pool)
    places = sorted(
        {round(at * (size - 1) / max(plan.positions - 1, 1)) for at in range(plan.positions)}
    )
    results = []
    for place in places:
        one = drawn.choice(here)
        others = [name for name in pool if name != one["tool_id"]]
        shown = (*others[:place], one["tool_id"], *others[place:])
        results.append(
            ActiveCase(
                f"needle:{seed}:{size}:{place}",
                ({"role": "user", "content": one["instruction"]},),
                one["tool_id"],
                shown,
                (("size", size), ("position", place)),
                ToolId.parse(one["tool_id"]).server_id,
            )
        )
    return results


def read_home(warehouse: Warehouse) -> tuple[IndexSource, list[dict[str, str]]]:
    """(source, {tool_id, instruction} of the accepted requests for one call in the test splits)."""
    source, _ = build_published_source(warehouse)
    rows = warehouse.tables.read(TRAINING_SET).to_dicts()
    asked = [
        {"tool_id": str(ToolId.of_row(row)), "instruction": row["instruction"]}
        for row in rows
        if row["split"] != TRAIN and (row.get("task") or ONE_CALL[0]) in ONE_CALL
    ]
    return source, asked


def read_files(servers: Path, requests: Path) -> tuple[IndexSource, Sequence[dict[str, str]]]:
    """The same of a file of servers, and one of rows {tool_id, instruction}. Raises
    UnusableInput."""
    source, _ = read_source(servers)
    asked = []
    for number, row in read_json_lines(requests):
        texts = {name: row.get(name) for name in ("tool_id", "instruction")}
        if not all(isinstance(text, str) and text.strip() for text in texts.values()):
            raise UnusableInput(
                f"{requests}, line {number}: expected texts in `tool_id` (server::tool) and"
                " `instruction`"
            )
        asked.append({name: str(text) for name, text in texts.items()})
    return source, asked


class LocalSpeaker:
    """One loaded model; greedy. Raises LLMError: `too_long` for what its context does not hold,
    `bad_template` for what its chat template fails on."""

    def __init__(self, predictor: AdapterPredictor) -> None:
        self._predictor = predictor

    async def say(
        self, messages: Sequence[Mapping[str, Any]], tools: Sequence[Mapping[str, Any]]
    ) -> ChatTurn:
        """The next turn; calls as the model's text holds them."""
        label = self._predictor.label
        try:
            answer = self._predictor.converse(
                [_read_arguments(message) for message in messages], tools
            )
        except CannotPredict as error:  # a template is a program: it may fail on one conversation
            raise LLMError("bad_template", str(error), "a prompt", "use another model") from error
        if answer.error is not None:
            raise LLMError(
                answer.error,
                f"{answer.prompt_tokens:,} tokens for {label}",
                "what its context holds",
                "offer fewer tools, or use a model with a longer context",
            )
        calls = tuple((str(call["name"]), call["arguments"]) for call in answer.calls)
        return ChatTurn(
            answer.text, calls, "stop", label, answer.prompt_tokens, answer.completion_tokens
        )


def _read_arguments(message: Mapping[str, Any]) -> dict[str, Any]:
    """A message whose calls have their arguments as objects: endpoints take JSON texts, chat
    templates take objects."""
    calls = []
    for call in message.get("tool_calls") or ():
        function = call["function"]
        arguments = json.loads(function["arguments"])
        calls.append({**call, "function": {**function, "arguments": arguments}})
    return {**message, **({"tool_calls": calls} if calls else {})}


API_BANK_NAME, DOMAIN, FULL, SINGLE, MULTI = "api-bank", "Domain", "Full", "single", "multi"
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
                cases.append(ActiveCase(at, tuple(messages), gold, tuple(held), cell, path.stem))
    return CaseSet(
        API_BANK_NAME, IndexSource([_make_row(*item) for item in tools.items()]), cases, dict(left)
    )


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


def _make_row(tool_id: str, contract: Mapping[str, Any]) -> dict[str, Any]:
    of = ToolId.parse(tool_id)
    return {
        "server_id": of.server_id,
        "tool": of.tool,
        "contract_digest": contract_digest(dict(contract)),
        "contract": json.dumps(contract, ensure_ascii=False),
        "marketplace": API_BANK_NAME,
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
