"""What the tiny base is trained on: requests about invented tools, with their calls.

Some words of a tool's name or description stand for the request, and values that its schema allows
are said beside the words of their parameters.
"""

import random
import re
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from training.caller.tiny.contracts import Contract, Tool, draw_value, load_words

Call = dict[str, Any]
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class Exercise:
    """The tools that are shown, a request, and its calls ([]: none of the tools can do it)."""

    tools: list[Contract]
    request: str
    calls: list[Call]


@dataclass(frozen=True)
class Shares:
    """How often an exercise is what."""

    none: float = 0.06  # no tool that is shown can do it
    several: float = 0.04  # two calls
    near: float = 0.5  # half of the tools are of one server
    fewer: float = 0.3  # fewer tools than there may be


def make_exercise(
    rng: random.Random, servers: Sequence[Sequence[Tool]], most: int, shares: Shares = Shares()
) -> Exercise:
    """A request about one of up to `most` tools of these servers."""
    tool, others = _draw_tools(rng, servers, most, shares)
    shown = [tool, *others]
    what = rng.random()
    if what < shares.none and most > 1:
        request, _ = write_request(rng, tool)
        return Exercise([each.contract for each in others], request, [])
    request, call = write_request(rng, tool)
    calls = [call]
    if what < shares.none + shares.several and others:
        also, second = write_request(rng, rng.choice(others))
        request += rng.choice((" Also, ", " And then ", " Besides, ")) + also[:1].lower() + also[1:]
        calls.append(second)
    rng.shuffle(shown)
    return Exercise([each.contract for each in shown], request, calls)


def write_request(rng: random.Random, tool: Tool) -> tuple[str, Call]:
    """A request for a tool, and the call that answers it."""
    words = load_words()
    schema = tool.contract["inputSchema"]
    arguments = {
        name: draw_value(rng, tool.kinds[name], schema["properties"][name])
        for name in schema["properties"]
        if name in schema["required"] or rng.random() < 0.2
    }
    phrases = [_phrase_parameter(rng, name, value) for name, value in arguments.items()]
    rng.shuffle(phrases)
    about = _phrase_tool(rng, tool)
    parts = [about, *phrases] if rng.random() < 0.8 else [*phrases[:1], about, *phrases[1:]]
    text = f"{rng.choice(words['leads'])} {rng.choice((' ', ', ')).join(parts)}".strip()
    text = text[:1].upper() + text[1:] + rng.choice((".", ".", "", "?"))
    before = rng.choice(words["asides"]) if rng.random() < 0.25 else ""
    after = rng.choice((*words["tails"], rng.choice(words["asides"])))
    request = " ".join(part for part in (before, text, after) if part)
    return request, {"name": tool.contract["name"], "arguments": arguments}


def _draw_tools(
    rng: random.Random, servers: Sequence[Sequence[Tool]], most: int, shares: Shares
) -> tuple[Tool, list[Tool]]:
    if rng.random() < shares.fewer:
        most = rng.randint(min(2, most), most)
    own = rng.choice(servers)
    tool = rng.choice(own)
    others = {}
    if rng.random() < shares.near:
        others = {each.contract["name"]: each for each in rng.sample(own, min(len(own), most // 2))}
    while len(others) < most:
        each = rng.choice(rng.choice(servers))
        others[each.contract["name"]] = each
    others.pop(tool.contract["name"], None)
    return tool, list(others.values())[: most - 1]


def _phrase_tool(rng: random.Random, tool: Tool) -> str:
    words = load_words()
    verb = tool.verb if rng.random() < 0.5 else rng.choice(words["verbs"][tool.verb])
    drawn = rng.random()
    if drawn < 0.4:
        described = re.findall(r"[^\W\d_]+", tool.contract["description"])
        kept = [word.lower() for word in described if rng.random() < 0.75]
        return " ".join(kept) or " ".join((verb, *tool.about))
    about = list(tool.about)
    if drawn < 0.6 and len(about) > 1:
        about.pop(rng.randrange(len(about)))
    if rng.random() < 0.2:
        about[-1] += "s"
    return " ".join([verb, rng.choice(("a", "the", "my", "this", "")), *about]).replace("  ", " ")


def _phrase_parameter(rng: random.Random, name: str, value: Any) -> str:
    label = split_name(name)
    if rng.random() < 0.3:
        label = label.split()[-1]
    if isinstance(value, bool):
        return label if value else rng.choice((f"no {label}", f"without {label}", f"{label} off"))
    phrase = _phrase_value(rng, value)
    return rng.choice(
        (f"with {label} {phrase}", f"{label}: {phrase}", f"{phrase} as the {label}",
         f"{label} {phrase}", f"the {label} is {phrase}", f"{label} set to {phrase}",
         f"for {phrase}", f"in {phrase}", phrase, f"with {phrase} for the {label}",
         f"the {label} {phrase}")
    )  # fmt: skip


def _phrase_value(rng: random.Random, value: Any) -> str:
    if isinstance(value, list):
        return " and ".join(_phrase_value(rng, each) for each in value)
    if isinstance(value, int) and 1 <= value <= 10 and rng.random() < 0.2:
        return _NUMBERS[value - 1]
    if isinstance(value, str) and rng.random() < (0.6 if " " in value else 0.2):
        return f"'{value}'"
    return str(value)


def split_name(name: str) -> str:
    """A name as words: `issueKey` and `issue_key` are both "issue key"."""
    return re.sub(r"([a-z])([A-Z])", r"\1 \2", name).replace("_", " ").replace("-", " ").lower()
