"""A training row as text: the tools, the request, and the answer that the model must write."""

import json
import math
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

import numpy as np

from assets.contracts.canonical import tool_text
from assets.contracts.vendor_rules import write_schema
from training.prompts.templates import (
    BadTemplate,
    apply_template,
    cut_completion,
    render_prompt_text,
)
from warehouse.json_types import Contract

Call = Mapping[str, Any]
Message = Mapping[str, Any]
Tools = Sequence[Mapping[str, Any]]
SYSTEM = "Choose one tool and write its call as JSON."
NO_CALL = "None of these tools can do that."  # the answer where no call is right
_SYSTEM_MESSAGE: dict[str, Any] = {"role": "system", "content": SYSTEM}


def render_tool_schema(contract: Contract) -> dict[str, Any]:
    """The contract as an OpenAI-style function."""
    body = {
        "description": contract.get("description", ""),
        "parameters": contract.get("inputSchema", {"type": "object", "properties": {}}),
    }
    return {"type": "function", "function": {"name": contract["name"], **body}}


def render_wire_tool(contract: Contract, names: Mapping[str, str]) -> dict[str, Any]:
    """The contract as an endpoint takes it; `names`: tool -> its name on the wire."""
    function = render_tool_schema(contract)["function"]
    parameters = write_schema(function["parameters"])
    function |= {"name": names[str(contract["name"])], "parameters": parameters}
    return {"type": "function", "function": function}


def render_conversation(
    tokenizer: Any, tools: Tools, instruction: str, calls: Sequence[Call] | None = None
) -> tuple[str, str]:
    """(prompt, completion) through the tokenizer's own chat template.

    `tools`: from `render_tool_schema`. `calls`: the right ones ({name, arguments}); [] where none
    is right, and the completion says NO_CALL; None leaves the completion empty.
    Raises BadTemplate.
    """
    before = [_SYSTEM_MESSAGE, {"role": "user", "content": instruction}]
    prompt = render_prompt_text(tokenizer, before, tools)
    if calls is None:
        return prompt, ""
    return prompt, _render_completion(tokenizer, prompt, before, build_call_message(calls), tools)


def render_turns(
    tokenizer: Any, tools: Tools, messages: Sequence[Message]
) -> list[tuple[str, str]]:
    """(prompt, completion) of every turn of the model's in a conversation, each as it is asked for.

    `messages`: OpenAI's, with `arguments` as objects. A turn of `weight` 0 is context and none of
    them. Where the model does not have the last word, the last completion is empty.
    Raises BadTemplate.
    """
    conversation = [_SYSTEM_MESSAGE]
    results = []
    for message in messages:
        turn = {name: held for name, held in message.items() if name != "weight"}
        turn["content"] = turn.get("content") or ""  # many templates fail on a null content
        if is_learnt(message):
            prompt = render_prompt_text(tokenizer, conversation, tools)
            results.append(
                (prompt, _render_completion(tokenizer, prompt, conversation, turn, tools))
            )
        conversation.append(turn)
    if conversation[-1]["role"] != "assistant":
        results.append((render_prompt_text(tokenizer, conversation, tools), ""))
    return results


def is_learnt(message: Message) -> bool:
    """Whether a message is a turn of the model's that is right: a call that was wrong on purpose
    has `weight` 0."""
    return message["role"] == "assistant" and message.get("weight") != 0


def render_answer(
    tokenizer: Any,
    messages: Sequence[Message],
    calls: Sequence[Call],
    tools: Tools,
    words: str = NO_CALL,
) -> str:
    """What the model must write after `messages`: the calls, or `words` where there is none.
    Raises BadTemplate."""
    before = [dict(message) for message in messages]
    prompt = render_prompt_text(tokenizer, before, tools)
    answer = build_call_message(calls, words)
    return _render_completion(tokenizer, prompt, before, answer, tools)


def _render_completion(
    tokenizer: Any,
    prompt: str,
    before: Sequence[dict[str, Any]],
    message: dict[str, Any],
    tools: Tools,
) -> str:
    """What the model must write after `prompt`, which asks for `message` after `asked`."""
    calls = [call["function"] for call in message.get("tool_calls") or ()]
    try:
        whole = apply_template(tokenizer, [*before, message], tools)
        completion = cut_completion(tokenizer, prompt, whole)
        if len(calls) < 2 or all(call["name"] in completion for call in calls):
            return completion
    except BadTemplate:
        if len(calls) < 2:
            raise
    # Llama-3.1's template refuses a message of several calls and gpt-oss's writes the first alone:
    # there they are one JSON list.
    listed = {"role": "assistant", "content": json.dumps(_copy_calls(calls), ensure_ascii=False)}
    whole = apply_template(tokenizer, [*before, listed], tools)
    return cut_completion(tokenizer, prompt, whole)


def build_call_message(calls: Sequence[Call], words: str = NO_CALL) -> dict[str, Any]:
    """The answer as a message: the calls, or `words` where there is none."""
    if not calls:
        return {"role": "assistant", "content": words}
    listed = [{"type": "function", "function": call} for call in _copy_calls(calls)]
    return {"role": "assistant", "content": "", "tool_calls": listed}


def _copy_calls(calls: Sequence[Call]) -> list[dict[str, Any]]:
    return [{"name": call["name"], "arguments": dict(call["arguments"])} for call in calls]


@dataclass(frozen=True)
class ChatTurn:
    """One answer of the model's. `before`: the conversation it answers, the request alone where it
    is (); `calls`: the right ones, [] where none is; `asks`: it is to ask back."""

    before: tuple[Message, ...]
    calls: list[dict[str, Any]]
    asks: bool = False


def read_json_list(value: Any) -> list[Any]:
    """A list, or a column that holds one as JSON; [] for none."""
    return (json.loads(value) if isinstance(value, str) else list(value or ())) or []


def read_calls(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The right calls of a row, {name, arguments} each; [] where none is right."""
    calls = row.get("calls")
    if calls is None:  # a row that says no more than its own call
        own = row.get("arguments")
        return [] if own is None else [{"name": row["tool"], "arguments": json.loads(own)}]
    listed = json.loads(calls) if isinstance(calls, str) else calls
    return [{"name": call["name"], "arguments": call["arguments"]} for call in listed]


def read_messages(row: Mapping[str, Any]) -> list[dict[str, Any]]:
    """The conversation of a row of several turns, or of one that is answered with a question; [] of
    any other."""
    return read_json_list(row.get("messages"))


def list_turns(row: Mapping[str, Any]) -> list[ChatTurn]:
    """Every answer of the model's that a row teaches, in order."""
    messages = read_messages(row)
    if not messages:
        return [ChatTurn((), read_calls(row))]
    return [
        _make_turn(messages[:at], message)
        for at, message in enumerate(messages)
        if is_learnt(message)
    ]


def list_named_tools(row: Mapping[str, Any]) -> frozenset[str]:
    """Names of the tools that a row's prompt cannot do without: those that are called, rightly or
    not, and the one that is asked about."""
    names = {call["name"] for call in read_calls(row)}
    messages = read_messages(row)
    for message in messages:
        names |= {call["name"] for call in read_message_calls(message)}
    return frozenset(names or ({row["tool"]} if messages else ()))


def read_message_calls(message: Message) -> list[dict[str, Any]]:
    """The calls of one message, {name, arguments} each."""
    return [
        {"name": call["function"]["name"], "arguments": call["function"]["arguments"]}
        for call in message.get("tool_calls") or ()
    ]


def _make_turn(before: Sequence[Message], message: Message) -> ChatTurn:
    from assets.synthesis.verify.rules import is_question  # needs polars, settings do not

    calls = read_message_calls(message)
    # What was said before is context: nothing of it is asked for again.
    earlier = tuple({**item, "weight": 0} if is_learnt(item) else item for item in before)
    asks = not calls and is_question(message.get("content") or "")
    answered = any(item["role"] == "tool" for item in before)  # then it is an answer
    return ChatTurn(earlier, calls, asks=asks and not answered)


_WORD = re.compile(r"\w+")


def split_index_words(text: str) -> set[str]:
    return set(_WORD.findall(text.casefold().replace("_", " ")))


class WordSimilarity:
    """Texts by the words they hold; a rarer word weighs more. Exact, and the same everywhere:
    figures are rounded before they are compared and ties fall to the smaller name."""

    def __init__(self, texts: Mapping[str, str]) -> None:
        self._names = sorted(texts)
        self._words = {name: split_index_words(texts[name]) for name in self._names}
        places: dict[str, list[int]] = {}
        for at, name in enumerate(self._names):
            for word in self._words[name]:
                places.setdefault(word, []).append(at)
        self._places = {word: np.array(held) for word, held in places.items()}
        most = len(self._names) + 1
        self._weights = {word: math.log(most / len(held)) for word, held in places.items()}
        norms = [math.fsum(map(self._weights.__getitem__, self._words[n])) for n in self._names]
        self._norms = np.sqrt(np.maximum(norms, 1e-9))

    def rank_nearest(self, name: str) -> np.ndarray:
        """Places, in the order of the names, of all texts that share a word with this one, itself
        included, the nearest first."""
        scores = np.zeros(len(self._names))
        for word in sorted(self._words[name]):
            scores[self._places[word]] += self._weights[word]
        places = np.flatnonzero(scores)
        near = np.round(scores[places] / self._norms[places], 6)
        return places[np.argsort(-near, kind="stable")]

    def find_sharing(self, words: Collection[str], *, most: float) -> set[str]:
        """Texts that hold one of the words, those left out that more than the share `most` hold."""
        limit = max(1.0, most * len(self._names))
        return {
            self._names[at]
            for word in words
            if word in self._places and len(self._places[word]) <= limit
            for at in self._places[word]
        }


class TokenLength(Protocol):
    """What has a length in tokens."""

    @property
    def tokens(self) -> int: ...


Step = TypeVar("Step")
Made = TypeVar("Made", bound=TokenLength)


@dataclass(frozen=True)
class PromptParts:
    """What is rendered of a row. `calls` None: nothing is answered yet. `gold`: names of the tools
    that are never dropped. `messages`: the whole conversation where it has several turns; then
    `calls` stand in it."""

    instruction: str
    calls: Sequence[Call] | None
    gold: frozenset[str] = field(default_factory=frozenset)
    messages: Sequence[Message] = ()


@dataclass(frozen=True)
class RenderedPrompt:
    """A prompt that fits, its completion, the names of the tools that it shows and of those that
    had to go, and its length with the completion.

    `turns`: (prompt, completion) of every turn of the model's; the longest fits, and the last is
    `prompt` and `completion`.
    """

    prompt: str
    completion: str
    shown: tuple[str, ...]
    dropped: tuple[str, ...]
    tokens: int
    turns: tuple[tuple[str, str], ...] = ()


def get_prompt_parts(row: Mapping[str, Any]) -> PromptParts:
    """What is rendered of a training-set row."""
    messages = read_messages(row)
    return PromptParts(row["instruction"], read_calls(row), list_named_tools(row), messages)


def fit_prompt(
    tokenizer: Any,
    row_or_parts: Mapping[str, Any] | PromptParts,
    tools: Sequence[Contract],
    limit: int,
) -> RenderedPrompt | None:
    """The row with as many of `tools` (contracts) as `limit` tokens hold, completion included.

    What is too much goes whole: distractors, the easiest first (those that share the fewest words
    with the right tools, or with the request where no call is right). None where even the right
    tools alone do not fit. Raises BadTemplate.
    """
    parts = (
        row_or_parts if isinstance(row_or_parts, PromptParts) else get_prompt_parts(row_or_parts)
    )
    # Places of the tools that may go, the easiest to tell from the right ones first.
    texts = [split_index_words(tool_text(tool)) for tool in tools]
    right = [text for tool, text in zip(tools, texts, strict=True) if tool["name"] in parts.gold]
    like = set().union(*right) if right else split_index_words(parts.instruction)
    free = [at for at, tool in enumerate(tools) if tool["name"] not in parts.gold]
    shared = {at: len(texts[at] & like) / (len(texts[at] | like) or 1) for at in free}
    order = sorted(free, key=lambda at: (shared[at], tools[at]["name"]))

    def render_without(gone: int) -> RenderedPrompt:
        """The prompt without so many of the easiest."""
        out = set(order[:gone])
        shown = [tool for at, tool in enumerate(tools) if at not in out]
        turns = _render_parts(tokenizer, parts, shown)
        length = max(
            sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in turn)
            for turn in turns
        )
        names = tuple(tool["name"] for tool in shown)
        gone_names = tuple(tools[at]["name"] for at in sorted(out))
        return RenderedPrompt(*turns[-1], names, gone_names, length, tuple(turns))

    return find_first_fitting(range(len(order) + 1), render_without, limit)


def _render_parts(
    tokenizer: Any, parts: PromptParts, tools: Sequence[Contract]
) -> list[tuple[str, str]]:
    schemas = [render_tool_schema(tool) for tool in tools]
    if parts.messages:
        return render_turns(tokenizer, schemas, parts.messages)
    return [render_conversation(tokenizer, schemas, parts.instruction, parts.calls)]


def find_first_fitting(
    steps: Sequence[Step], made: Callable[[Step], Made], limit: int
) -> Made | None:
    """The first step that fits; each is shorter than the one before, so halves are searched. The
    first is tried by itself: nearly every row fits as it is."""
    best = made(steps[0])
    if best.tokens <= limit:
        return best
    low, high, best = 1, len(steps), None
    while low < high:
        middle = (low + high) // 2
        tried = made(steps[middle])
        if tried.tokens <= limit:
            best, high = tried, middle
        else:
            low = middle + 1
    return best
