"""A good call, and a draft of it with one flaw."""

import json
import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from functools import partial
from random import Random
from typing import Any

from assets.contracts.rename_history import ContractMove
from assets.contracts.repair.names import split_identifier
from assets.contracts.repair.problems import find_choices, find_types, is_required
from assets.contracts.repair.values import find_unit
from assets.contracts.schema_shapes import collect_properties, is_number
from extensions.sidecar.prompt import UNTOUCHED

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
    """arguments: text or object. meant: those of each call meant, in order. move: its rename."""

    kind: str
    name: str
    arguments: Any
    meant: tuple[Arguments, ...]
    move: ContractMove | None = None


# What an operator makes: the arguments as sent, or a whole draft; None where it cannot apply.
Make = Callable[[GoodCall, Random], Any]


def choose_name(call: GoodCall, draw: Random, test: Callable[[str, Any], bool]) -> str | None:
    names = [name for name, value in call.arguments.items() if test(name, value)]
    return draw.choice(names) if names else None


def make_word(draw: Random, words: int) -> str:
    return "_".join(draw.sample(WORDS, words))


def drop_letter(word: str, at: float) -> str:
    place = 1 + int(at * (len(word) - 2))
    return word[:place] + word[place + 1 :] if place < len(word) else word[:-1]


def _rename(call: GoodCall, draw: Random, make: Callable[[str], str]) -> Any:
    name = choose_name(call, draw, lambda one, _: one in call.declared)
    if name is None or make(name) in call.declared:
        return None
    return {make(name) if key == name else key: one for key, one in call.arguments.items()}


def _change_case(name: str) -> str:
    words = split_identifier(name)
    snake = "_".join(words)
    return snake if snake != name else words[0] + "".join(word.capitalize() for word in words[1:])


def _rename_typo(call: GoodCall, draw: Random) -> Any:
    at = draw.random()
    return _rename(call, draw, lambda one: drop_letter(one, at) if len(one) > 4 else one)


def _rename_past(call: GoodCall, draw: Random) -> FlawedDraft | None:
    """A parameter under a name that only history knows."""
    old, name = make_word(draw, 3), choose_name(call, draw, lambda one, _: one in call.declared)
    if name is None:
        return None
    made = {old if key == name else key: one for key, one in call.arguments.items()}
    move = ContractMove(call.server, call.name, call.name, {old: name})
    return FlawedDraft("parameter renamed since", call.name, made, (call.arguments,), move)


def _call_past(call: GoodCall, draw: Random) -> FlawedDraft:
    old = make_word(draw, 3)
    move, made = ContractMove(call.server, call.name, old), dict(call.arguments)
    return FlawedDraft("tool renamed since", old, made, (call.arguments,), move)


def _call_as(kind: str, make: Callable[[str, Random], str]) -> Make:
    def make_draft(call: GoodCall, draw: Random) -> FlawedDraft | None:
        name = make(call.name, draw)
        if name == call.name:
            return None
        return FlawedDraft(kind, name, dict(call.arguments), (call.arguments,))

    return make_draft


_TOOLS: dict[str, Callable[[str, Random], str]] = {
    "tool with a prefix": lambda name, _: f"mcp__server__{name}",
    "tool in another case": lambda name, _: _change_case(name) if len(name) > 1 else name,
    "tool misspelt": lambda name, _: drop_letter(name, 0.4) if len(name) > 6 else name,
    "tool that is not there": lambda _, draw: make_word(draw, 3),
}
NAME_FLAWS: dict[str, Make] = {
    "name in another case": lambda call, draw: _rename(call, draw, _change_case),
    "name misspelt": _rename_typo,
    "parameter renamed since": _rename_past,
    "tool renamed since": _call_past,
    **{kind: _call_as(kind, make) for kind, make in _TOOLS.items()},
}


def _rewrite(make: Make) -> Make:
    return lambda call, draw: make(call, draw) if call.arguments else None


def _write_bare(call: GoodCall, _: Random) -> str:
    """Names without quotes, those within texts as they are."""
    return _write_value(call.arguments)


def _write_value(value: object) -> str:
    if isinstance(value, Mapping):
        return (
            "{" + ", ".join(f"{_write_key(k)}: {_write_value(v)}" for k, v in value.items()) + "}"
        )
    if isinstance(value, list):
        return "[" + ", ".join(map(_write_value, value)) + "]"
    return json.dumps(value, ensure_ascii=False)


def _write_key(name: str) -> str:
    return name if re.fullmatch(r"[A-Za-z_]\w*", name) else json.dumps(name)


def _add_value(call: GoodCall, draw: Random, value: Any, test: Callable[[Any], Any]) -> Any:
    """The arguments with a value for an optional parameter without one, whose types pass."""
    free = [
        name
        for name, of in call.declared.items()
        if name not in call.arguments
        and test(find_types(of, call.root))
        and not is_required(call.root, (name,))
    ]
    return {**call.arguments, draw.choice(free): value} if free else None


def _add_nan(call: GoodCall, draw: Random) -> str | None:
    added = _add_value(call, draw, float("nan"), {"integer", "number"}.intersection)
    return json.dumps(added) if added else None


def _drop_brace(call: GoodCall, _: Random) -> str | None:
    last = next(reversed(list(call.arguments.values())))
    return call.text[:-1] if isinstance(last, str) else None


def _cut_text(call: GoodCall, draw: Random) -> str:
    return call.text[: draw.randrange(len(call.text) // 2, len(call.text) - 1)]


def _repeat_call(call: GoodCall, _: Random) -> FlawedDraft | None:
    if call.sibling is None:
        return None
    both = (call.arguments, call.sibling)
    text = "".join(json.dumps(item, ensure_ascii=False) for item in both)
    return FlawedDraft("two calls in one", call.name, text, both)


TEXT_FLAWS: dict[str, Make] = {
    "JSON within JSON text": _rewrite(lambda call, _: json.dumps(call.text)),
    "code fence": _rewrite(lambda call, _: f"```json\n{call.text}\n```"),
    "Python literal": _rewrite(lambda call, _: repr(dict(call.arguments))),
    "trailing comma": _rewrite(lambda call, _: call.text[:-1] + ",}"),
    "comment": _rewrite(lambda call, _: call.text[:1] + " // as asked\n" + call.text[1:]),
    "names without quotes": _rewrite(_write_bare),
    "NaN": _rewrite(_add_nan),
    "last brace missing": _rewrite(_drop_brace),
    "cut off anywhere": _rewrite(_cut_text),
    "two calls in one": _rewrite(_repeat_call),
}


_UNITS = {"seconds": "s", "ms": "ms", "minutes": "min", "hours": "h", "days": "days", "km": "km",
          "meters": "m", "kg": "kg", "milliseconds": "ms"}  # fmt: skip


def _change(test: Callable[[Any], bool], make: Callable[[Any], Any]) -> Make:
    def make_arguments(call: GoodCall, draw: Random) -> Any:
        name = choose_name(call, draw, lambda _, value: test(value))
        return None if name is None else {**call.arguments, name: make(call.arguments[name])}

    return make_arguments


def _is_word_list(value: Any) -> bool:
    return (
        isinstance(value, list) and len(value) > 1 and all(isinstance(item, str) for item in value)
    )


def _change_choice(call: GoodCall, draw: Random, make: Callable[[str], str]) -> Any:
    def has_choices(name: str, value: Any) -> bool:
        return isinstance(value, str) and bool(find_choices(call.declared.get(name, {}), call.root))

    name = choose_name(call, draw, has_choices)
    if name is None or make(call.arguments[name]) == call.arguments[name]:
        return None
    return {**call.arguments, name: make(call.arguments[name])}


def _write_date(call: GoodCall, draw: Random) -> Any:
    """An ISO date of a parameter whose schema asks for one, in words."""

    def is_date(name: str, value: Any) -> bool:
        asked = any(key in call.declared.get(name, {}) for key in ("format", "pattern"))
        return asked and bool(re.fullmatch(r"\d{4}-\d\d-\d\d", str(value)))

    name = choose_name(call, draw, is_date)
    if name is None:
        return None
    day = date.fromisoformat(call.arguments[name])
    words = draw.choice((f"{day:%B} {day.day}, {day.year}", f"{day.day} {day:%b} {day.year}"))
    return {**call.arguments, name: words}


def _write_unit(call: GoodCall, draw: Random) -> Any:
    def has_unit(name: str, value: Any) -> bool:
        found = find_unit(name, call.declared.get(name, {}), call.root)
        return is_number(value) and found in _UNITS

    name = choose_name(call, draw, has_unit)
    if name is None:
        return None
    unit = _UNITS[str(find_unit(name, call.declared[name], call.root))]
    return {**call.arguments, name: f"{call.arguments[name]} {unit}"}


def _flatten(call: GoodCall, draw: Random) -> Any:
    def is_flat(name: str, value: Any) -> bool:
        if not isinstance(value, Mapping) or not value or set(value) & set(call.declared):
            return False
        return set(value) <= set(collect_properties(call.declared.get(name, {}), call.root))

    name = choose_name(call, draw, is_flat)
    if name is None:
        return None
    rest = {key: one for key, one in call.arguments.items() if key != name}
    return {**rest, **call.arguments[name]}


def _drop_argument(call: GoodCall, draw: Random, *, required: bool) -> Any:
    name = choose_name(call, draw, lambda one, _: is_required(call.root, (one,)) == required)
    return None if name is None else {k: v for k, v in call.arguments.items() if k != name}


VALUE_FLAWS: dict[str, Make] = {
    "wrapped": lambda call, _: {"name": call.name, "arguments": dict(call.arguments)},
    "in a list": lambda call, _: [dict(call.arguments)],
    "number as text": _change(is_number, str),
    "boolean as text": _change(lambda one: isinstance(one, bool), str),
    "list as text": _change(lambda one: isinstance(one, list), json.dumps),
    "list as words": _change(_is_word_list, ", ".join),
    "object as text": _change(lambda one: isinstance(one, Mapping), json.dumps),
    "value in a list": _change(lambda one: isinstance(one, str), lambda one: [one]),
    "value for a list": _change(
        lambda one: isinstance(one, list) and len(one) == 1, lambda one: one[0]
    ),
    "choice in capitals": lambda call, draw: _change_choice(call, draw, str.upper),
    "choice misspelt": lambda call, draw: _change_choice(
        call, draw, lambda one: drop_letter(one, 0.5) if len(one) > 4 else one
    ),
    "date in words": _write_date,
    "number with its unit": _write_unit,
    "inner names outside": _flatten,
    "undeclared argument": lambda call, _: {**call.arguments, "zq_trace": True},
    "null for what is absent": lambda call, draw: _add_value(
        call, draw, None, lambda types: types and "null" not in types
    ),
    "required value missing": partial(_drop_argument, required=True),
}


# Verbs that tools of one deed are named by; a model remembers another tool's.
_VERBS = (
    ("get", "fetch", "read", "retrieve"), ("find", "search", "lookup", "query"),
    ("list", "show", "browse", "enumerate"), ("create", "add", "make", "new"),
    ("update", "edit", "modify", "set"), ("delete", "remove", "drop", "erase"),
    ("send", "post", "publish", "submit"), ("run", "execute", "start", "launch"),
)  # fmt: skip


def _change_value(call: GoodCall, name: str | None, value: Any) -> Any:
    if name is None or value == call.arguments[name]:
        return None
    return {**call.arguments, name: value}


def _write_placeholder(call: GoodCall, draw: Random) -> Any:
    name = choose_name(call, draw, lambda one, _: is_required(call.root, (one,)))
    return _change_value(call, name, f"<{name}>")


def _drop_several(call: GoodCall, _: Random) -> Any:
    names = {name for name in call.arguments if is_required(call.root, (name,))}
    if len(names) < 2:
        return None
    return {name: value for name, value in call.arguments.items() if name not in names}


def _choose_another(call: GoodCall, draw: Random) -> Any:
    def list_others(name: str, value: Any) -> list[Any]:
        choices = find_choices(call.declared.get(name, {}), call.root)
        return [choice for choice in choices if choice != value] if value in choices else []

    name = choose_name(call, draw, lambda one, value: bool(list_others(one, value)))
    if name is None:
        return None
    return _change_value(call, name, draw.choice(list_others(name, call.arguments[name])))


def _change_number(call: GoodCall, draw: Random) -> Any:
    def is_whole(_: str, value: Any) -> bool:
        return isinstance(value, int) and not isinstance(value, bool)

    name = choose_name(call, draw, is_whole)
    return None if name is None else _change_value(call, name, call.arguments[name] + 1)


def _take_sibling_value(call: GoodCall, draw: Random) -> Any:
    other = call.sibling or {}
    name = choose_name(call, draw, lambda one, value: one in other and other[one] != value)
    return None if name is None else _change_value(call, name, other[name])


def _reorder_values(call: GoodCall, draw: Random) -> Any:
    free = [
        name
        for name, value in call.arguments.items()
        if isinstance(value, str) and not find_choices(call.declared.get(name, {}), call.root)
    ]
    if len(free) < 2:
        return None
    one, other = draw.sample(free, 2)
    values = call.arguments[one], call.arguments[other]
    return None if values[0] == values[1] else {**call.arguments, one: values[1], other: values[0]}


def _call_neighbour(call: GoodCall, draw: Random) -> FlawedDraft | None:
    if not call.beside:
        return None
    name, made = draw.choice(call.beside), dict(call.arguments)
    return FlawedDraft("tool beside it", name, made, (call.arguments,))


def _call_by_other_verb(call: GoodCall, draw: Random) -> FlawedDraft | None:
    verb = (split_identifier(call.name) or ("",))[0]
    others = [item for group in _VERBS if verb in group for item in group if item != verb]
    if not others:
        return None
    name = re.sub(verb, draw.choice(others), call.name, count=1, flags=re.IGNORECASE)
    if name in (call.name, *call.beside):
        return None
    return FlawedDraft("tool by another verb", name, dict(call.arguments), (call.arguments,))


MEANING_FLAWS: dict[str, Make] = {
    "placeholder for a value": _write_placeholder,
    "several required values missing": _drop_several,
    "optional value missing": partial(_drop_argument, required=False),
    "another choice": _choose_another,
    "number off by one": _change_number,
    "value of another call": _take_sibling_value,
    "two values swapped": _reorder_values,
    "tool beside it": _call_neighbour,
    "tool by another verb": _call_by_other_verb,
}


FLAWS: dict[str, Make] = {**TEXT_FLAWS, **VALUE_FLAWS, **NAME_FLAWS}  # of form: a contract shows it
_ALL: dict[str, Make] = {**FLAWS, **MEANING_FLAWS}
# Nothing at hand says what was meant: the question is the right answer.
HOPELESS = ("tool that is not there",)


def make_drafts(call: GoodCall, draw: Random) -> Iterator[FlawedDraft]:
    """The call untouched, and with every flaw of form that can be made of it and changes it."""
    yield FlawedDraft(UNTOUCHED, call.name, call.text, (call.arguments,))
    for kind in FLAWS:
        flawed = make_flawed(call, kind, draw)
        if flawed is not None and (flawed.name, flawed.arguments) != (call.name, call.arguments):
            yield flawed


def make_flawed(call: GoodCall, kind: str, draw: Random) -> FlawedDraft | None:
    """The call with one flaw; None where this flaw cannot be made of it."""
    result = _ALL[kind](call, draw)
    if result is None or isinstance(result, FlawedDraft):
        return result
    return FlawedDraft(kind, call.name, result, (call.arguments,))


SHARES = {"tool": 0.4, "missing": 0.25, "value": 0.2, "parameter": 0.1, "text": 0.05}
GROUPS: dict[str, tuple[str, ...]] = {
    "tool": (
        *HOPELESS,
        "tool by another verb",
        "tool beside it",
        "tool misspelt",
        "tool with a prefix",
        "tool in another case",
    ),
    "missing": (
        "required value missing",
        "placeholder for a value",
        "several required values missing",
        "optional value missing",
    ),
    "parameter": (
        "parameter renamed since",
        "name misspelt",
        "name in another case",
        "undeclared argument",
    ),
    # Two calls in one are two drafts before a model sees them.
    "text": tuple(kind for kind in TEXT_FLAWS if kind != "two calls in one"),
}
_KNOWN = {kind for group in GROUPS.values() for kind in group}
# A tool renamed since, without a history at hand, is one that is not there.
GROUPS["value"] = tuple(
    kind
    for kind in {**VALUE_FLAWS, **MEANING_FLAWS, **NAME_FLAWS}
    if kind not in _KNOWN and kind != "tool renamed since"
)
# Of each group one, so that the evaluation has kinds that nobody learned from.
HELD_OUT = frozenset(
    {
        "tool by another verb",
        "several required values missing",
        "value of another call",
        "choice misspelt",
        "number with its unit",
        "name misspelt",
        "NaN",
    }
)
WEIGHTS = {kind: SHARES[group] / len(kinds) for group, kinds in GROUPS.items() for kind in kinds}
