"""Proof by execution: the effect is the one that is asked for, and other arguments have another.

A call proves a pair where it changed a world that can be read, what it changed holds what the
request says, and every argument that the request states decides part of it. Without a model; what
no world shows stays unproved.
"""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from typing import Any

from assets.outcomes.execution import ToolCall
from assets.outcomes.kept import Execution
from assets.outcomes.outcome import USEFUL
from assets.outcomes.table import PROVED, REFUTED, UNPROVED
from assets.outcomes.worlds.perturb import has_choice, perturb_argument
from assets.servers.recipes.placeholders import DATA
from assets.synthesis.verify.grounding.grounding import Text, walk_leaves
from assets.synthesis.verify.grounding.literal import (
    holds_value,
    is_placed,
    is_stated,
    is_telling,
)
from assets.vectors.lexicon import find_base_form, find_family

# Families of verbs: of a request that only looks, and of one that changes something.
_LOOKS = {"read", "search", "compute"}
_CHANGES = {"create", "update", "delete", "send", "run", "navigate"}
_ANSWERED = ("ok", "tool_error")  # what else comes back says nothing about the arguments
_OTHERS = ("credentials", "upstream", "us")  # whose failure is none of the arguments' either
MOST = 6  # arguments of a call that are changed, one after the other

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
    other arguments in the same first state; called at most `MOST` + 1 times."""
    if (judged := judge_effect(call, request, effect)) is not None:
        return judged
    if flaw := await _find_flaw(call, request, effect, run_perturbed):
        return Proof(UNPROVED, flaw)
    return Proof(PROVED, f"{', '.join(list(effect.changes)[:3])[:200]} as asked for")


async def _find_flaw(
    call: ToolCall, request: str, effect: Effect, run_perturbed: Perturbed
) -> str | None:
    """Why other arguments do not show that the stated ones decide; None where they do."""
    # The control: what differs between two equal calls says nothing about arguments.
    execution, after = await run_perturbed(dict(call.arguments))
    if is_other_effect(effect, Effect(execution, effect.before, after)):
        return "the same call has another effect when it is made again"
    tried = 0
    for name in list_stated(call, request):
        other = perturb_argument(call.contract, call.arguments, name)
        if other is None and not has_choice(call.contract, name):
            continue
        if other is None or tried == MOST:
            return f"no other {name} was tried"
        tried += 1
        execution, after = await run_perturbed(other)
        if not is_answered(execution):
            return f"another {name} was not answered: {execution.evidence}"[:300]
        if not is_other_effect(effect, Effect(execution, effect.before, after)):
            return f"another {name} has the same effect"
    return None if tried else "no other arguments can be tried"


def is_answered(done: Execution) -> bool:
    """Whether what came back says something about the arguments."""
    return done.status in _ANSWERED and done.blame not in _OTHERS


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
    leaves = [one for one in walk_leaves(dict(call.arguments)) if is_telling(one[1])]
    held = [(path, value) for path, value in leaves if holds_value(value, shown)]
    if not held:  # as of a statement in SQL, or of `git_reset` on a whole repository
        return Proof(UNPROVED, "what changed holds no value of the call")
    for path, value in held:
        if not is_stated(value, path, text):
            return Proof(REFUTED, f"it changed {str(value)[:80]!r}, which is not asked for")
    for _, value in held:
        if not is_placed(value, text, DATA):
            return Proof(UNPROVED, f"the request does not say where {str(value)[:80]!r} lies")
    for path, value in leaves:
        # Of a list or an object one value alone is tried otherwise: the others have to show.
        inner = path not in call.arguments and (path, value) not in held
        if inner and is_stated(value, path, text):
            return Proof(UNPROVED, f"what changed does not show {path}: {str(value)[:80]!r}")
    if contradiction := _find_contradiction(effect, text):
        return Proof(UNPROVED, contradiction)
    return None if list_stated(call, request) else Proof(UNPROVED, "the request states no value")


def list_stated(call: ToolCall, request: str) -> list[str]:
    """The arguments of which the request states a value, in order."""
    text = Text(request)
    return [
        name
        for name, value in call.arguments.items()
        if any(
            is_telling(leaf) and is_stated(leaf, path, text)
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


def _find_contradiction(effect: Effect, request: Text) -> str | None:
    """How the request's own verbs speak against the effect; None where they do not, as where it
    has none that are known."""
    bases = filter(None, map(find_base_form, request.words))
    families = {find_family(base) for base in bases}
    if families & _LOOKS and not families & _CHANGES:
        return "the request asks to look, and the call changed something"
    removes = all(after is None for _, after in effect.changes.values())
    if removes and families and "delete" not in families:
        return "the call only removed, and the request asks for no removing"
    return None


def _show_fact(value: Any) -> str:
    """Its texts and numbers as they are: JSON would escape what is looked for."""
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(f"{path} {leaf}" for path, leaf in walk_leaves(value))
