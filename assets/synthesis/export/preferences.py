"""Preference pairs: of one prompt an answer to prefer and one that was refused, as TRL's DPO reads
them.

| source | chosen | rejected |
| --- | --- | --- |
| judgement | the accepted call | that of a row with the same words which rules or judge refused |
| draft | the call after a server's refusal | the call that was refused |
| revision | what a draft should have been | the draft (rows of the sidecar's data) |
"""

import json
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

import polars as pl

from assets.contracts.match.match import match_parallel
from assets.synthesis.common.tables import JUDGEMENTS, PAIRS, read_goldens
from assets.synthesis.export.example import Example, Unshowable, make_messages
from warehouse.json_types import Json, Record
from warehouse.storage.tables import Tables

Message = dict[str, Json]
Line = dict[str, Json]
JUDGEMENT, DRAFT = "judgement", "draft"
NOTHING_REFUSED = "no answer to the same words was refused"
_KEY = ("server_id", "contract_digest", "task", "instruction")


@dataclass(frozen=True)
class Preference:
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
            "prompt": [_strip_message(one) for one in self.prompt],
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

    def find_answers(self, row: Record, example: Example) -> list[Message]:
        """The last messages of refused rows that differ from an accepted one in that alone; calls
        to tools that are not shown are left out."""
        shown = {tool["function"]["name"] for tool in example.tools}
        found = []
        for refused in self._rows.get(_make_key(row), []):
            try:
                messages = make_messages(refused, read_goldens(refused))
            except (Unshowable, ValueError, TypeError, KeyError):
                continue
            same = messages[:-1] == example.messages[:-1]
            if same and _list_names(messages[-1]) <= shown and messages[-1] not in found:
                found.append(messages[-1])
        return found


def write_preferences(example: Example) -> Iterator[Line]:
    """The preference pairs of an example. Raises Unshowable where nothing was refused."""
    lines = [preference.write_line() for preference in _list_preferences(example)]
    if not lines:
        raise Unshowable(NOTHING_REFUSED)
    yield from lines


def _list_preferences(example: Example) -> Iterator[Preference]:
    messages, tools, about = example.messages, example.tools, example.about
    for at, wrong in enumerate(messages):
        if wrong["role"] != "assistant" or wrong.get("weight") != 0:
            continue
        right = next((one for one in messages[at + 1 :] if _is_right_call(one)), None)
        if right is not None and _is_other(right, wrong, tools):
            yield Preference(messages[:at], right, wrong, tools, DRAFT, about)
    if any(message.get("weight") == 0 for message in messages):
        return  # its last answer comes after a refused call
    for wrong in example.refused:
        if _is_other(messages[-1], wrong, tools):
            yield Preference(messages[:-1], messages[-1], wrong, tools, JUDGEMENT, about)


def _is_right_call(message: Message) -> bool:
    calls = message["role"] == "assistant" and bool(message.get("tool_calls"))
    return calls and message.get("weight") != 0


def _is_other(one: Message, other: Message, tools: Sequence[Mapping[str, Json]]) -> bool:
    """Whether two answers say something else: their calls by `match_parallel`, else their words."""
    calls, others = _list_calls(one), _list_calls(other)
    if not (calls and others):
        return bool(calls) != bool(others) or one.get("content") != other.get("content")
    schemas = {tool["function"]["name"]: tool["function"]["parameters"] for tool in tools}
    return not match_parallel(schemas, calls, others).match


def _list_calls(message: Message) -> list[dict[str, Json]]:
    functions = [call["function"] for call in message.get("tool_calls") or ()]
    return [
        {"name": function["name"], "arguments": function["arguments"]} for function in functions
    ]


def _list_names(message: Message) -> set[str]:
    return {str(call["name"]) for call in _list_calls(message)}


def _strip_message(message: Message) -> Message:
    """Many chat templates fail on a null content; `weight` is of no use to a preference."""
    made = {name: value for name, value in message.items() if name != "weight"}
    return {**made, "content": message.get("content") or ""}


def _make_key(row: Record) -> tuple[str, ...]:
    return tuple(str(row[name]) for name in _KEY)
