"""Accepted pairs as neutral examples, and the preference pairs that follow from them.

An example is a conversation with the tools on offer. A model must not learn every assistant turn: a
call that was wrong on purpose (to be repaired after its error) has `weight` 0.

Preference pairs hold an answer to prefer and a refused one for the same prompt, as TRL's DPO reads
them:

| source | chosen | rejected |
| --- | --- | --- |
| judgement | the accepted call | a call for the same words that rules or judge refused |
| draft | the call after a server's refusal | the refused call |
"""

import hashlib
import json
import random
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from assets.contracts.match.match import match_parallel
from assets.synthesis.tables import JUDGEMENTS, PAIRS, GoldenCall, read_goldens
from warehouse.json_types import Contract, Json, Record, Row
from warehouse.storage.tables import Tables

# What of a row goes with every example, beside its split and its judgement.
ABOUT = (
    *("pair_id", "task", "kind", "marketplace", "server_id", "tool", "contract_digest", "license"),
    *("provider", "model", "simulated"),
)


class UnusableExample(ValueError):
    """Why a row cannot be an example, in words that are counted."""


@dataclass(frozen=True)
class TrainingExample:
    """messages: as OpenAI's, with `arguments` as objects and `weight` 0 where nothing is to be
    learnt. tools: OpenAI functions, own included, in an order of the row's own. refused: answers to
    the same words that were refused, for a format of preferences."""

    messages: list[dict[str, Json]]
    tools: list[dict[str, Json]]
    about: dict[str, Json] = field(default_factory=dict)
    refused: list[dict[str, Json]] = field(default_factory=list)


def make_example(row: Row, contracts: Mapping[str, Contract], extra: Row) -> TrainingExample:
    """The example of a row; `contracts`, by digest, are those called or offered. Raises
    Unshowable."""
    calls = read_goldens(row)
    about = {name: row.get(name) for name in ABOUT} | dict(extra)
    return TrainingExample(make_messages(row, calls), _list_tools(row, calls, contracts), about)


def make_function(contract: Contract) -> dict[str, Json]:
    """A contract as the tool definition that chat templates and APIs read."""
    body = {
        "name": contract["name"],
        "description": contract.get("description", ""),
        "parameters": contract["inputSchema"],
    }
    return {"type": "function", "function": body}


def _list_tools(
    row: Row, calls: Sequence[GoldenCall], contracts: Mapping[str, Contract]
) -> list[dict[str, Json]]:
    """The tools called come first; one on offer that shares a name with them is left out."""
    needed = [call.contract_digest for call in calls] or [row["contract_digest"]]
    digests = list(dict.fromkeys([*needed, *json.loads(row.get("offered") or "[]")]))
    by_name: dict[str, str] = {}
    for digest in digests:
        if digest not in contracts:
            raise UnusableExample("a contract on offer is not at hand")
        name = contracts[digest]["name"]
        if by_name.setdefault(name, digest) != digest and digest in needed:
            raise UnusableExample("it calls two tools of one name")
    functions = [make_function(contracts[digest]) for digest in by_name.values()]
    seed = hashlib.sha256(row["pair_id"].encode()).digest()
    random.Random(int.from_bytes(seed[:8])).shuffle(functions)
    return functions


def make_messages(row: Row, calls: Sequence[GoldenCall]) -> list[dict[str, Json]]:
    """The conversation of a row with these right calls, as in Example. Raises UnusableExample."""
    messages = json.loads(row.get("messages") or "[]")
    if not messages:
        messages = [{"role": "user", "content": row["instruction"]}]
        if calls:
            tool_calls = [
                _make_call(f"call_{n}", one.tool, one.arguments) for n, one in enumerate(calls)
            ]
            messages.append({"role": "assistant", "content": None, "tool_calls": tool_calls})
    right = [(call.tool, call.arguments) for call in calls]
    out = [_make_message(message, right) for message in messages]
    if out[-1]["role"] != "assistant":
        raise UnusableExample("the conversation does not end with the assistant")
    return out


def _make_message(message: Row, right: list[tuple[str, Json]]) -> dict[str, Json]:
    copy: dict[str, Json] = {"role": message["role"], "content": message.get("content")}
    if message.get("tool_call_id"):
        copy["tool_call_id"] = message["tool_call_id"]
    if not message.get("tool_calls"):
        return copy
    copy["tool_calls"] = [
        _make_call(
            tool_call.get("id", f"call_{n}"),
            tool_call["function"]["name"],
            _read_arguments(tool_call["function"]),
        )
        for n, tool_call in enumerate(message["tool_calls"])
    ]
    functions = [tool_call["function"] for tool_call in copy["tool_calls"]]
    if any((part["name"], part["arguments"]) not in right for part in functions):
        copy["weight"] = 0
    return copy


def _read_arguments(part: Row) -> Json:
    arguments = part["arguments"]
    return json.loads(arguments) if isinstance(arguments, str) else arguments


def _make_call(name: str, tool: str, arguments: Json) -> dict[str, Json]:
    return {"id": name, "type": "function", "function": {"name": tool, "arguments": arguments}}


Message = dict[str, Json]
Line = dict[str, Json]
JUDGEMENT, DRAFT = "judgement", "draft"
NOTHING_REFUSED = "no answer to the same words was refused"
_KEY = ("server_id", "contract_digest", "task", "instruction")


@dataclass(frozen=True)
class PreferencePair:
    """prompt: messages; chosen, rejected: the assistant's next one. tools: OpenAI functions. about:
    what goes with an example, its `split` included. source: of the table above."""

    prompt: Sequence[Message]
    chosen: Message
    rejected: Message
    tools: Sequence[Mapping[str, Json]]
    source: str
    about: Mapping[str, Json] = field(default_factory=dict)

    def write_line(self) -> Line:
        """The line of the export."""
        return {
            "prompt": [_strip_message(message) for message in self.prompt],
            "chosen": [_strip_message(self.chosen)],
            "rejected": [_strip_message(self.rejected)],
            "tools": json.dumps(list(self.tools), ensure_ascii=False),
            "source": self.source,
            **self.about,
        }


class RefusedRows:
    """Rows that rules or the judge refused as of a moment, by what was asked."""

    def __init__(self, tables: Tables, as_of: float) -> None:
        self._rows: dict[tuple[str, ...], list[Record]] = defaultdict(list)
        for market in tables.partitions(PAIRS.name):
            judged = tables.read(JUDGEMENTS, market, as_of=as_of)
            refused = judged.filter(pl.col("verdict") == "reject")["pair_id"].to_list()
            rows = tables.read(PAIRS, market, as_of=as_of).filter(
                (pl.col("status") == "ok")
                & ((pl.col("verdict") == "reject") | pl.col("pair_id").is_in(refused))
            )
            for row in rows.sort("pair_id").iter_rows(named=True):
                self._rows[_make_key(row)].append(row)

    def find_answers(self, row: Record, example: TrainingExample) -> list[Message]:
        """Last messages of refused rows that differ from an accepted one in nothing else."""
        names = {tool["function"]["name"] for tool in example.tools}
        answers = []
        for refused in self._rows.get(_make_key(row), []):
            try:
                messages = make_messages(refused, read_goldens(refused))
            except (UnusableExample, ValueError, TypeError, KeyError):
                continue
            same = messages[:-1] == example.messages[:-1]
            called = {str(call["name"]) for call in _list_calls(messages[-1])}
            if same and called <= names and messages[-1] not in answers:
                answers.append(messages[-1])
        return answers


def write_preferences(example: TrainingExample) -> Iterator[Line]:
    """The preference pairs of an example. Raises UnusableExample where nothing was refused."""
    lines = [preference.write_line() for preference in _list_preferences(example)]
    if not lines:
        raise UnusableExample(NOTHING_REFUSED)
    yield from lines


def _list_preferences(example: TrainingExample) -> Iterator[PreferencePair]:
    messages, tools, about = example.messages, example.tools, example.about
    for at, wrong in enumerate(messages):
        if wrong["role"] != "assistant" or wrong.get("weight") != 0:
            continue
        calls = (m for m in messages[at + 1 :] if m["role"] == "assistant" and m.get("tool_calls"))
        right = next((message for message in calls if message.get("weight") != 0), None)
        if right is not None and _is_other(right, wrong, tools):
            yield PreferencePair(messages[:at], right, wrong, tools, DRAFT, about)
    if any(message.get("weight") == 0 for message in messages):
        return  # its last answer comes after a refused call
    for wrong in example.refused:
        if _is_other(messages[-1], wrong, tools):
            yield PreferencePair(messages[:-1], messages[-1], wrong, tools, JUDGEMENT, about)


def _is_other(answer: Message, other: Message, tools: Sequence[Mapping[str, Json]]) -> bool:
    """Whether two answers say something else: their calls by `match_parallel`, else their words."""
    calls, others = _list_calls(answer), _list_calls(other)
    if not (calls and others):
        return bool(calls) != bool(others) or answer.get("content") != other.get("content")
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    return not match_parallel(schemas, calls, others).match


def _list_calls(message: Message) -> list[dict[str, Json]]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [
        {"name": function["name"], "arguments": function["arguments"]} for function in functions
    ]


def _strip_message(message: Message) -> Message:
    """Many chat templates fail on a null content; `weight` is of no use to a preference."""
    fields = {name: value for name, value in message.items() if name != "weight"}
    return {**fields, "content": message.get("content") or ""}


def _make_key(row: Record) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in _KEY)
