"""Invented tool contracts that the tiny base learns from: servers of tools, and values for them.

Words come from `words.json` and from syllables; no contract of a marketplace is read.
"""

import json
import random
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from warehouse.json_types import Contract

_TYPES = {"int": "integer", "number": "number", "bool": "boolean", "list": "array"}


@cache
def load_words() -> dict[str, Any]:
    """The word lists of `words.json`."""
    return json.loads((Path(__file__).parent / "words.json").read_text(encoding="utf-8"))


@dataclass(frozen=True)
class Tool:
    """A contract, the verb and the object words that its name is made of, and the kind of value
    that each of its parameters takes."""

    contract: Contract
    verb: str
    about: tuple[str, ...]
    kinds: Mapping[str, str]


def make_servers(seed: int, count: int) -> list[list[Tool]]:
    """`count` invented servers of 6 to 24 tools each; no two tools have the same name."""
    rng = random.Random(seed)
    taken: set[str] = set()
    made = (_make_server(rng, taken) for _ in range(count))
    return [tools for tools in made if tools]


def draw_word(rng: random.Random) -> str:
    """A common word, or one of syllables that no language has."""
    return rng.choice(load_words()["common"]) if rng.random() < 0.6 else _draw_syllables(rng)


def draw_value(rng: random.Random, kind: str, schema: Mapping[str, Any]) -> Any:
    """A value of a parameter of this kind."""
    if "enum" in schema:
        return rng.choice(schema["enum"])
    if kind == "int":
        return rng.choice((rng.randint(1, 20), rng.randint(1, 200), rng.randint(1, 5000)))
    if kind == "number":
        return round(rng.uniform(0, 500), rng.randint(1, 2))
    if kind == "bool":
        return rng.random() < 0.6
    if kind == "list":
        return [draw_word(rng) for _ in range(rng.randint(1, 3))]
    return _draw_text(rng, kind)


def _make_server(rng: random.Random, taken: set[str]) -> list[Tool]:
    words = load_words()
    own = rng.choice(
        (_draw_syllables(rng) + _draw_syllables(rng), rng.choice(words["objects"]), "", "")
    )
    objects = [_draw_object(rng) for _ in range(rng.randint(3, 8))]
    joined = rng.choice(("_", "_", "_", "_", "camel", "-"))
    tools: list[Tool] = []
    for _ in range(rng.randint(6, 24)):
        verb = rng.choice(list(words["verbs"]))
        about = rng.choice(objects)
        name = _join_words([*([own] if own else []), verb, *about], joined)
        if name not in taken and len(about) + bool(own) > 1:
            taken.add(name)
            tools.append(_make_tool(rng, name, verb, about, own))
    return tools


def _draw_object(rng: random.Random) -> tuple[str, ...]:
    words = load_words()
    noun = rng.choice(words["objects"]) if rng.random() < 0.75 else draw_word(rng)
    first = rng.random()
    if first < 0.35:
        return (rng.choice(words["adjectives"]), noun)
    return (rng.choice(words["objects"]), noun) if first < 0.75 else (noun,)


def _make_tool(rng: random.Random, name: str, verb: str, about: tuple[str, ...], own: str) -> Tool:
    words = load_words()
    kinds: dict[str, str] = {}
    properties: dict[str, Any] = {}
    for _ in range(rng.choice((0, 1, 1, 2, 2, 3, 3, 4, 5))):
        kind = rng.choice(tuple(words["parameters"]))
        parameter = rng.choice(words["parameters"][kind])
        if rng.random() < 0.2 and kind != "enum":
            parameter = f"{draw_word(rng)}_{parameter}"
        kinds[parameter], properties[parameter] = kind, _draw_parameter_schema(rng, kind, parameter)
    required = [each for each in properties if rng.random() < 0.65]
    phrase = verb if rng.random() < 0.7 else rng.choice(words["verbs"][verb])
    ends = (
        f" in {own}" if own else "",
        f" by {next(iter(properties), 'name')}",
        "",
        f", with its {rng.choice(words['objects'])}",
        f" of a {rng.choice(words['objects'])}",
    )
    description = f"{phrase.capitalize()} {rng.choice(('a', 'the', 'one', 'an existing'))}"
    description += f" {' '.join(about)}{rng.choice(ends)}."
    schema = {"type": "object", "properties": properties, "required": required}
    contract = {"name": name, "description": description, "inputSchema": schema}
    return Tool(contract, verb, about, kinds)


def _draw_parameter_schema(rng: random.Random, kind: str, parameter: str) -> dict[str, Any]:
    if kind == "enum":
        return {"type": "string", "enum": load_words()["choices"][parameter]}
    if kind == "list":
        return {"type": "array", "items": {"type": "string"}}
    return {"type": _TYPES.get(kind, "string")}


def _draw_text(rng: random.Random, kind: str) -> str:
    if kind == "phrase":
        phrase = " ".join(draw_word(rng) for _ in range(rng.randint(2, 5)))
        return phrase.capitalize() if rng.random() < 0.7 else phrase
    if kind == "name":
        return " ".join(draw_word(rng).capitalize() for _ in range(rng.randint(1, 2)))
    if kind == "id":
        digits = "".join(rng.choice("0123456789") for _ in range(rng.randint(3, 8)))
        return digits if rng.random() < 0.5 else f"{draw_word(rng)}_{digits[:6]}"
    if kind == "key":
        return f"{draw_word(rng)[:4].upper()}-{rng.randint(1, 9999)}"
    if kind == "path":
        ends = rng.choice(("csv", "txt", "pdf", "log", "json", "png"))
        start = rng.choice(("/data", "./src", "~/notes", "/srv", "reports"))
        return f"{start}/{draw_word(rng)}/{draw_word(rng)}.{ends}"
    if kind == "url":
        return f"https://{draw_word(rng)}.example/{draw_word(rng)}"
    if kind == "email":
        return f"{draw_word(rng)}@{draw_word(rng)}.example"
    if kind == "date":
        return f"20{rng.randint(24, 29)}-{rng.randint(1, 12):02}-{rng.randint(1, 28):02}"
    word = draw_word(rng)
    return word.capitalize() if rng.random() < 0.3 else word


def _join_words(words: list[str], how: str) -> str:
    if how == "camel":
        return words[0] + "".join(word.capitalize() for word in words[1:])
    return how.join(words)


def _draw_syllables(rng: random.Random) -> str:
    pairs = (rng.choice("bcdfghklmnprstvw") + rng.choice("aeiou") for _ in range(3))
    return "".join(list(pairs)[: rng.randint(2, 3)])
