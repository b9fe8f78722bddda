"""Does the conversation hold a value? As it is written, case and separators aside."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from assets.contracts.repair.names import fold_name, is_confirming, is_guard
from assets.contracts.schema.reading import collect_properties, read_default
from assets.contracts.validate import Flaw
from assets.synthesis.verify.grounding.folding import fold_text

_LEAVES = 100  # values within one that are looked for
_YES = ("yes", "true", "y", "on", "1")
LONGEST = 200_000  # characters of a conversation that are searched, the latest
_WORD = re.compile(r"[^\W_]+")
_NUMBER = re.compile(r"(?<![\w.])[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?(?![\w])|[+-]?\d+(?:\.\d+)?")


class Evidence:
    """What a conversation says, read once. messages: {role, content}, content a text or a list of
    parts with `text`."""

    def __init__(self, messages: Sequence[Mapping[str, Any]] | str) -> None:
        spoken = [("user", messages)] if isinstance(messages, str) else list(_read_spoken(messages))
        self.all = "\n".join(text for _, text in spoken)[-LONGEST:]
        said = [text for role, text in spoken if role == "user" and text.strip()]
        self.user, self.latest = "\n".join(said)[-LONGEST:], "".join(said[-1:])[-LONGEST:]

    @cached_property
    def _folded(self) -> str:
        return fold_text(self.all)

    @cached_property
    def _words(self) -> str:
        return space_words(self._folded)

    @cached_property
    def _numbers(self) -> set[float]:
        return {float(found.replace(",", "")) for found in _NUMBER.findall(self._folded)[:5000]}

    def states(self, value: Any, schema: Mapping[str, Any], name: str) -> bool:
        """As `holds`, and in other words where the packages that know them are installed (numbers
        as words, dates as people say them: the extra `platform`)."""
        if self.holds(value):
            return True
        try:
            from assets.synthesis.verify.grounding.grounding import STATED, Text, grade_value
        except ModuleNotFoundError:
            return False
        if isinstance(value, Mapping | list):
            return False
        return grade_value(value, schema, name, Text(self.user)) == STATED

    def is_said(self, value: Any) -> bool:
        """As `holds`, of values that are worth saying: a switch, null or nothing at all is not, nor
        is what has only these in it, nor more than is looked for."""
        leaves = list(islice(_list_leaves(value), _LEAVES + 1))
        return len(leaves) <= _LEAVES and any(map(_is_telling, leaves)) and self.holds(value)

    def holds(self, value: Any) -> bool:
        """Whether it is said: a number by its value, a text word by word, of a list or object all
        that is in it. null and switches need no words."""
        if value is None or isinstance(value, bool):
            return True
        if isinstance(value, int | float):
            try:
                return float(value) in self._numbers
            except OverflowError:  # a whole number beyond any that is read
                return False
        if isinstance(value, Mapping):
            return all(map(self.holds, value.values()))
        if isinstance(value, list):
            return all(map(self.holds, value))
        words = space_words(fold_text(str(value)[:LONGEST]))
        return words in self._words if words.strip() else str(value).strip() in self.all


def list_invented(
    contract: Mapping[str, Any],
    arguments: Mapping[str, Any],
    given: Mapping[str, Any],
    evidence: Evidence,
) -> Iterator[str]:
    """The required arguments whose value neither the draft's arguments `given`, the contract nor
    the conversation has; and what confirms the call, where the draft does not: nobody else may."""
    root, drafted = contract["inputSchema"], dict(_list_members(given))
    for place, value in _list_members(arguments):
        yes = value not in (False, None) if len(place) == 1 else _is_yes(value)
        if yes and is_confirming(str(place[-1])) and drafted.get(place) != value:
            yield ".".join(map(str, place))
    declared = collect_properties(root, root)
    for name in root.get("required") or ():
        if name not in arguments or any(arguments[name] == one for one in given.values()):
            continue
        value, schema = arguments[name], declared.get(name, {})
        fixed = read_default(schema, root) == (True, value)
        if not fixed and not evidence.states(value, schema, str(name)):
            yield str(name)


def list_unguarded(arguments: Any, given: Any, flaws: Sequence[Flaw]) -> Iterator[str]:
    """What guards or narrows the call in the draft's arguments `given` and no longer does. A value
    with a flaw may become another one, which says something too."""
    kept: dict[str, list[Any]] = {}
    for place, value in _list_members(arguments):
        kept.setdefault(_fold_guard(place), []).append(value)
    wrong = [tuple(flaw.at) for flaw in flaws if flaw.kind != "unknown_argument"]
    for place, value in _list_members(given):
        if not is_guard(str(place[-1])) or not _is_stated(value):
            continue
        left = kept.get(_fold_guard(place), [])
        flawed = any(at[: len(place)] == place for at in wrong)
        if value not in left and not (flawed and any(map(_is_stated, left))):
            yield ".".join(map(str, place))


def _fold_guard(place: tuple[Any, ...]) -> str:
    return fold_name(str(place[-1])).removesuffix("s")


def _is_stated(value: Any) -> bool:
    """False alone guards nothing; within a condition it does."""
    leaves = _list_leaves(value)
    return value is not False and any(
        isinstance(leave, bool) or _is_telling(leave) for leave in leaves
    )


def _is_telling(leaf: Any) -> bool:
    return not (
        leaf is None or isinstance(leaf, bool) or (isinstance(leaf, str) and not leaf.strip())
    )


def _is_yes(value: Any) -> bool:
    return value is True or value == 1 or (isinstance(value, str) and value.lower() in _YES)


def _list_members(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(place, value) of every member of an object and of the objects within."""
    stack: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while stack:
        at, held = stack.pop()
        named = isinstance(held, Mapping)
        for name, one in (
            held.items() if named else enumerate(held) if isinstance(held, list) else ()
        ):
            if named:
                yield (*at, name), one
            stack.append(((*at, name), one))


def _list_leaves(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        held = stack.pop()
        if isinstance(held, Mapping | list):
            stack.extend(held.values() if isinstance(held, Mapping) else held)
        else:
            yield held


def space_words(folded: str) -> str:
    """The words of a folded text with one blank between them, and around."""
    return f" {' '.join(_WORD.findall(folded))} "


def _read_spoken(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(role, text) of each message. What an earlier call was given is no evidence: the same model
    wrote it."""
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        role, content = str(message.get("role") or ""), message.get("content")
        if isinstance(content, str):
            yield role, content
        elif isinstance(content, list):
            parts = [one.get("text") for one in content if isinstance(one, Mapping)]
            yield role, "\n".join(part for part in parts if isinstance(part, str))
        if isinstance(message.get("output"), str):  # a tool's result in the Responses API
            yield "tool", message["output"]
