"""What one call changed in a world, and whether that is what a request's verbs ask for."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from assets.outcomes.kept import Execution
from assets.synthesis.verify.grading import walk_leaves
from assets.synthesis.verify.literal import holds_value
from assets.synthesis.verify.request_text import Text
from assets.synthesis.verify.words import stem_word

# Families of verbs: of a request that only looks, and of one that changes something.
_LOOKS = {"read", "search", "compute"}
_CHANGES = {"create", "update", "delete", "send", "run", "navigate"}
# Words of one that keeps what it doubles, and of one that does not.
_COPIES = {"copy", "copies", "copied", "duplicate", "clone", "replicate", "backup", "mirror"}
_MOVES = {"move", "rename", "relocate", "transfer", "shift"}

Facts = Mapping[str, Any]


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


def find_contradiction(effect: Effect, values: Sequence[Any], request: Text) -> str | None:
    """How the request's own verbs speak against the effect; None where they do not, as where it
    has none that are known. values: of the call."""
    families = request.families
    looks = families & _LOOKS or request.raw.rstrip().endswith("?")
    if looks and not families & _CHANGES:
        return "the request asks to look, and the call changed something"
    removes = all(after is None for _, after in effect.changes.values())
    if removes and families and "delete" not in families:
        return "the call only removed, and the request asks for no removing"
    asks_copy = _has_word(request, _COPIES) or " back up " in request.spaced
    if _is_move(effect) and asks_copy and not _has_word(request, _MOVES):
        return "the call moved something, and the request asks for a copy"
    if not asks_copy and any(_is_copied(effect, key, values) for key in effect.changes):
        return "the call made a copy, and the request asks for none"
    return None


def _has_word(request: Text, words: set[str]) -> bool:
    return bool(request.tokens & (words | {stem_word(word) for word in words}))


def _is_move(effect: Effect) -> bool:
    """Whether what was taken away at one place was added at another."""
    changes = effect.changes.values()
    added = [after for before, after in changes if before is None]
    return any(before in added for before, after in changes if after is None)


def _is_copied(effect: Effect, key: str, values: Sequence[Any]) -> bool:
    """Whether what was added at `key` is what stays at a place that the call names; what it holds
    itself is no copy."""
    before, after = effect.changes[key]
    shown = _show_fact(after).casefold()
    texts = [
        value for value in values if not _is_path(value)
    ]  # a file's own name is in its fact too
    if before is not None or any(holds_value(text, shown) for text in texts):
        return False
    return any(
        any(holds_value(value, f"{other}\n{shown}".casefold()) for value in values)
        for other in _find_equal(effect.before, after)
        if effect.after.get(other) == after
    )


def _is_path(value: Any) -> bool:
    return "/" in str(value) and not any(map(str.isspace, str(value)))


def _find_equal(facts: Facts, value: Any) -> Iterator[str]:
    return (key for key, one in facts.items() if one == value)


def _show_fact(value: Any) -> str:
    """Its texts and numbers as they are: JSON would escape what is looked for."""
    if value is None or isinstance(value, str):
        return value or ""
    return "\n".join(f"{path} {leaf}" for path, leaf in walk_leaves(value))
