"""A good call, and a draft of it with one flaw."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from random import Random
from typing import Any

from assets.contracts.rename_history import ContractMove
from assets.contracts.schema_shapes import collect_properties

Arguments = Mapping[str, Any]
WORDS = ("amber", "harbour", "velvet", "orchard", "lantern", "granite", "meadow", "copper",
         "saddle", "thistle", "pewter", "gable")  # fmt: skip


@dataclass(frozen=True)
class GoodCall:
    """A call that fits. server: whose tool it is. sibling: the arguments of another good call of
    the same tool, where there is one. beside: names of the server's other tools."""

    server: str
    contract: Mapping[str, Any]
    arguments: Arguments
    sibling: Arguments | None = None
    beside: tuple[str, ...] = ()

    @property
    def name(self) -> str:
        return str(self.contract["name"])

    @property
    def root(self) -> Mapping[str, Any]:
        return self.contract["inputSchema"]

    @property
    def declared(self) -> dict[str, Any]:
        return collect_properties(self.root, self.root)

    @property
    def text(self) -> str:
        return json.dumps(self.arguments, ensure_ascii=False)


@dataclass(frozen=True)
class FlawedDraft:
    """arguments: as sent, text or object. meant: the arguments of every call that was meant, in
    order. move: what history knows of it."""

    kind: str
    name: str
    arguments: Any
    meant: tuple[Arguments, ...]
    move: ContractMove | None = None


# What an operator makes: the arguments as sent, or a whole draft; None where it cannot apply.
Make = Callable[[GoodCall, Random], Any]


def choose_name(call: GoodCall, draw: Random, test: Callable[[str, Any], bool]) -> str | None:
    """One of the arguments that pass a test of (name, value)."""
    names = [name for name, value in call.arguments.items() if test(name, value)]
    return draw.choice(names) if names else None


def make_word(draw: Random, words: int) -> str:
    """A name that says nothing."""
    return "_".join(draw.sample(WORDS, words))


def drop_letter(word: str, at: float) -> str:
    """A word without the letter at a share of its length."""
    place = 1 + int(at * (len(word) - 2))
    return word[:place] + word[place + 1 :] if place < len(word) else word[:-1]
