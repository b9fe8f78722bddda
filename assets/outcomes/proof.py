"""Proof by execution: the effect is the one that is asked for, and other arguments have another.

A call proves a pair where it changed a world that can be read, what it changed holds what the
request says, and every argument that the request states decides part of it. Without a model; what
no world shows stays unproved.
"""

import json
from collections.abc import Awaitable, Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from assets.contracts.repair.problems import find_problems
from assets.outcomes.execution import ToolCall
from assets.outcomes.kept import Execution
from assets.outcomes.outcome import USEFUL
from assets.outcomes.table import PROVED, REFUTED, UNPROVED
from assets.synthesis.verify.grounding.grounding import (
    STATED,
    Text,
    fold_text,
    grade_value,
    walk_leaves,
)

MOST = 6  # arguments of a call that are changed, one after the other
_SHIFT = str.maketrans(
    "abcdefghijklmnopqrstuvwxyzABCDEFGHIJKLMNOPQRSTUVWXYZ",
    "nopqrstuvwxyzabcdefghijklmNOPQRSTUVWXYZABCDEFGHIJKLM",
)
_LEAST = 3  # characters of a value that is looked for in an effect

Facts = Mapping[str, Any]
Perturbed = Callable[[Mapping[str, Any]], Awaitable[tuple[Execution, Facts]]]


@dataclass(frozen=True)
class Effect:
    """What a call did: its execution, and the world's facts before and after it."""

    execution: Execution
    before: Facts
    after: Facts

    @property
    def changes(self) -> dict[str, tuple[Any, Any]]:
        """Fact -> (before, after), None where it is not there."""
        keys = {*self.before, *self.after}
        both = {key: (self.before.get(key), self.after.get(key)) for key in sorted(keys)}
        return {key: pair for key, pair in both.items() if pair[0] != pair[1]}


@dataclass(frozen=True)
class Proof:
    """verdict: proved, refuted, unproved. why: one line of what it rests on."""

    verdict: str
    why: str


async def prove_call(
    call: ToolCall, request: str, effect: Effect, run_perturbed: Perturbed
) -> Proof:
    """Whether an executed call proves the pair of this request. run_perturbed: makes the call with
    other arguments in the same first state; called at most `MOST` times."""
    if (judged := judge_effect(call, request, effect)) is not None:
        return judged
    names = list_stated(call, request)
    for name in names[:MOST]:
        other = perturb_argument(call.contract, call.arguments, name)
        if other is None:
            continue
        execution, after = await run_perturbed(other)
        if not is_other_effect(effect, Effect(execution, effect.before, after)):
            return Proof(UNPROVED, f"another {name} has the same effect")
    return Proof(PROVED, f"{', '.join(list(effect.changes)[:3])[:200]} as asked for")


def judge_failure(done: Execution) -> Proof | None:
    """What a call that was not useful decides; None for one that was."""
    if done.outcome == USEFUL:
        return None
    refuted = done.blame == "caller"
    return Proof(REFUTED if refuted else UNPROVED, f"{done.outcome}: {done.evidence}"[:300])


def judge_effect(call: ToolCall, request: str, effect: Effect) -> Proof | None:
    """What the effect alone decides; None where other arguments have to be tried."""
    if (failed := judge_failure(effect.execution)) is not None:
        return failed
    if not effect.changes:
        return Proof(UNPROVED, "nothing that can be read changed")
    shown = show_changes(effect)
    text = Text(request)
    held = [
        (path, value)
        for path, value in walk_leaves(dict(call.arguments))
        if _is_telling(value) and _find_value(value, shown)
    ]
    if not held:
        return Proof(REFUTED, "what changed holds no value of the call")
    for path, value in held:
        if not _is_stated(value, path, text):
            return Proof(REFUTED, f"it changed {str(value)[:80]!r}, which is not asked for")
    return None if list_stated(call, request) else Proof(UNPROVED, "the request states no value")


def list_stated(call: ToolCall, request: str) -> list[str]:
    """The arguments of which the request states a value, in order."""
    text = Text(request)
    return [
        name
        for name, value in call.arguments.items()
        if any(
            _is_telling(leaf) and _is_stated(leaf, path, text)
            for path, leaf in walk_leaves({name: value})
        )
    ]


def is_other_effect(one: Effect, other: Effect) -> bool:
    """Whether two calls in one first state differ in what they changed, or in whether they
    worked."""
    if one.execution.outcome != other.execution.outcome:
        return True
    return one.changes != other.changes


def show_changes(effect: Effect) -> str:
    """All that changed as one text, case folded: names of facts and their values on both sides."""
    parts = []
    for key, (before, after) in effect.changes.items():
        parts += [key, _show_fact(before), _show_fact(after)]
    return "\n".join(parts).casefold()


def perturb_argument(
    contract: Mapping[str, Any], arguments: Mapping[str, Any], name: str
) -> dict[str, Any] | None:
    """The arguments with another value of one of them that the contract takes; None where it takes
    no other."""
    for value in _list_others(arguments[name], _read_schema(contract, name)):
        other = {**arguments, name: value}
        if value != arguments[name] and not find_problems(contract, other):
            return other
    return None


def _list_others(value: Any, schema: Mapping[str, Any]) -> Iterator[Any]:
    choices = schema.get("enum")
    if isinstance(choices, list):
        yield from choices
    elif isinstance(value, bool):
        yield not value
    elif isinstance(value, int):
        yield from (value + 1, value - 1, value * 2)
    elif isinstance(value, float):
        yield from (value + 0.5, value * 2)
    elif isinstance(value, str):
        folder, slash, last = value.rpartition("/")
        stem, dot, ending = last.rpartition(".")
        if dot and stem and len(ending) <= 5:
            yield f"{folder}{slash}{stem.translate(_SHIFT)}{dot}{ending}"
        yield f"{folder}{slash}{last.translate(_SHIFT)}"
        yield f"{value}2"
    elif isinstance(value, list) and value:
        items = schema.get("items")
        inner = items if isinstance(items, Mapping) else {}
        yield from ([other, *value[1:]] for other in _list_others(value[0], inner))
    elif isinstance(value, Mapping):
        for key, member in value.items():
            yield from ({**value, key: other} for other in _list_others(member, {}))


def _read_schema(contract: Mapping[str, Any], name: str) -> Mapping[str, Any]:
    properties = (contract.get("inputSchema") or {}).get("properties")
    found = properties.get(name) if isinstance(properties, Mapping) else None
    return found if isinstance(found, Mapping) else {}


def _is_telling(value: Any) -> bool:
    """Whether a value can be found again: no switch, and no short word."""
    if isinstance(value, bool) or value is None:
        return False
    return len(str(value).strip()) >= _LEAST


def _is_stated(value: Any, path: str, request: Text) -> bool:
    """Whether the request holds a value to the letter, or the last part of one that is a path; of
    a number any spelling. What another word may mean is no proof."""
    if isinstance(value, int | float):
        return grade_value(value, {}, path, request) == STATED
    last = value.rstrip("/").rpartition("/")[2]
    words = (fold_text(one).strip() for one in (value, last, last.rpartition(".")[0]))
    return any(len(one) >= _LEAST and one in request.folded for one in words)


def _find_value(value: Any, shown: str) -> bool:
    text = str(value).strip().casefold()
    last = text.rstrip("/").rpartition("/")[2]
    return text in shown or (len(last) >= _LEAST and last in shown)


def _show_fact(value: Any) -> str:
    if value is None:
        return ""
    return value if isinstance(value, str) else json.dumps(value, ensure_ascii=False)
