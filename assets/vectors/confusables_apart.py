"""What tells two look-alike tools apart, in one sentence, out of their contracts alone.

What belongs here: the differences of two contracts that somebody choosing between them can use, and
their wording. What does not: which tools look alike (`confusables_clusters.py`).

A difference is named only where one tool has it and the other does not: the words of its server and
of its text that few others use, parameters that it alone requires or takes, reading against
writing, enums and limits, a clause of its description. Where nothing differs, the sentence says so:
that is the finding.
"""

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from assets.contracts.canonical import parameters, tool_text
from assets.synthesis.lexicon import base_form, family_of

Json = Any
SERVER, NAME, EFFECT, REQUIRED, LIMITS, CLAUSE, WORDS, TAKES = (
    "server", "name", "effect", "required", "limits", "clause", "words", "takes"
)  # fmt: skip
_COMMON = 0.01  # share of tools above which a word says nothing of one of them
_MOST = 3  # words or parameters named of one kind
_LONGEST = 110  # characters of a quoted clause
_READS = {"read", "search", "compute"}
_WRITES = {"create", "update", "delete", "send"}
_STOP = frozenset(
    """
    a an the and or of to in on for from with by at as is are be has have this that it its if when
    which will can not no into using use used uses useful via you your all any each one two new
    given specific also about before after only additional especially various detailed details etc
    other more most such than then them their what where while within without following existing
    mcp server servers tool tools api apis client service services app integration interface sdk
    protocol model context npm pypi http https com org io ai dev www js ts py go main test demo my
    first reference references fork forked copy clone official simple ext extended enhanced private
    custom claim deploy playground try description available args returns return example
    examples optional required default string number boolean integer object list array true false
    none null value values
    """.split()  # noqa: SIM905
)


@dataclass(frozen=True)
class Side:
    """One of the two tools. `about`: the server's name and what is said of it, if anything."""

    server_id: str
    contract: Mapping[str, Json]
    about: str = ""

    @cached_property
    def label(self) -> str:
        return _line(f"{self.server_id}::{self.contract['name']}", 90)

    @cached_property
    def server_words(self) -> list[str]:
        """The words of the server's own name, its owner left out: a fork's owner says nothing."""
        last = re.split(r"[/:]", self.server_id.rstrip("/"))[-1]
        parted = re.sub(r"mcp|\d+", " ", " ".join(names_in(last)))  # geminimcptest, atlassian12
        return [word for word in words_of(parted) if len(word) > 1 and word not in _STOP]

    @cached_property
    def name_words(self) -> list[str]:
        return [word for word in names_in(self.contract["name"]) if word not in _STOP]

    @cached_property
    def told(self) -> list[str]:
        """The words of the contract, in order, but for those of its server's id."""
        ids = {*names_in(self.server_id), *words_of(self.server_id)}
        words = words_of(tool_text(self.contract))
        return [word for word in words if word not in _STOP and word not in ids]

    @cached_property
    def all_words(self) -> frozenset[str]:
        text = tool_text(self.contract)
        held = [
            *words_of(text),
            *names_in(text),
            *names_in(self.server_id),
            *words_of(self.server_id),
        ]
        held += self.server_words
        return frozenset(map(_stem, [*held, *words_of(self.about)]))

    @cached_property
    def taken(self) -> dict[str, tuple[str, Mapping[str, Json]]]:
        """Parameter as it reads -> (as it is written, its schema)."""
        found = parameters(self.contract)
        return {
            _flat(name): (name, schema if isinstance(schema, Mapping) else {})
            for name, schema in found
        }

    @cached_property
    def needed(self) -> set[str]:
        required = (self.contract.get("inputSchema") or {}).get("required")
        listed = required if isinstance(required, list) else []
        return {_flat(name) for name in listed if isinstance(name, str)} & self.taken.keys()

    @cached_property
    def effect(self) -> str | None:
        """reads, writes, or None where neither its hints nor its verb say."""
        hint = (self.contract.get("annotations") or {}).get("readOnlyHint")
        if isinstance(hint, bool):
            return "only reads" if hint else "changes data"
        bases = (base_form(word) for word in names_in(self.contract["name"]))
        verb = next((base for base in bases if base), None)
        family = family_of(verb) if verb else None
        if family in _READS:
            return "only reads"
        return "changes data" if family in _WRITES else None


def tells_apart(a: Side, b: Side, rarity: "Rarity") -> tuple[str, list[str]]:
    """The sentence, and the kinds of differences that it names ([] where there is none)."""
    facts: tuple[list[str], list[str]] = ([], [])
    kinds: list[str] = []
    for kind, find in _FINDERS:
        found = find(a, b, rarity)
        if any(found):
            kinds.append(kind)
            for own, said in zip(facts, found, strict=True):
                own += [said] if said else []
        if len(kinds) == (_MOST - 1 if kinds[:1] == [SERVER] else _MOST):
            break
    if not kinds:
        return _nothing(a, b), []
    lead = "Nothing but their servers tells them apart: " if kinds == [SERVER] else ""
    sides = [
        f"{side.label} {_joined(own) if own else 'has nothing of its own'}"
        for side, own in zip((a, b), facts, strict=True)
    ]
    return f"{lead}{'; '.join(sides)}.", kinds


class Rarity:
    """In how large a share of all tools' texts a word stands."""

    def __init__(self, texts: Iterable[str]) -> None:
        listed = list(texts)
        self._held = Counter(word for text in listed for word in {*map(_stem, words_of(text))})
        self._total = max(len(listed), 1)

    def share(self, word: str) -> float:
        return self._held[_stem(word)] / self._total

    def telling(self, words: Iterable[str], most: int, field: Collection[str]) -> list[str]:
        """The words that say most of a tool, in their own order: rare enough, words of its `field`
        before others, and of those the better known. The rarest are slips and adverbs."""
        rare = [
            word for word in dict.fromkeys(words)
            if len(word) > 2 and not word.isdigit() and self.share(word) <= _COMMON
        ]  # fmt: skip
        ranked = sorted(rare, key=lambda word: (word not in field, -self.share(word), word))
        chosen = set(ranked[:most])
        return [word for word in rare if word in chosen]


def words_of(text: str) -> list[str]:
    """Lower-case words of prose."""
    return [word for word in re.findall(r"[^\W_]+", text.casefold()) if len(word) < 30]


def names_in(text: str) -> list[str]:
    """Lower-case words of identifiers, parted at their joints."""
    return words_of(re.sub(r"(?<=[a-z0-9])(?=[A-Z])", " ", text))


def _only(words: Iterable[str], other: Side) -> list[str]:
    return [word for word in dict.fromkeys(words) if _stem(word) not in other.all_words]


def _of_servers(a: Side, b: Side, _: Rarity) -> tuple[str, str]:
    def own(side: Side, other: Side) -> str:
        held = _only(side.server_words, other)
        return f"is for {_listed(held[:_MOST])}" if held else ""

    return own(a, b), own(b, a)


def _of_names(a: Side, b: Side, _: Rarity) -> tuple[str, str]:
    def own(side: Side, other: Side) -> str:
        held = [word for word in _only(side.name_words, other) if word not in side.server_words]
        return f"has {_listed(held[:_MOST])} in its name" if held else ""

    return own(a, b), own(b, a)


def _of_words(a: Side, b: Side, rarity: Rarity) -> tuple[str, str]:
    def own(side: Side, other: Side) -> str:
        field = {*side.name_words, *words_of(side.about)}
        only = [word for word in _only(side.told, other) if word not in side.name_words]
        held = rarity.telling(only, _MOST, field)
        return f"speaks of {_listed(held)}" if held else ""

    return own(a, b), own(b, a)


def _of_required(a: Side, b: Side, _: Rarity) -> tuple[str, str]:
    def own(side: Side, other: Side) -> str:
        only = [side.taken[name][0] for name in sorted(side.needed - other.needed)]
        return f"requires {_listed(only[:_MOST])}" if only else ""

    return (own(a, b), own(b, a)) if a.taken and b.taken else ("", "")


def _of_taken(a: Side, b: Side, _: Rarity) -> tuple[str, str]:
    def own(side: Side, other: Side) -> str:
        only = [side.taken[name][0] for name in sorted(side.taken.keys() - other.taken.keys())
                if name not in side.needed]  # fmt: skip
        return f"takes {_listed(only[:_MOST])}" if only else ""

    return (own(a, b), own(b, a)) if a.taken and b.taken else ("", "")


def _of_effect(a: Side, b: Side, _: Rarity) -> tuple[str, str]:
    if not a.effect or not b.effect or a.effect == b.effect:
        return "", ""
    return a.effect, b.effect


def _of_limits(a: Side, b: Side, _: Rarity) -> tuple[str, str]:
    """The first shared parameter that may hold other values."""
    for name in sorted(a.taken.keys() & b.taken.keys()):
        (own, one), (its, other) = a.taken[name], b.taken[name]
        enums = [_values(schema.get("enum")) for schema in (one, other)]
        if all(enums):
            only = (
                [v for v in enums[0] if v not in enums[1]],
                [v for v in enums[1] if v not in enums[0]],
            )
            if any(only):
                said = [f"lets {n} be {_listed(v[:_MOST])}" if v else ""
                        for n, v in zip((own, its), only, strict=True)]  # fmt: skip
                return said[0], said[1]
        for limit, word in (("maximum", "up to"), ("minimum", "from"), ("maxLength", "up to"),
                            ("maxItems", "up to")):  # fmt: skip
            x, y = one.get(limit), other.get(limit)
            if isinstance(x, int | float) and isinstance(y, int | float) and x != y:
                return f"takes {own} {word} {x:g}", f"takes {its} {word} {y:g}"
    return "", ""


def _of_clauses(a: Side, b: Side, _: Rarity) -> tuple[str, str]:
    def own(side: Side, other: Side) -> str:
        clauses = re.split(r"[.;!?\n•✓×]+\s|\n", str(side.contract.get("description") or "")[:2000])
        for clause in clauses:
            held = [word for word in words_of(clause) if word not in _STOP]
            new = [word for word in held if _stem(word) not in other.all_words]
            if len(held) >= 3 and 2 * len(new) >= len(held):
                return f'says "{_line(clause.rstrip(" .:,"), _LONGEST)}"'
        return ""

    return own(a, b), own(b, a)


# By how much they help somebody choose: a product or field first, an optional parameter last.
_FINDERS = (
    (SERVER, _of_servers), (NAME, _of_names), (EFFECT, _of_effect), (REQUIRED, _of_required),
    (LIMITS, _of_limits), (CLAUSE, _of_clauses), (WORDS, _of_words), (TAKES, _of_taken),
)  # fmt: skip


def _nothing(a: Side, b: Side) -> str:
    shared = ["same name"] if _flat(a.contract["name"]) == _flat(b.contract["name"]) else []
    told = ({_stem(word) for word in side.told} for side in (a, b))
    shared += ["same words"] if next(told) == next(told) else ["nearly the same words"]
    same = a.taken.keys() == b.taken.keys()
    shared += (["same parameters"] if a.taken else ["no parameters"]) if same else []
    return f"Nothing in their contracts tells them apart: {', '.join(shared)}."


def _stem(word: str) -> str:
    """Singular and plural as one."""
    return word[:-1] if len(word) > 3 and word.endswith("s") and not word.endswith("ss") else word


def _flat(name: str) -> str:
    """A name modulo case and separators."""
    return "".join(char for char in str(name).casefold() if char.isalnum())


def _values(enum: Json) -> list[str]:
    return [_line(str(value), 30) for value in enum[:50]] if isinstance(enum, list) else []


def _line(text: str, most: int) -> str:
    text = " ".join("".join(c if c.isprintable() else " " for c in text).split())
    return text if len(text) <= most else text[: most - 1].rstrip() + "…"


def _listed(names: Sequence[str]) -> str:
    names = [_line(name, 40) for name in names]
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} and {names[-1]}"


def _joined(facts: Sequence[str]) -> str:
    return facts[0] if len(facts) == 1 else f"{', '.join(facts[:-1])} and {facts[-1]}"
