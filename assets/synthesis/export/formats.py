"""The shapes that trainers read: hf, messages, trl, openai, sharegpt, dpo.

| format | a line | tools | arguments |
| --- | --- | --- | --- |
| hf, messages | messages | list of functions | objects, as chat templates want them |
| trl | prompt, completion: one line per assistant turn to learn | JSON text | objects |
| openai | messages, parallel_tool_calls | list of functions | JSON text, as the API wants them |
| sharegpt | conversations of human, function_call, observation, gpt | JSON text | in the call's |
| dpo | prompt, chosen, rejected: one line per refused answer | JSON text | objects |
"""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from assets.contracts.vendor_rules import LONGEST_DESCRIPTION, LONGEST_NAME, write_schema
from assets.synthesis.export.examples import (
    ABOUT,
    TrainingExample,
    UnusableExample,
    write_preferences,
)
from warehouse.json_types import Json
from warehouse.sanitize.untrusted_text import shorten_text

Line = dict[str, Json]
_OPENAI_NAME = re.compile(r"[^A-Za-z0-9_-]")
JSON_FLOOR, TURNS_FLOOR = "4.8", "4.0"  # versions of `datasets`, the first that reads each column
LAST_TURN = "_last_turn"
DPO = "dpo"
_META = {**dict.fromkeys(ABOUT, "string"), "simulated": "bool", "split": "string",
         "judge": "string", "score": "float64"}  # fmt: skip


@dataclass(frozen=True)
class ExportFormat:
    """lines: an example as lines. columns: name -> dtype of `datasets`, a list of `json`, a plain
    one, or `turns`, a list of texts `from` and `value`. beside: what is known of a row goes into a
    file of its own, as the reader refuses unknown fields. suffix: of the data files. apart:
    examples with a wrong call stand in files of their own, a line for each turn to learn, of which
    the last turn alone is. prefers: its lines are of answers that were refused."""

    name: str
    lines: Callable[[TrainingExample], Iterator[Line]]
    columns: Mapping[str, str]
    suffix: str = "jsonl"
    beside: bool = False
    apart: bool = False
    prefers: bool = False

    @property
    def datasets_floor(self) -> str:
        """The first version of `datasets` that reads its columns."""
        return JSON_FLOOR if "json" in self.columns.values() else TURNS_FLOOR

    def name_file(self, split: str, example: TrainingExample) -> str:
        """The data file of an example, without its suffix."""
        return f"{split}{LAST_TURN}" if self.apart and holds_wrong_call(example) else split


def holds_wrong_call(example: TrainingExample) -> bool:
    """Whether a turn of the assistant's is not to be learnt."""
    return any(message.get("weight") == 0 for message in example.messages)


def _write_whole(example: TrainingExample) -> Iterator[Line]:
    messages = [_fill_content(message) for message in example.messages]
    yield {"messages": messages, "tools": example.tools, **example.about}


def _write_trl(example: TrainingExample) -> Iterator[Line]:
    """Loss is on the completion alone, so a wrong call is context and never learnt."""
    messages = [_fill_content(message) for message in example.messages]
    tools = json.dumps(example.tools, ensure_ascii=False)
    for turn, message in enumerate(messages):
        if _is_learnt(message):
            prompt = [
                {k: v for k, v in message_before.items() if k != "weight"}
                for message_before in messages[:turn]
            ]
            line = {"prompt": prompt, "completion": [message], "tools": tools}
            yield {**line, **example.about}


def _is_learnt(message: Line) -> bool:
    return message["role"] == "assistant" and message.get("weight") != 0


def _write_openai(example: TrainingExample) -> Iterator[Line]:
    names = _make_api_names([tool["function"]["name"] for tool in example.tools])
    several = any(len(message.get("tool_calls") or ()) > 1 for message in example.messages)
    tools = [_write_openai_tool(tool["function"], names) for tool in example.tools]
    messages = [_write_openai_message(message, names) for message in example.messages]
    yield {"messages": messages, "tools": tools, "parallel_tool_calls": several}


def _write_openai_tool(function: Line, names: Mapping[str, str]) -> Line:
    fields = {
        "name": names[function["name"]],
        "description": shorten_text(function["description"], LONGEST_DESCRIPTION),
        "parameters": write_schema(function["parameters"]),
    }
    return {"type": "function", "function": fields}


def _write_openai_message(message: Line, names: Mapping[str, str]) -> Line:
    if "tool_calls" not in message:
        return message
    calls = []
    for call in message["tool_calls"]:
        name, arguments = call["function"]["name"], call["function"]["arguments"]
        text = json.dumps(arguments, ensure_ascii=False)
        calls.append({**call, "function": {"name": names.get(name, name), "arguments": text}})
    return {**message, "tool_calls": calls}


def _make_api_names(names: list[str]) -> dict[str, str]:
    """Names as the API takes them (letters, digits, `_`, `-`, at most 64), no two alike."""
    api_names: dict[str, str] = {}
    for name in sorted(names):
        candidate = base = _OPENAI_NAME.sub("_", name)[:LONGEST_NAME]
        number = 2
        while candidate in api_names.values():
            candidate, number = f"{base[: LONGEST_NAME - 4]}_{number}", number + 1
        api_names[name] = candidate
    return api_names


def _write_sharegpt(example: TrainingExample) -> Iterator[Line]:
    """The format marks no turn as wrong: of such an example each turn to learn ends a line."""
    messages = example.messages
    ends = [len(messages)]
    if holds_wrong_call(example):
        ends = [turn for turn, message in enumerate(messages, 1) if _is_learnt(message)]
    for end in ends:
        turns: list[Line] = []
        together: dict[int, list[str]] = {}
        for message in messages[:end]:
            turn = _write_sharegpt_turn(message)
            if turns and turn["from"] == turns[-1]["from"] == "observation":
                together.setdefault(len(turns) - 1, [turns[-1]["value"]]).append(turn["value"])
            else:
                turns.append(turn)
        for place, results in together.items():  # of calls made at once: a JSON list
            turns[place]["value"] = json.dumps(results, ensure_ascii=False)
        system = turns.pop(0)["value"] if turns[0]["from"] == "system" else ""
        questions, answers = turns[::2], turns[1::2]
        if {turn["from"] for turn in questions} - {"human", "observation"} or len(turns) % 2:
            raise UnusableExample("sharegpt wants turns that alternate")
        if {turn["from"] for turn in answers} - {"gpt", "function_call"}:
            raise UnusableExample("sharegpt wants turns that alternate")
        tools = json.dumps([tool["function"] for tool in example.tools], ensure_ascii=False)
        yield {"conversations": turns, "system": system, "tools": tools, **example.about}


def _write_sharegpt_turn(message: Line) -> Line:
    calls = message.get("tool_calls")
    if not calls:
        roles = {"user": "human", "assistant": "gpt", "tool": "observation"}
        content = message.get("content") or ""
        return {"from": roles.get(message["role"], message["role"]), "value": content}
    if message.get("content"):
        raise UnusableExample("sharegpt cannot hold words beside a call")
    functions = [call["function"] for call in calls]
    text = json.dumps(functions[0] if len(functions) == 1 else functions, ensure_ascii=False)
    return {"from": "function_call", "value": text}


def _fill_content(message: Line) -> Line:
    """Many chat templates fail on a null content."""
    return {**message, "content": message.get("content") or ""}


FORMATS = {
    made.name: made
    for made in (
        ExportFormat("hf", _write_whole, {"messages": "json", "tools": "json", **_META},
               suffix="parquet"),
        ExportFormat("messages", _write_whole, {"messages": "json", "tools": "json", **_META}),
        ExportFormat("trl", _write_trl,
               {"prompt": "json", "completion": "json", "tools": "string", **_META}),
        ExportFormat("openai", _write_openai,
               {"messages": "json", "tools": "json", "parallel_tool_calls": "bool"}, beside=True),
        ExportFormat("sharegpt", _write_sharegpt,
               {"conversations": "turns", "system": "string", "tools": "string", **_META},
               apart=True),
        ExportFormat(DPO, write_preferences,
               {"prompt": "json", "chosen": "json", "rejected": "json", "tools": "string",
                "source": "string", **_META}, prefers=True),
    )
}  # fmt: skip
