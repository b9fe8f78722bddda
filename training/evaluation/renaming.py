"""Renamed tools: new names for tools and parameters, in contracts, texts and golden calls."""

import hashlib
import random
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.contracts.canonical import tool_text
from warehouse.json_types import Contract

Call = Mapping[str, Any]

_MOST_NAME = 64  # characters that model APIs take
_NAME_MARKS = ("run", "do", "use", "call")


IDENTIFIER = re.compile(r"[_\-.]|[a-z][A-Z]")


def make_new_names(
    names: Sequence[str], seed: int = 0, other_names: frozenset[str] | set[str] = frozenset()
) -> dict[str, str]:
    """Old name -> new one: the same words, usable by every model API, none old, none twice."""
    used_names = {*names, *other_names}
    out: dict[str, str] = {}
    for name in names:
        words = tool_text({"name": name}, "name").split() or ["tool"]
        rng = random.Random(hash_to_number(f"{seed}|{name}"))
        one = len(words) == 1
        words = [rng.choice(_NAME_MARKS), *words] if one else [*words[1:], words[0]]
        fresh = _join_name_words(words, "_" if "_" not in name else "camel")[:_MOST_NAME]
        number = 2
        while fresh in used_names:
            fresh = f"{_join_name_words(words, '_')[: _MOST_NAME - 4]}_{number}"
            number += 1
        used_names.add(fresh)
        out[name] = fresh
    return out


def make_name_replacer(
    anywhere: Mapping[str, str], in_code: Mapping[str, str] | None = None
) -> Callable[[str], str]:
    """A text with old names replaced: identifiers wherever they stand as a word, any name where it
    stands in backticks. A name that is a plain word stays in prose, where it is prose."""
    patterns = []
    if anywhere:
        joined_names = "|".join(map(re.escape, sorted(anywhere, key=len, reverse=True)))
        patterns.append((re.compile(rf"(?<![\w.-])(?:{joined_names})(?![\w-])"), anywhere))
    plain = {old: new for old, new in (in_code or {}).items() if old not in anywhere}
    if plain:
        joined_names = "|".join(map(re.escape, sorted(plain, key=len, reverse=True)))
        patterns.append((re.compile(rf"(?<=`)(?:{joined_names})(?=`)"), plain))

    def replace_names(text: str) -> str:
        for pattern, names in patterns:
            text = pattern.sub(lambda match, names=names: names[match.group()], text)
        return text

    return replace_names


def _join_name_words(words: Sequence[str], style: str) -> str:
    clean = [re.sub(r"[^A-Za-z0-9]", "", word) for word in words]
    clean = [word for word in clean if word] or ["tool"]
    if style == "camel":
        return clean[0] + "".join(word[0].upper() + word[1:] for word in clean[1:])
    return style.join(clean)


def hash_to_number(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "replace")).digest()[:8])


@dataclass(frozen=True)
class ChangedTools:
    """Tools and golden calls after a change; `changed`: new names of those that differ."""

    tools: list[dict[str, Any]]
    expected: list[dict[str, Any]]
    changed: frozenset[str]


def rename_tools(
    tools: Sequence[Contract], expected: Sequence[Call], names: Mapping[str, str]
) -> ChangedTools:
    """Renames tools and golden calls; identifiers are replaced in descriptions too."""
    moved = {old: new for old, new in names.items() if old != new and IDENTIFIER.search(old)}
    replace_names = make_name_replacer(moved)
    renamed = []
    for tool in tools:
        fresh = {**tool, "name": names[str(tool["name"])]}
        if isinstance(tool.get("description"), str):
            fresh["description"] = replace_names(tool["description"])
        renamed.append(fresh)
    calls = [{**call, "name": names.get(str(call["name"]), call["name"])} for call in expected]
    return ChangedTools(renamed, calls, frozenset(new for old, new in names.items() if old != new))


def rename_one_tool(
    tools: Sequence[Contract], expected: Sequence[Call], old: str, seed: int = 0
) -> ChangedTools:
    """Only the tool `old` under another name: as after an update of its server."""
    names = [str(tool["name"]) for tool in tools]
    fresh = make_new_names([old], seed, other_names={*names})
    return rename_tools(tools, expected, {**{name: name for name in names}, **fresh})
