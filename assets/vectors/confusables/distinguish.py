"""What tells two look-alike tools apart, in one sentence, out of their contracts alone.

A difference is named only where one tool has it and the other does not: the words of its server and
of its text that few others use, parameters that it alone requires or takes, reading against
writing, enums and limits, a clause of its description. Where nothing differs, the sentence says so:
that is the finding.
"""

import re
from collections.abc import Iterable, Sequence

from assets.vectors.confusables.sides import (
    STOP,
    Rarity,
    Side,
    flatten_name,
    join_lines,
    split_words,
)
from assets.vectors.lexicon import join_words, stem_plural
from warehouse.json_types import Json

SERVER, NAME, EFFECT, REQUIRED, LIMITS, CLAUSE, WORDS, TAKES = (
    "server", "name", "effect", "required", "limits", "clause", "words", "takes"
)  # fmt: skip
_MOST = 3  # words or parameters named of one kind
_LONGEST = 110  # characters of a quoted clause


def tell_apart(a: Side, b: Side, rarity: Rarity) -> tuple[str, list[str]]:
    """The sentence, and the kinds of differences that it names ([] where there is none)."""
    facts: tuple[list[str], list[str]] = ([], [])
    kinds: list[str] = []
    for kind, find in _FINDERS:
        found = find(a, b, rarity), find(b, a, rarity)
        if any(found):
            kinds.append(kind)
            for own, fact in zip(facts, found, strict=True):
                own += [fact] if fact else []
        if len(kinds) == (_MOST - 1 if kinds[:1] == [SERVER] else _MOST):
            break
    if not kinds:
        return _tell_nothing(a, b), []
    lead = "Nothing but their servers tells them apart: " if kinds == [SERVER] else ""
    sides = [
        f"{side.label} {join_words(own) if own else 'has nothing of its own'}"
        for side, own in zip((a, b), facts, strict=True)
    ]
    return f"{lead}{'; '.join(sides)}.", kinds


def _find_only(words: Iterable[str], other: Side) -> list[str]:
    return [word for word in dict.fromkeys(words) if stem_plural(word) not in other.all_words]


def _tell_by_servers(side: Side, other: Side, _: Rarity) -> str:
    held = _find_only(side.server_words, other)
    return f"is for {_format_list(held[:_MOST])}" if held else ""


def _tell_by_names(side: Side, other: Side, _: Rarity) -> str:
    held = [word for word in _find_only(side.name_words, other) if word not in side.server_words]
    return f"has {_format_list(held[:_MOST])} in its name" if held else ""


def _tell_by_words(side: Side, other: Side, rarity: Rarity) -> str:
    field = {*side.name_words, *split_words(side.about)}
    only = [word for word in _find_only(side.words, other) if word not in side.name_words]
    held = rarity.pick_telling(only, _MOST, field)
    return f"speaks of {_format_list(held)}" if held else ""


def _tell_by_required(side: Side, other: Side, _: Rarity) -> str:
    only = [side.taken[name][0] for name in sorted(side.needed - other.needed)]
    return f"requires {_format_list(only[:_MOST])}" if only and other.taken else ""


def _tell_by_parameters(side: Side, other: Side, _: Rarity) -> str:
    names = sorted(side.taken.keys() - other.taken.keys() - side.needed)
    only = [side.taken[name][0] for name in names]
    return f"takes {_format_list(only[:_MOST])}" if only and other.taken else ""


def _tell_by_effect(side: Side, other: Side, _: Rarity) -> str:
    return side.effect if side.effect and other.effect and side.effect != other.effect else ""


def _tell_by_limits(side: Side, other: Side, _: Rarity) -> str:
    """Of the first shared parameter that may hold other values."""
    for name in sorted(side.taken.keys() & other.taken.keys()):
        (own, one), (_name, another) = side.taken[name], other.taken[name]
        mine, theirs = (_list_values(schema.get("enum")) for schema in (one, another))
        if mine and theirs and set(mine) != set(theirs):
            only = [value for value in mine if value not in theirs]
            return f"lets {own} be {_format_list(only[:_MOST])}" if only else ""
        for limit, word in (
            ("maximum", "up to"),
            ("minimum", "from"),
            ("maxLength", "up to"),
            ("maxItems", "up to"),
        ):
            x, y = one.get(limit), another.get(limit)
            if isinstance(x, int | float) and isinstance(y, int | float) and x != y:
                return f"takes {own} {word} {x:g}"
    return ""


def _tell_by_clauses(side: Side, other: Side, _: Rarity) -> str:
    clauses = re.split(r"[.;!?\n•✓×]+\s|\n", str(side.contract.get("description") or "")[:2000])
    for clause in clauses:
        held = [word for word in split_words(clause) if word not in STOP]
        new = [word for word in held if stem_plural(word) not in other.all_words]
        if len(held) >= 3 and 2 * len(new) >= len(held):
            return f'says "{join_lines(clause.rstrip(" .:,"), _LONGEST)}"'
    return ""


# By how much they help somebody choose: a product or field first, an optional parameter last.
_FINDERS = (
    (SERVER, _tell_by_servers),
    (NAME, _tell_by_names),
    (EFFECT, _tell_by_effect),
    (REQUIRED, _tell_by_required),
    (LIMITS, _tell_by_limits),
    (CLAUSE, _tell_by_clauses),
    (WORDS, _tell_by_words),
    (TAKES, _tell_by_parameters),
)


def _tell_nothing(a: Side, b: Side) -> str:
    one, other = (flatten_name(side.contract["name"]) for side in (a, b))
    shared = ["same name"] if one == other else []
    words, others = ({stem_plural(word) for word in side.words} for side in (a, b))
    shared += ["same words"] if words == others else ["nearly the same words"]
    same = a.taken.keys() == b.taken.keys()
    shared += (["same parameters"] if a.taken else ["no parameters"]) if same else []
    return f"Nothing in their contracts tells them apart: {', '.join(shared)}."


def _list_values(enum: Json) -> list[str]:
    return [join_lines(str(value), 30) for value in enum[:50]] if isinstance(enum, list) else []


def _format_list(names: Sequence[str]) -> str:
    return join_words([join_lines(name, 40) for name in names])
