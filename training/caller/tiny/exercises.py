"""What the tiny base is pretrained on: tools, and requests about them with their calls.

From a contract alone: some words of its name or description stand for the request, and values that
its schema allows are said beside the words of their parameter. From an accepted pair of the train
split: the same sentence with other values of the same shape, said and called alike, and fewer
asides. Held-out requests are never seen, nor is the synthesiser asked to write more.
"""

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from assets.contracts.validate import validate_call
from assets.synthesis.offline.values.values import arguments as draw_arguments

Contract = Mapping[str, Any]
Call = dict[str, Any]
Round = tuple[str, list[Call]]
_LIMITS = {"enum", "const", "pattern", "format", "maxLength", "minLength", "minimum", "maximum"}
_LEADS = ("Please", "Could you", "I need to", "Can you", "Let's", "Go ahead and", "Just", "", "")
_TAILS = ("", "", "", " Thanks.", " Please.", " Many thanks.")
_JOINS = (" Also, ", " And then ", " Besides, ", " While you're at it, ")


@dataclass(frozen=True)
class Shares:
    """How often an exercise is what."""

    pairs: float = 0.7  # requests from accepted pairs, where the tool has any
    none: float = 0.07  # no tool that is shown can do it
    several: float = 0.05  # two calls
    near: float = 0.3  # half of the tools are of one server
    fewer: float = 0.3  # fewer tools than there may be


@dataclass
class Material:
    """Contracts (train tools only), the train pairs of each, and words to make values of."""

    contracts: list[Contract]
    pairs: dict[str, list[Mapping[str, Any]]] = field(default_factory=dict)
    beside: dict[str, list[Contract]] = field(default_factory=dict)  # others of the same server
    words: list[str] = field(default_factory=list)
    shares: Shares = Shares()

    @classmethod
    def of(
        cls, contracts: Mapping[str, Contract], rows: Iterable[Mapping[str, Any]] = ()
    ) -> "Material":
        """Contracts by digest, and the accepted pairs of the train split with one right call."""
        made = cls([contracts[key] for key in sorted(contracts)])
        servers: dict[str, list[str]] = {}
        texts = [f"{c['name']} {c.get('description', '')}" for c in made.contracts]
        for row in sorted(rows, key=lambda row: row["pair_id"]):
            key = row["contract_digest"]
            texts.append(row["instruction"])
            if key in contracts and key not in servers.setdefault(row.get("server_id", ""), []):
                servers[row.get("server_id", "")].append(key)
            if key in contracts and row.get("arguments") and _one_call(row):
                told = {"said": row["instruction"], "arguments": json.loads(row["arguments"])}
                made.pairs.setdefault(contracts[key]["name"], []).append(told)
        for keys in servers.values():
            for key in keys:
                others = [contracts[other] for other in keys if other != key]
                made.beside[contracts[key]["name"]] = others
        found = {word.lower() for text in texts for word in re.findall(r"[A-Za-z]{3,9}", text)}
        made.words = sorted(found) or ["word"]
        return made


def exercise(
    rng: random.Random, material: Material, n: int, rounds: int
) -> tuple[list[Contract], list[Round]]:
    """Up to `n` tools of different names, and up to `rounds` requests about them with their calls
    ([]: none of the tools can do it)."""
    tools = _tools(rng, material, n)
    names = {tool["name"] for tool in tools}
    out: list[Round] = []
    for tool in rng.sample(tools, min(rounds, len(tools))):
        what = rng.random()
        others = [c for c in tools if c is not tool]
        if what < material.shares.none:
            other = rng.choice(material.contracts)
            if other["name"] not in names and (made := request(rng, other, material)):
                out.append((made[0], []))
        elif what < material.shares.none + material.shares.several and others:
            first, then = (request(rng, c, material) for c in (tool, rng.choice(others)))
            if first and then:
                said = then[0][:1].lower() + then[0][1:]
                out.append((first[0] + rng.choice(_JOINS) + said, [first[1], then[1]]))
        elif made := request(rng, tool, material):
            out.append((made[0], [made[1]]))
    return tools, out


def request(rng: random.Random, tool: Contract, material: Material) -> tuple[str, Call] | None:
    """A request for a tool and its call, valid by the tool's schema; None where none was found."""
    pairs = material.pairs.get(tool["name"], [])
    if pairs and rng.random() < material.shares.pairs:
        return moved(rng, tool, rng.choice(pairs), material.words)
    return written(rng, tool, material.words) or (
        moved(rng, tool, rng.choice(pairs), material.words) if pairs else None
    )


def written(rng: random.Random, tool: Contract, words: Sequence[str]) -> tuple[str, Call] | None:
    """A request in the tool's own words, its values beside the words of their parameters."""
    arguments = draw_arguments(tool, rng, 0.15)
    properties = (tool.get("inputSchema") or {}).get("properties") or {}
    for name, value in arguments.items():
        if isinstance(value, str) and _is_free(properties.get(name)) and rng.random() < 0.5:
            arguments[name] = reshaped(rng, value, words)
    if validate_call(dict(tool), arguments):
        return None
    told = [_said(rng, name, value) for name, value in arguments.items()]
    rng.shuffle(told)
    about = _about(rng, tool)
    parts = [about, *told] if rng.random() < 0.75 else [*told[:1], about, *told[1:]]
    text = f"{rng.choice(_LEADS)} {rng.choice((' ', ', ')).join(parts)}".strip()
    text = text[:1].upper() + text[1:] + rng.choice((".", "", "?")) + rng.choice(_TAILS)
    return text, {"name": tool["name"], "arguments": arguments}


def moved(
    rng: random.Random, tool: Contract, pair: Mapping[str, Any], words: Sequence[str]
) -> tuple[str, Call]:
    """An accepted pair with other values, said and called alike, and fewer asides."""
    text, arguments = pair["said"], dict(pair["arguments"])
    properties = (tool.get("inputSchema") or {}).get("properties") or {}
    for name, value in pair["arguments"].items():
        if not _is_free(properties.get(name)) or rng.random() < 0.3:
            continue
        if isinstance(value, str) and len(value) > 1 and text.count(value) == 1:
            new: Any = reshaped(rng, value, words)
            text, arguments[name] = text.replace(value, new), new
        elif type(value) is int and len(_number(value).findall(text)) == 1:
            new = rng.randint(1, 200)
            text, arguments[name] = _number(value).sub(str(new), text), new
    if validate_call(dict(tool), arguments):
        text, arguments = pair["said"], dict(pair["arguments"])
    return _shorter(rng, tool, text, arguments), {"name": tool["name"], "arguments": arguments}


def reshaped(rng: random.Random, value: str, words: Sequence[str]) -> str:
    """Another text of the same shape: words for words in their case, digits for digits."""

    def other(found: re.Match[str]) -> str:
        part = found.group(0)
        if part.isdigit():
            rest = "".join(rng.choice("0123456789") for _ in part[1:])
            return rng.choice("123456789") + rest
        word = rng.choice(words) if rng.random() < 0.6 else _syllables(rng)
        if part.isupper():
            return word.upper() if len(part) > 1 else rng.choice("ABCDEFGHIJKLMN")
        return word.capitalize() if part[0].isupper() else word

    return re.sub(r"[A-Za-z]+|[0-9]+", other, value)


def _tools(rng: random.Random, material: Material, n: int) -> list[Contract]:
    if rng.random() < material.shares.fewer:
        n = rng.randint(max(2, n // 2), max(2, n))
    first = rng.choice(material.contracts)
    chosen = {first["name"]: first}
    beside = material.beside.get(first["name"], [])
    if rng.random() < material.shares.near:
        chosen |= {c["name"]: c for c in rng.sample(beside, min(len(beside), n // 2))}
    for tool in rng.sample(material.contracts, min(2 * n, len(material.contracts))):
        if len(chosen) >= n:
            break
        chosen.setdefault(tool["name"], tool)
    tools = list(chosen.values())[:n]
    rng.shuffle(tools)
    return tools


def _about(rng: random.Random, tool: Contract) -> str:
    name = spoken(tool["name"]).split()
    first = (tool.get("description") or "").split(". ")[0]
    described = [word.lower() for word in re.findall(r"[^\W\d_]+", first)[:14]]
    if described and rng.random() < 0.6:
        kept = [word for word in described if rng.random() < 0.7]
    else:
        kept = [word for word in name if rng.random() < 0.75]
    if rng.random() < 0.15:
        rng.shuffle(kept)
    return " ".join(kept or name)


def _said(rng: random.Random, name: str, value: Any) -> str:
    told = spoken(name)
    if rng.random() < 0.3:
        told = told.split()[-1] if told.split() else name
    if isinstance(value, bool):
        return told if value else rng.choice((f"no {told}", f"without {told}", f"{told} off"))
    said = _as_words(rng, value)
    return rng.choice(
        (f"with {told} {said}", f"{told}: {said}", f"{said} as the {told}", f"in {said}",
         f"{told} {said}", f"the {told} is {said}", said, f"{told} set to {said}", f"for {said}",
         f"under {said}")
    )  # fmt: skip


def _as_words(rng: random.Random, value: Any) -> str:
    if isinstance(value, str):
        return value if " " not in value and rng.random() < 0.8 else f"'{value}'"
    if isinstance(value, list) and all(isinstance(item, str | int | float) for item in value):
        return rng.choice((", ", " and ")).join(str(item) for item in value)
    if isinstance(value, dict | list):
        return re.sub(r'[{}\[\]":]+', " ", json.dumps(value, ensure_ascii=False)).strip()
    return json.dumps(value)


def _shorter(rng: random.Random, tool: Contract, text: str, arguments: Mapping[str, Any]) -> str:
    """The text with fewer of the sentences that state nothing, if the rest is about the tool."""
    values = [v if isinstance(v, str) else json.dumps(v) for v in arguments.values()]
    sentences = re.split(r"(?<=[.?!]) (?=[A-Z])", text)
    kept = [s for s in sentences if rng.random() < 0.3 or any(v in s for v in values)]
    left = " ".join(kept)
    stated = all((value in left) == (value in text) for value in values)
    return left if left and stated and _shares_a_word(tool, left) else text


def _shares_a_word(tool: Contract, text: str) -> bool:
    told = f"{spoken(tool['name'])} {tool.get('description') or ''}".lower()
    return bool(set(re.findall(r"\w{4,}", text.lower())) & set(re.findall(r"\w{4,}", told)))


def spoken(name: str) -> str:
    """A name as words: `issueKey` and `issue_key` are both "issue key"."""
    return re.sub(r"([a-z])([A-Z])", r"\1 \2", name).replace("_", " ").replace("-", " ").lower()


def _one_call(row: Mapping[str, Any]) -> bool:
    calls = row.get("calls")
    return calls is None or len(json.loads(calls) if isinstance(calls, str) else calls) == 1


def _is_free(schema: Any) -> bool:
    """Whether any other text or number will do for this parameter."""
    return (
        isinstance(schema, Mapping)
        and schema.get("type") in ("string", "integer")
        and not _LIMITS & schema.keys()
    )


def _number(value: int) -> re.Pattern[str]:
    return re.compile(rf"(?<![\w.]){value}(?![\w.])")


def _syllables(rng: random.Random) -> str:
    parts = (rng.choice("bcdfghklmnprstvw") + rng.choice("aeiou") for _ in range(3))
    return "".join(list(parts)[: rng.randint(1, 3)])
