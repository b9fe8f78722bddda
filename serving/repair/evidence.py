"""What the conversation says. A required value is filled in only if the user names it for its
parameter, or if it is the only one of its kind, unused and not ruled out. Anything less is asked
for, and so are secrets, which a tool could ask for, and confirmations, which only the model can
give."""

import re
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import islice
from typing import Any

from assets.contracts.repair.names import fold_name, is_confirming, is_guard
from assets.contracts.repair.problems import find_choices, find_types
from assets.contracts.schema_shapes import collect_properties, iterate_branches, read_default
from assets.contracts.validate import Flaw
from assets.synthesis.verify.words import fold_text
from assets.vectors.lexicon import split_identifier, stem_plural
from warehouse.json_types import Schema
from warehouse.patterns import compile_pattern
from warehouse.sanitize.secret_names import is_secret_name

_LEAVES = 100  # values within one that are looked for
_YES = ("yes", "true", "y", "on", "1")
LONGEST = 200_000  # characters of a conversation that are searched, the latest
_WORD = re.compile(r"[^\W_]+")
_THOUSANDS = compile_pattern(
    r"[+-]?\d{1,3}(?:,\d{3})+(?:\.\d+)?", unless_after=r"\w.", unless_before=r"\w"
)
_NUMBER = compile_pattern(r"[+-]?\d+(?:\.\d+)?")
_LONGEST_NAME = 128  # characters of a parameter's name that are looked for
_TEXT = 20_000  # characters of what the user says that are searched
_KINDS = {
    "email": re.compile(r"(?<![\w.+-])[\w.+-]{1,64}@[\w-]{1,63}(?:\.[\w-]{1,63}){1,5}(?<![.-])"),
    "uri": re.compile(r"\bhttps?://[^\s<>\"'`]{1,2000}(?<![.,;:!?)\]}])"),
    "uuid": re.compile(r"\b[0-9a-fA-F]{8}(?:-[0-9a-fA-F]{4}){3}-[0-9a-fA-F]{12}\b"),
    "ipv4": re.compile(r"(?<![\w.])(?:\d{1,3}\.){3}\d{1,3}(?![\w.])"),
    "date": re.compile(r"(?<![\w-])(?:19|20)\d\d-[01]\d-[0-3]\d(?![\w-])"),
}
_WORDS = {"email": "email", "mail": "email", "url": "uri", "uri": "uri", "link": "uri",
          "uuid": "uuid", "ip": "ipv4", "date": "date"}  # fmt: skip
_QUOTED = re.compile(r"\"([^\"\n]{1,500})\"|“([^”\n]{1,500})”|`([^`\n]{1,500})`|(?<!\w)'([^'\n]{1,500})'(?!\w)")  # fmt: skip  # noqa: E501
_CODES = {"otp", "totp", "pin", "cvv", "cvc"}  # that are nobody's to hand on
_KEYED = {  # what the key of an account is spoken of with
    *("api", "auth", "authenticate", "authentication", "authorization", "authorize", "access"),
    *("credential", "credentials", "secret", "token", "password", "login", "license"),
}
# What a colon announces and the points of a list belong to the sentence before them.
_SENTENCE = re.compile(r"(?<=[.!?;])\s+|(?:(?<![:\n])|(?<=:\n))\n++(?!\s*+(?:[-*•]|\d{1,9}[.)]))")
_DENYING = re.compile(  # of the languages that most is written in
    r"n['’ʼ]t\b|\b(?:do|does|did|wo|ca|is|are|should|must|would|could)nt\b"
    r"|\b(?:not?|never|cannot|without|except|but|instead|rather|other than|unless|neither|nor|none"
    r"|keep|avoid|exclud\w*|skip|ignore|forget|nicht|kein\w*|nie|niemals|ohne|außer|statt|pas|jamais"
    r"|sans|sauf|nunca|sin|excepto|salvo|jamás|não|sem|exceto|non|mai|senza|tranne|niet|geen|nooit"
    r"|не|нет|никогда|кроме|без)\b|不|别|勿|除了",
    re.IGNORECASE,
)
_IS = r"\s*(?:=|:|\bis\b|\bto\b|\bof\b|\bas\b|\bnamed\b|\bcalled\b)?\s*"
_NUMBER_PATTERN = r"([+-]?\d{1,15}(?:\.\d{1,10})?)(?![\w]|[.,:/-]\d)"


class ConversationEvidence:
    """A conversation, read once. messages: {role, content}, text or parts with `text`."""

    def __init__(self, messages: Sequence[Mapping[str, Any]] | str) -> None:
        spoken = [("user", messages)] if isinstance(messages, str) else list(_read_spoken(messages))
        self.all = "\n".join(text for _, text in spoken)[-LONGEST:]
        user_texts = [text for role, text in spoken if role == "user" and text.strip()]
        self.user, self.latest = (
            "\n".join(user_texts)[-LONGEST:],
            "".join(user_texts[-1:])[-LONGEST:],
        )

    @cached_property
    def _folded(self) -> str:
        return fold_text(self.all)

    @cached_property
    def _words(self) -> str:
        return space_words(self._folded)

    @cached_property
    def _numbers(self) -> set[float]:
        grouped = _THOUSANDS.findall(self._folded)
        numbers = [*_NUMBER.findall(_THOUSANDS.sub(" ", self._folded)), *grouped]
        return {float(item.replace(",", "")) for item in numbers[:5000]}

    def states(self, value: Any, schema: Mapping[str, Any], name: str) -> bool:
        """As `holds`, and in other words where the packages that know them are installed (numbers
        as words, dates as people say them: the extra `platform`)."""
        if self.holds(value):
            return True
        try:
            from assets.synthesis.verify.grading import grade_value
            from assets.synthesis.verify.request_text import RequestText
            from assets.synthesis.verify.words import STATED
        except ModuleNotFoundError:
            return False
        if isinstance(value, Mapping | list):
            return False
        return grade_value(value, schema, name, RequestText(self.user)) == STATED

    def is_said(self, value: Any) -> bool:
        """As `holds`, of values that are worth saying: a switch, null or nothing at all is not, nor
        is what has only these in it, nor more than is looked for."""
        leaves = list(islice(_list_leaves(value), _LEAVES + 1))
        return len(leaves) <= _LEAVES and any(map(_is_telling, leaves)) and self.holds(value)

    def holds(self, value: Any) -> bool:
        """Whether it is said: numbers by value, texts by word, all members; null needs no words."""
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
    drafted_arguments: Mapping[str, Any],
    evidence: ConversationEvidence,
) -> Iterator[str]:
    """The required arguments whose value neither the draft's arguments `given`, the contract nor
    the conversation has; and what confirms the call, where the draft does not: nobody else may."""
    root, drafted = contract["inputSchema"], dict(_list_members(drafted_arguments))
    for place, value in _list_members(arguments):
        said = isinstance(value, str) and value.lower() in _YES
        yes = value not in (False, None) if len(place) == 1 else said or value == 1
        if yes and is_confirming(str(place[-1])) and drafted.get(place) != value:
            yield ".".join(map(str, place))
    declared = collect_properties(root, root)
    for name in root.get("required") or ():
        if name not in arguments or any(
            arguments[name] == item for item in drafted_arguments.values()
        ):
            continue
        value, schema = arguments[name], declared.get(name, {})
        fixed = read_default(schema, root) == (True, value)
        if not fixed and not evidence.states(value, schema, str(name)):
            yield str(name)


def list_unguarded(arguments: Any, drafted: Any, flaws: Sequence[Flaw]) -> Iterator[str]:
    """What guards or narrows the call in the draft's arguments `given` and no longer does. A value
    with a flaw may become another one, which says something too."""
    values_of: dict[str, list[Any]] = {}
    for place, value in _list_members(arguments):
        values_of.setdefault(_fold_guard(place), []).append(value)
    wrong = [tuple(flaw.at) for flaw in flaws if flaw.kind != "unknown_argument"]
    for place, value in _list_members(drafted):
        if not is_guard(str(place[-1])) or not _is_stated(value):
            continue
        left = values_of.get(_fold_guard(place), [])
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


def _list_members(value: Any) -> Iterator[tuple[tuple[Any, ...], Any]]:
    """(place, value) of every member of an object and of the objects within."""
    stack: list[tuple[tuple[Any, ...], Any]] = [((), value)]
    while stack:
        at, item = stack.pop()
        is_object = isinstance(item, Mapping)
        for name, member in (
            item.items() if is_object else enumerate(item) if isinstance(item, list) else ()
        ):
            if is_object:
                yield (*at, name), member
            stack.append(((*at, name), member))


def _list_leaves(value: Any) -> Iterator[Any]:
    stack = [value]
    while stack:
        item = stack.pop()
        if isinstance(item, Mapping | list):
            stack.extend(item.values() if isinstance(item, Mapping) else item)
        else:
            yield item


def space_words(folded: str) -> str:
    """The words of a folded text with one blank between them, and around."""
    return f" {' '.join(_WORD.findall(folded))} "


def _read_spoken(messages: Sequence[Mapping[str, Any]]) -> Iterator[tuple[str, str]]:
    """(role, text) of each message; not earlier arguments, which the same model wrote."""
    for message in messages:
        if not isinstance(message, Mapping):
            continue
        role, content = str(message.get("role") or ""), message.get("content")
        if isinstance(content, str):
            yield role, content
        elif isinstance(content, list):
            texts = [item.get("text") for item in content if isinstance(item, Mapping)]
            yield role, "\n".join(part for part in texts if isinstance(part, str))
        if isinstance(message.get("output"), str):  # a tool's result in the Responses API
            yield "tool", message["output"]


def find_stated_value(
    name: str, schema: Any, root: Schema, user: str, used: Sequence[Any], tool: str = ""
) -> tuple[Any, str] | None:
    """(a parameter's value, why) that contract or user leave no doubt about, else None. user: what
    is said last, as earlier values may be of earlier calls. used: other arguments' values."""
    if is_confirming(name) or _is_secret(name, schema, root, tool):
        return None
    choices = find_choices(schema, root)
    if len(choices) == 1:
        sure = isinstance(choices[0], str | int | float) and not isinstance(choices[0], bool)
        return (choices[0], "the contract allows no other value") if sure else None
    sentences: tuple[list[str], list[str]] = [], []
    for sentence in _SENTENCE.split(user[-_TEXT:]):
        sentences[bool(_DENYING.search(sentence))].append(sentence)
    affirmed, ruled_out = "\n".join(sentences[0]), "\n".join(sentences[1])
    stated = _find_stated(name, schema, root, affirmed, choices, used)
    return None if stated and str(stated[0]) in ruled_out else stated


def _is_secret(name: str, schema: Any, root: Schema, tool: str) -> bool:
    """Whether only the model may give it; `key` alone also names what a store or a table has."""
    words = split_identifier(name)
    if [*words] in (["key"], ["keys"]):
        about = [str(branch.get("description"))[:2000] for branch in iterate_branches(schema, root)]
        words_said = {word for text in (tool[:2000], *about) for word in split_identifier(text)}
        return not _KEYED.isdisjoint(words_said)
    return is_secret_name(name) or not _CODES.isdisjoint(words)


def _find_stated(
    name: str, schema: Any, root: Schema, user: str, choices: Sequence[Any], used: Sequence[Any]
) -> tuple[Any, str] | None:
    if choices:
        choices_named = [
            choice for choice in choices if isinstance(choice, str) and _holds_word(choice, user)
        ]
        return (
            (choices_named[0], "the user names this choice alone")
            if len(choices_named) == 1
            else None
        )
    types = find_types(schema, root)
    if types & {"integer", "number"}:
        return _pick_only(_find_numbers(name, user, "number" in types), "the user gives the number")
    if types and "string" not in types:
        return None
    kind = _find_kind(name, schema, root)
    if kind:
        values = [item for item in _KINDS[kind].findall(user) if item not in used]
        return _pick_only(values, f"the only {kind} that the user gives")
    return _pick_only(_find_assigned(name, user), "the user gives it by its name")


def _pick_only(values: Sequence[Any], why: str) -> tuple[Any, str] | None:
    different = list(dict.fromkeys(values))
    return (different[0], why) if len(different) == 1 else None


def _holds_word(choice: str, user: str) -> bool:
    words = space_words(fold_text(choice))
    return len(words) > 4 and words in space_words(fold_text(user))


def _find_kind(name: str, schema: Any, root: Schema) -> str | None:
    for branch in iterate_branches(schema, root):
        if isinstance(branch, Mapping) and branch.get("format") in (*_KINDS, "url"):
            return "uri" if branch["format"] == "url" else branch["format"]
    words = split_identifier(name)
    return _WORDS.get(words[-1]) if words and _WORDS.get(words[-1]) != "date" else None


def _build_name_pattern(name: str) -> str:
    """A parameter's name as it is said: words with blanks, singular or plural."""
    words = [re.escape(stem_plural(word)) + "s?" for word in split_identifier(name[:_LONGEST_NAME])]
    return r"[\s_-]*".join(words)


def _find_numbers(name: str, user: str, fractions: bool) -> list[float | int]:
    pattern = _build_name_pattern(name)
    if not pattern:
        return []
    matches = re.findall(rf"(?<!\w){pattern}(?!\w){_IS}{_NUMBER_PATTERN}", user, re.IGNORECASE)
    matches += re.findall(
        rf"(?<![\w.,:/-]){_NUMBER_PATTERN}\s+{pattern}(?!\w)", user, re.IGNORECASE
    )
    numbers = [float(item) for item in matches]
    whole = [int(number) if number.is_integer() else number for number in numbers]
    return [item for item in whole if fractions or isinstance(item, int)]


def _find_assigned(name: str, user: str) -> list[str]:
    """What stands in quotes after the name, or right after `name:` and `name=`."""
    pattern = _build_name_pattern(name)
    if not pattern:
        return []
    quoted = rf"(?<!\w){pattern}(?!\w){_IS}(?:{_QUOTED.pattern})"
    results = ["".join(item) for item in re.findall(quoted, user, re.IGNORECASE)]
    if results:
        return results
    plain = rf"(?<!\w){pattern}\s*[:=]\s*([^\s,;\"'`]{{1,200}})"
    return [item.rstrip(".!?)") for item in re.findall(plain, user, re.IGNORECASE)]
