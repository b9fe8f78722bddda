"""Invented tool contracts that the tiny base learns from: servers of tools, and values for them.

Words come from `words.json` and from syllables; no contract of a marketplace is read.
"""

import json
import random
import re
from collections.abc import Iterable, Mapping, Sequence
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
class InventedTool:
    """A contract, the verb and the object words that its name is made of, and the kind of value
    that each of its parameters takes."""

    contract: Contract
    verb: str
    about: tuple[str, ...]
    kinds: Mapping[str, str]


def make_servers(seed: int, count: int) -> list[list[InventedTool]]:
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


def _make_server(rng: random.Random, taken: set[str]) -> list[InventedTool]:
    words = load_words()
    own = rng.choice(
        (_draw_syllables(rng) + _draw_syllables(rng), rng.choice(words["objects"]), "", "")
    )
    objects = [_draw_object(rng) for _ in range(rng.randint(3, 8))]
    joined = rng.choice(("_", "_", "_", "_", "camel", "-"))
    tools: list[InventedTool] = []
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


def _make_tool(
    rng: random.Random, name: str, verb: str, about: tuple[str, ...], own: str
) -> InventedTool:
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
    return InventedTool(contract, verb, about, kinds)


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


WORDS = 10  # of a description
OPTIONAL = 5  # parameters that are shown though they are not required
END, PAD, USER, CALL, NONE = "<|end|>", "<|pad|>", "<|user|>", "<|call|>", "<|none|>"
_TYPES_TEXT = ("str", "int", "num", "bool", "arr", "list", "obj", "any")
SPECIAL = (
    END, PAD, USER, CALL, NONE, "<|tool|>", "<|:|>",
    *(f"<|{kind}{how}|>" for how in ("", "?") for kind in _TYPES_TEXT),
)  # fmt: skip
# What stands between the words of a call, each one token: a value's own first and last characters
# never melt into it.
NAME, AFTER_NAME = '{"name": "', ('", "arguments": {"', '", "arguments": {}}')
SCAFFOLD = (
    NAME, *AFTER_NAME, '": "', '", "', '": ', ', "', '"}}',
    "}}", '"}', '": ["', '"]', '": {"', '"]}}', '": [{"', '"}]',
)  # fmt: skip
SPACE = "Ġ"  # how byte-level BPE writes a space
# What a piece may begin with, each piece with and without: `_get` and `/home` are one piece, since
# after a bare `_` or `/` too many things follow to copy the right one.
LEADS = (SPACE, "_", "/")
_PIECES = r"[ _/]?(?:[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[^\W\d_A-Za-z]+)| ?\d| ?[^\sA-Za-z\d]|\s"

_KIND = """
{%- macro first_type(s) -%}
{%- if s.type is string -%}{{ s.type }}
{%- elif s.type -%}{{ s.type | reject('equalto', 'null') | first }}
{%- elif s.anyOf is iterable and s.anyOf is not string -%}
{{ s.anyOf | select('mapping') | map(attribute='type') | select('string')
   | reject('equalto', 'null') | first }}
{%- endif -%}
{%- endmacro -%}
{%- macro kind(s) -%}
{%- set k = first_type(s) | trim -%}
{%- if k == 'integer' -%}int{%- elif k == 'number' -%}num{%- elif k == 'boolean' -%}bool
{%- elif k == 'object' -%}obj
{%- elif k == 'array' -%}
{%- if s['items'] is mapping and s['items'].type not in ['string', none] -%}list
{%- else -%}arr{%- endif -%}
{%- elif k == 'string' or s.enum -%}str{%- else -%}any{%- endif -%}
{%- endmacro -%}
"""
_BLOCK = """
{%- macro block(f) -%}
{%- set words = (f.description or '').split() -%}
<|tool|>{{ words[:WORDS] | join(' ') | lower | replace('<|', '< |') }}<|:|>{{ f.name }}
{%- set p = f.parameters or {} -%}
{%- set need = p.required or [] -%}
{%- set seen = namespace(optional=0) -%}
{%- for name, s in (p.properties or {}) | dictsort -%}
{%- if name in need -%}<|{{ kind(s) }}|>{{ name }}
{%- elif seen.optional < OPTIONAL -%}
{%- set seen.optional = seen.optional + 1 -%}<|{{ kind(s) }}?|>{{ name }}
{%- endif -%}
{%- endfor -%}
{%- endmacro -%}
"""
_CALLS = """
{%- macro written(called) -%}
{%- for c in called -%}
{"name": "{{ (c.function.name | tojson)[1:] }}, "arguments": {
{%- for name, value in c.function.arguments | dictsort -%}
{{ name | tojson }}: {{ value | tojson }}{%- if not loop.last -%}{{ ', ' }}{%- endif -%}
{%- endfor -%}
}}
{%- endfor -%}
{%- endmacro -%}
"""
_TURNS = """
{%- macro shown(text) -%}{{ (text or '') | replace('<|', '< |') }}{%- endmacro -%}
{%- set last = namespace(user=-1) -%}
{%- for m in messages -%}{%- if m.role == 'user' -%}{%- set last.user = loop.index0 -%}{%- endif -%}
{%- endfor -%}
{%- for m in messages -%}
{%- if m.role == 'user' -%}<|user|>{{ shown(m.content) }}
{%- if loop.index0 == last.user -%}
{%- for t in tools or [] -%}{{ block(t.function) }}{%- endfor -%}
{%- endif -%}
{%- elif m.role == 'assistant' -%}<|call|>
{%- if m.tool_calls -%}{{ written(m.tool_calls) }}
{%- else -%}<|none|>{{ shown(m.content) }}{%- endif -%}
<|end|>
{%- elif m.role == 'tool' -%}<|:|>{{ shown(m.content) }}
{%- endif -%}
{%- endfor -%}
{%- if add_generation_prompt -%}<|call|>{%- endif -%}
"""
# A system message is the same every time and is left out: 10 tokens of every prompt.
TEMPLATE = _KIND + _BLOCK + _CALLS + _TURNS
for _name, _value in (("WORDS", WORDS), ("OPTIONAL", OPTIONAL)):
    TEMPLATE = TEMPLATE.replace(_name, str(_value))


def make_tokenizer(texts: Iterable[str], vocabulary: int) -> Any:
    """A tokenizer trained on `texts`: `vocabulary` pieces of words, each with and without a space
    before it, the special tokens and the scaffold; its chat template is TEMPLATE."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, trainers
    from transformers import PreTrainedTokenizerFast

    learned = Tokenizer(models.BPE())
    learned.pre_tokenizer = _build_splitter(_PIECES.replace("[ _/]?", "").replace(" ?", ""))
    trainer = trainers.BpeTrainer(
        vocab_size=vocabulary, initial_alphabet=_list_alphabet(), show_progress=False
    )
    learned.train_from_iterator(texts, trainer)
    raw = Tokenizer(_with_spaces(json.loads(learned.to_str())["model"]))
    raw.pre_tokenizer = _build_splitter(_PIECES)
    raw.decoder = decoders.ByteLevel()
    raw.add_special_tokens([AddedToken(each, special=True, normalized=False) for each in SPECIAL])
    raw.add_tokens([AddedToken(each, normalized=False) for each in SCAFFOLD])
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw,
        eos_token=END,
        pad_token=PAD,
        additional_special_tokens=[each for each in SPECIAL if each not in (END, PAD)],
    )
    tokenizer.chat_template = TEMPLATE
    return tokenizer


def _with_spaces(learned: Mapping[str, Any]) -> Any:
    """The BPE with twins of every piece that begin with a space, `_` or `/`. Joining those are the
    last merges of all, so a word is cut alike with and without them."""
    from tokenizers import models

    merges = [
        tuple(m) if isinstance(m, list) else tuple(m.split(" ", 1)) for m in learned["merges"]
    ]
    pieces = dict.fromkeys(learned["vocab"])
    for piece in learned["vocab"]:
        for lead in LEADS if piece not in LEADS else ():
            if lead == SPACE or piece.isalpha():
                pieces[lead + piece] = None
                merges.append((lead, piece))
    return models.BPE(vocab={piece: at for at, piece in enumerate(pieces)}, merges=merges)


def _build_splitter(pieces: str) -> Any:
    from tokenizers import Regex, pre_tokenizers

    return pre_tokenizers.Sequence(
        [
            pre_tokenizers.Split(Regex(pieces), "isolated"),
            pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=False),
        ]
    )


def _list_alphabet() -> list[str]:
    from tokenizers import pre_tokenizers

    return sorted(pre_tokenizers.ByteLevel.alphabet())


Call = dict[str, Any]
_NUMBERS = ("one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten")


@dataclass(frozen=True)
class CallExercise:
    """The tools that are shown, a request, and its calls ([]: none of the tools can do it)."""

    tools: list[Contract]
    request: str
    calls: list[Call]


@dataclass(frozen=True)
class ExerciseShares:
    """How often an exercise is what."""

    none: float = 0.06  # no tool that is shown can do it
    several: float = 0.04  # two calls
    near: float = 0.5  # half of the tools are of one server
    fewer: float = 0.3  # fewer tools than there may be


def make_exercise(
    rng: random.Random,
    servers: Sequence[Sequence[InventedTool]],
    most: int,
    shares: ExerciseShares = ExerciseShares(),
) -> CallExercise:
    """A request about one of up to `most` tools of these servers."""
    tool, others = _draw_tools(rng, servers, most, shares)
    shown = [tool, *others]
    what = rng.random()
    if what < shares.none and most > 1:
        request, _ = write_request(rng, tool)
        return CallExercise([each.contract for each in others], request, [])
    request, call = write_request(rng, tool)
    calls = [call]
    if what < shares.none + shares.several and others:
        also, second = write_request(rng, rng.choice(others))
        request += rng.choice((" Also, ", " And then ", " Besides, ")) + also[:1].lower() + also[1:]
        calls.append(second)
    rng.shuffle(shown)
    return CallExercise([each.contract for each in shown], request, calls)


def write_request(rng: random.Random, tool: InventedTool) -> tuple[str, Call]:
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
    rng: random.Random, servers: Sequence[Sequence[InventedTool]], most: int, shares: ExerciseShares
) -> tuple[InventedTool, list[InventedTool]]:
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


def _phrase_tool(rng: random.Random, tool: InventedTool) -> str:
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
