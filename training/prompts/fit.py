"""A prompt that fits into so many tokens: as many of the tools as it can hold."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Protocol, TypeVar

from assets.contracts.canonical import tool_text
from training.prompts.render import (
    Call,
    Contract,
    Example,
    Message,
    render_conversation,
    render_tool_schema,
    render_turns,
)
from training.prompts.rows import list_named_tools, read_calls, read_messages
from training.prompts.word_index import split_index_words


class Sized(Protocol):
    """What has a length in tokens."""

    @property
    def tokens(self) -> int: ...


Step = TypeVar("Step")
Made = TypeVar("Made", bound=Sized)


@dataclass(frozen=True)
class Parts:
    """What is rendered of a row. `calls` None: nothing is answered yet. `gold`: names of the tools
    that are never dropped. `messages`: the whole conversation where it has several turns; then
    `calls` stand in it."""

    instruction: str
    calls: Sequence[Call] | None
    gold: frozenset[str] = field(default_factory=frozenset)
    messages: Sequence[Message] = ()


@dataclass(frozen=True)
class Rendered:
    """A prompt that fits, its completion, the names of the tools that it shows and of those that
    had to go, how many examples are left, and its length with the completion.

    `turns`: (prompt, completion) of every turn of the model's; the longest fits, and the last is
    `prompt` and `completion`.
    """

    prompt: str
    completion: str
    shown: tuple[str, ...]
    dropped: tuple[str, ...]
    examples: int
    tokens: int
    turns: tuple[tuple[str, str], ...] = ()


def get_prompt_parts(row: Mapping[str, Any]) -> Parts:
    """What is rendered of a training-set row."""
    messages = read_messages(row)
    return Parts(row["instruction"], read_calls(row), list_named_tools(row), messages)


def fit_prompt(
    tokenizer: Any,
    row_or_parts: Mapping[str, Any] | Parts,
    tools: Sequence[Contract],
    limit: int,
    *,
    examples: Sequence[Example] = (),
) -> Rendered | None:
    """The row with as many of `tools` (contracts) as `limit` tokens hold, completion included.

    What is too much goes whole: distractors, the easiest first (those that share the fewest words
    with the right tools, or with the request where no call is right), then examples, the last
    first. None where even the right tools alone do not fit. Raises BadTemplate.
    """
    parts = row_or_parts if isinstance(row_or_parts, Parts) else get_prompt_parts(row_or_parts)
    order = _rank_by_ease(parts, tools)

    def made(gone: int, shown: int) -> Rendered:
        out = set(order[:gone])
        kept = [tool for at, tool in enumerate(tools) if at not in out]
        turns = _render_parts(tokenizer, parts, kept, examples[:shown])
        length = max(
            sum(len(tokenizer(text, add_special_tokens=False)["input_ids"]) for text in turn)
            for turn in turns
        )
        names = tuple(tool["name"] for tool in kept)
        gone_names = tuple(tools[at]["name"] for at in sorted(out))
        return Rendered(*turns[-1], names, gone_names, shown, length, tuple(turns))

    steps = [(gone, len(examples)) for gone in range(len(order) + 1)]
    steps += [(len(order), shown) for shown in range(len(examples) - 1, -1, -1)]
    return find_first_fitting(steps, lambda step: made(*step), limit)


def _render_parts(
    tokenizer: Any, parts: Parts, tools: Sequence[Contract], examples: Sequence[Example]
) -> list[tuple[str, str]]:
    shown = [render_tool_schema(tool) for tool in tools]
    if parts.messages:
        return render_turns(tokenizer, shown, parts.messages, examples=examples)
    asked = parts.instruction, parts.calls
    return [render_conversation(tokenizer, shown, *asked, examples=examples)]


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


def _rank_by_ease(parts: Parts, tools: Sequence[Contract]) -> list[int]:
    """Places of the tools that may go, the easiest to tell from the right ones first."""
    texts = [split_index_words(tool_text(tool)) for tool in tools]
    right = [text for tool, text in zip(tools, texts, strict=True) if tool["name"] in parts.gold]
    like = set().union(*right) if right else split_index_words(parts.instruction)
    free = [at for at, tool in enumerate(tools) if tool["name"] not in parts.gold]
    shared = {at: len(texts[at] & like) / (len(texts[at] | like) or 1) for at in free}
    return sorted(free, key=lambda at: (shared[at], tools[at]["name"]))
