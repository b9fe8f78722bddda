"""What tells two look-alike tools apart, in one sentence, from their contracts alone."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

from assets.contracts.canonical import iterate_parameters, tool_text
from assets.contracts.tool_id import ToolId
from assets.vectors.lexicon import (
    collect_words,
    find_base_form,
    find_family,
    join_words,
    stem_plural,
)
from warehouse.json_types import Contract, JsonObject
from warehouse.sanitize.untrusted_text import shorten_text
from warehouse.storage.files import read_data

_READS = {"read", "search", "compute"}
_WRITES = {"create", "update", "delete", "send"}
STOP = collect_words(read_data(__file__, "words.toml")["stop"])


@dataclass(frozen=True)
class ComparedTool:
    """One of the two tools."""

    server_id: str
    contract: Contract

    @cached_property
    def label(self) -> str:
        return join_lines(str(ToolId(self.server_id, self.contract["name"])), 90)

    @cached_property
    def server_words(self) -> list[str]:
        """The words of the server's own name, its owner left out: a fork's owner says nothing."""
        last = re.split(r"[/:]", self.server_id.rstrip("/"))[-1]
        parted = re.sub(r"mcp|\d+", " ", " ".join(find_names(last)))  # geminimcptest, atlassian12
        return [word for word in split_words(parted) if len(word) > 1 and word not in STOP]

    @cached_property
    def name_words(self) -> list[str]:
        return [word for word in find_names(self.contract["name"]) if word not in STOP]

    @cached_property
    def all_words(self) -> frozenset[str]:
        """All that it may be said to have; of the whole text, so that nothing is denied it."""
        texts = (tool_text(self.contract), self.server_id)
        words = [word for text in texts for word in (*split_words(text), *find_names(text))]
        return frozenset(map(stem_plural, [*words, *self.server_words]))

    @cached_property
    def taken(self) -> dict[str, tuple[str, JsonObject]]:
        """Parameter as it reads -> (as it is written, its schema)."""
        parameters = iterate_parameters(self.contract)
        return {
            flatten_name(name): (name, schema if isinstance(schema, Mapping) else {})
            for name, schema in parameters
        }

    @cached_property
    def needed(self) -> set[str]:
        required = (self.contract.get("inputSchema") or {}).get("required")
        names = required if isinstance(required, list) else []
        return {flatten_name(name) for name in names if isinstance(name, str)} & self.taken.keys()

    @cached_property
    def effect(self) -> str | None:
        """reads, writes, or None where neither its hints nor its verb say."""
        hint = (self.contract.get("annotations") or {}).get("readOnlyHint")
        if isinstance(hint, bool):
            return "only reads" if hint else "changes data"
        bases = (find_base_form(word) for word in find_names(self.contract["name"]))
        verb = next((base for base in bases if base), None)
        family = find_family(verb) if verb else None
        if family in _READS:
            return "only reads"
        return "changes data" if family in _WRITES else None


def split_words(text: str) -> list[str]:
    """Lower-case words of prose."""
    return [word for word in re.findall(r"[^\W_]+", text.casefold()) if len(word) < 30]


def find_names(text: str) -> list[str]:
    """Lower-case words of identifiers, parted at their joints."""
    return split_words(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text))


def flatten_name(name: str) -> str:
    """A name modulo case and separators."""
    return "".join(char for char in str(name).casefold() if char.isalnum())


def join_lines(text: str, most: int) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return shorten_text(text, most)


SERVER = "server"
_MOST = 3  # words or parameters named of one kind


def tell_apart(a: ComparedTool, b: ComparedTool) -> tuple[str, list[str]]:
    """The sentence, and the kinds of differences that it names ([] where there is none)."""
    facts: tuple[list[str], list[str]] = ([], [])
    kinds: list[str] = []
    for kind, find in _FINDERS.items():
        facts_found = find(a, b), find(b, a)
        if any(facts_found):
            kinds.append(kind)
            for own_facts, fact in zip(facts, facts_found, strict=True):
                own_facts += [fact] if fact else []
        if len(kinds) == (_MOST - 1 if kinds[:1] == [SERVER] else _MOST):
            break
    if not kinds:
        first, other = (flatten_name(side.contract["name"]) for side in (a, b))
        shared = ["same name"] if first == other else []
        words, others = (set(split_words(tool_text(side.contract))) for side in (a, b))
        shared += ["same words"] if words == others else ["nearly the same words"]
        same = a.taken.keys() == b.taken.keys()
        shared += (["same parameters"] if a.taken else ["no parameters"]) if same else []
        return f"Nothing in their contracts tells them apart: {', '.join(shared)}.", []
    lead = "Nothing but their servers tells them apart: " if kinds == [SERVER] else ""
    sides = [
        f"{side.label} {join_words(own_facts) if own_facts else 'has nothing of its own'}"
        for side, own_facts in zip((a, b), facts, strict=True)
    ]
    return f"{lead}{'; '.join(sides)}.", kinds


def _find_only(words: Iterable[str], other: ComparedTool) -> list[str]:
    return [word for word in dict.fromkeys(words) if stem_plural(word) not in other.all_words]


def _tell_by_servers(side: ComparedTool, other: ComparedTool) -> str:
    words = _find_only(side.server_words, other)
    return f"is for {_format_list(words[:_MOST])}" if words else ""


def _tell_by_names(side: ComparedTool, other: ComparedTool) -> str:
    words = [word for word in _find_only(side.name_words, other) if word not in side.server_words]
    return f"has {_format_list(words[:_MOST])} in its name" if words else ""


def _tell_by_required(side: ComparedTool, other: ComparedTool) -> str:
    only = [side.taken[name][0] for name in sorted(side.needed - other.needed)]
    return f"requires {_format_list(only[:_MOST])}" if only and other.taken else ""


def _tell_by_parameters(side: ComparedTool, other: ComparedTool) -> str:
    names = sorted(side.taken.keys() - other.taken.keys() - side.needed)
    only = [side.taken[name][0] for name in names]
    return f"takes {_format_list(only[:_MOST])}" if only and other.taken else ""


def _tell_by_effect(side: ComparedTool, other: ComparedTool) -> str:
    return side.effect if side.effect and other.effect and side.effect != other.effect else ""


def _tell_by_limits(side: ComparedTool, other: ComparedTool) -> str:
    """Of the first shared parameter that may hold other values."""
    for name in sorted(side.taken.keys() & other.taken.keys()):
        (own_name, own_schema), (_name, another) = side.taken[name], other.taken[name]
        mine, theirs = (
            [join_lines(str(value), 30) for value in enum[:50]] if isinstance(enum, list) else []
            for enum in (own_schema.get("enum"), another.get("enum"))
        )
        if mine and theirs and set(mine) != set(theirs):
            only = [value for value in mine if value not in theirs]
            return f"lets {own_name} be {_format_list(only[:_MOST])}" if only else ""
        for limit in ("maximum", "minimum", "maxLength", "maxItems"):
            x, y = own_schema.get(limit), another.get(limit)
            if isinstance(x, int | float) and isinstance(y, int | float) and x != y:
                return f"takes {own_name} {'from' if limit == 'minimum' else 'up to'} {x:g}"
    return ""


# By how much they help somebody choose: a product or field first, an optional parameter last.
_FINDERS = {
    SERVER: _tell_by_servers,
    "name": _tell_by_names,
    "effect": _tell_by_effect,
    "required": _tell_by_required,
    "limits": _tell_by_limits,
    "takes": _tell_by_parameters,
}


def _format_list(names: Sequence[str]) -> str:
    return join_words([join_lines(name, 40) for name in names])
