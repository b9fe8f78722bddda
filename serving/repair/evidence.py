"""Does the conversation hold a value? As it is written, case and separators aside."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any

from assets.contracts.repair.names import is_confirming
from assets.contracts.schema.reading import collect_properties, read_default
from assets.synthesis.verify.grounding.folding import fold_text

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
        """As `holds`, of values that are worth saying: a switch, null or nothing at all is not."""
        empty = isinstance(value, bool) or value in (None, "", [], {})
        return not empty and self.holds(value)

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
    root = contract["inputSchema"]
    for name, value in arguments.items():
        if is_confirming(name) and value not in (False, None) and given.get(name) != value:
            yield name
    declared = collect_properties(root, root)
    for name in root.get("required") or ():
        if name not in arguments or any(arguments[name] == one for one in given.values()):
            continue
        value, schema = arguments[name], declared.get(name, {})
        fixed = read_default(schema, root) == (True, value)
        if not fixed and not evidence.states(value, schema, str(name)):
            yield str(name)


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
            yield role, "\n".join(one for one in parts if isinstance(one, str))
        if isinstance(message.get("output"), str):  # a tool's result in the Responses API
            yield "tool", message["output"]
