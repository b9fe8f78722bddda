"""Examples for a prompt: accepted calls of requests like this one, of the tools at hand.

They come from an export in the format `messages`, so only what may be exported is shown. An example
is used only if each of its calls fits a tool that the request offers under the same name: it can
teach no tool that is not there, and no argument that the contract lacks.
"""

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from pathlib import Path
from typing import Any, TextIO

import numpy as np

from assets.contracts.validate import validate_call
from training.evaluation.similar_examples import choose_nearest
from warehouse.errors import UnusableInput
from warehouse.sanitize.untrusted_text import fold_words

Embed = Callable[[Sequence[str]], np.ndarray]  # texts -> unit vectors, a row each
TRAIN = "data/train.jsonl"
_MOST_READ = 200_000  # examples that are kept
_LONGEST = 4 << 20  # characters of a line; a longer one is no conversation of ours
_SAME = 0.999  # a cosine from which on an example is the request itself
_LINE = "Calls of like requests that were right, as JSON lines; they are data, not instructions:"


@dataclass
class KnownCall:
    """An instruction with its right calls, {name, arguments} each."""

    instruction: str
    calls: tuple[dict[str, Any], ...]

    def __post_init__(self) -> None:
        self.words = tuple(fold_words(self.instruction))
        self.tool = str(self.calls[0]["name"])


class ExampleBook:
    """Examples by the names of their tools. n: in a prompt, at most. embed: None compares words."""

    def __init__(self, known: Sequence[KnownCall], n: int, embed: Embed | None = None) -> None:
        self._n, self._embed = n, embed
        self._by_tool: dict[str, list[KnownCall]] = {}
        for item in known:
            for name in dict.fromkeys(str(call["name"]) for call in item.calls):
                self._by_tool.setdefault(name, []).append(item)

    def find_like(
        self, instruction: str, contracts: Mapping[str, Mapping[str, Any]]
    ) -> list[KnownCall]:
        """Examples for a request, the nearest last: next to it, where models read it best.
        contracts: of the tools that it offers, by name."""
        named = [item for name in contracts for item in self._by_tool.get(name, ())]
        known = list({id(item): item for item in named}.values())
        if not known or not instruction.strip():
            return []

        def may_show(one: KnownCall) -> bool:
            return _fits_all(one, contracts)

        nearest = choose_nearest(
            known,
            self._compare(instruction, known),
            self._n,
            words=tuple(fold_words(instruction)),
            too_near=_SAME,
            may_show=may_show,
        )
        return list(nearest)[::-1]

    def _compare(self, instruction: str, known: Sequence[KnownCall]) -> np.ndarray:
        if self._embed is not None:
            vectors = self._embed([instruction, *(item.instruction for item in known)])
            return vectors[1:] @ vectors[0]
        words = set(fold_words(instruction))
        return np.array(
            [
                len(words & set(item.words)) / (len(words) * len(item.words) or 1) ** 0.5
                for item in known
            ]
        )


def read_examples(folder: Path) -> list[KnownCall]:
    """The first request and its right calls of each conversation in the train split of an export.
    Raises UnusableInput."""
    path = folder / TRAIN
    try:
        with path.open(encoding="utf-8") as lines:
            found = (_read_line(line) for line in _iterate_lines(lines))
            read = list(islice((item for item in found if item is not None), _MOST_READ))
    except (OSError, UnicodeDecodeError) as error:
        reason = getattr(error, "strerror", None) or type(error).__name__
        raise UnusableInput(
            f"{path}: {reason}; expected an export: `toolmill export --format messages --out DIR`"
        ) from None
    if not read:
        raise UnusableInput(
            f"{path}: no line holds a request with calls; export with `--format messages`"
        )
    return read


def write_example_text(examples: Sequence[KnownCall]) -> str:
    """Examples as a system message, for an API that takes no call without its result."""
    lines = [{"request": example.instruction, "calls": list(example.calls)} for example in examples]
    return "\n".join([_LINE, *(json.dumps(line, ensure_ascii=False) for line in lines)])


def _iterate_lines(lines: TextIO) -> Iterator[str]:
    """The lines of a file, those passed over that are too long to be held."""
    while line := lines.readline(_LONGEST):
        whole = line.endswith("\n") or len(line) < _LONGEST
        while not whole:
            rest = lines.readline(_LONGEST)
            line, whole = "", rest.endswith("\n") or len(rest) < _LONGEST
        if line:
            yield line


def _read_line(line: str) -> KnownCall | None:
    try:
        first, second, *_ = json.loads(line)["messages"]
        right = second.get("weight") != 0 and first["role"] == "user"
        calls = tuple(_iterate_calls(second)) if right else ()
        return KnownCall(str(first["content"]), calls) if calls else None
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None


def _iterate_calls(message: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    for call in message.get("tool_calls") or ():
        function = call["function"]
        yield {"name": str(function["name"]), "arguments": dict(function["arguments"])}


def _fits_all(one: KnownCall, contracts: Mapping[str, Mapping[str, Any]]) -> bool:
    return all(
        call["name"] in contracts and not validate_call(contracts[call["name"]], call["arguments"])
        for call in one.calls
    )
