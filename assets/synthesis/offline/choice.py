"""Chooses the tool that a request needs by comparing words, without a model.

The right tool is not in `meta`. The comparison is lexical: it finds the tool that names the
same things, and misses what is only implied.
"""

import math
import re
from collections import Counter
from collections.abc import Mapping, Sequence
from functools import lru_cache

from assets.synthesis.contract_reading import get_properties
from assets.synthesis.verify.words import fold_text, stem_word
from assets.vectors.lexicon import collect_words, load_lexicon, split_identifier
from warehouse.json_types import Contract, Json, JsonObject

_FIELDS = (("name", 3.0), ("description", 2.0), ("parameters", 1.2), ("details", 0.5))
_SYNONYM = 0.4  # of a word's own weight
_SATURATION = 1.2
_BAR = 0.05  # of the request's weight; a pick needs as much, and so much more than the next best
_AHEAD = 1.15


def answer_choice(meta: JsonObject, seed: int) -> Json:
    """The checker's answer `Choice`."""
    number, why = choose_tool(meta["contracts"], str(meta["instruction"]))
    return {"reason": why, "tool": number}


def choose_tool(contracts: Sequence[JsonObject], instruction: str) -> tuple[int, str]:
    """The number of the tool that fits best, counted from 1, or 0; and why."""
    terms = extract_terms(instruction)
    if not terms or not contracts:
        return 0, "the request has no word to go by"
    scores = _score_tools([_count_fields(contract) for contract in contracts], terms)
    best = max(range(len(scores)), key=lambda i: scores[i][0])
    value, shared = scores[best]
    if value < _BAR or not shared:
        return 0, "no tool speaks of what the request speaks of"
    if any(_AHEAD * other > value for at, (other, _) in enumerate(scores) if at != best):
        return 0, "two tools fit about equally well"
    return best + 1, f"it shares {', '.join(sorted(shared)[:6])} with the request"


def extract_terms(text: str) -> list[str]:
    """The content words of a text, stemmed, each once; what stands in quotes is a value, no word
    of the request, and so are paths, addresses and numbers."""
    bare = re.sub(r"'[^']{2,}'(?!\w)|\"[^\"]{2,}\"|\S+[/@]\S+", " ", text)
    return list(dict.fromkeys(_stem_words(bare)))


def _stem_words(text: str) -> list[str]:
    words = re.findall(r"[^\W\d_]{2,}", fold_text(text))
    return [stem_word(word) for word in words if word not in _IDLE]


_IDLE = collect_words(
    "a an and any are as at be been but by can could did do does for from get give had has "
    "have he her hi him his how i if in into is it its just let like make me my need no not "
    "now of off on one or our out over please put should show so some tell than thank "
    "thanks that the their them then there these they this those to too up us use using "
    "want was we were what when where which who why will with would you your am im ive id "
    "lets dont about after all also back before being day go going good got help here keep "
    "know last look more most much new only other really right same see something sure take "
    "thing time today well work yes yet tool tools user users data provide provides return "
    "returns specific given based optional default string value values parameter parameters "
    "list api via server"
)


def _count_fields(contract: Contract) -> dict[str, Counter[str]]:
    members = get_properties(contract)
    details = " ".join(
        str(member.get("description") or "")[:200]
        for member in members.values() if isinstance(member, Mapping)
    )  # fmt: skip
    texts = {
        "name": " ".join(split_identifier(str(contract.get("name") or ""))),
        "description": str(contract.get("description") or "")[:600],
        "parameters": " ".join(word for name in members for word in split_identifier(str(name))),
        "details": details[:3000],
    }
    return {field: Counter(_stem_words(text)) for field, text in texts.items()}


def _score_tools(
    tools: Sequence[Mapping[str, Counter[str]]], terms: Sequence[str]
) -> list[tuple[float, set[str]]]:
    """BM25-like: rare words among the tools weigh more, a word said twice little more."""
    weight = {term: _weigh_rarity(term, tools) for term in terms}
    whole = sum(weight.values()) or 1.0
    scores: list[tuple[float, set[str]]] = []
    for fields in tools:
        total, shared, meant = 0.0, set[str](), set[str]()
        for term in terms:
            exact = _saturate(fields, term)
            near = max((_saturate(fields, other) for other in _find_synonyms(term)), default=0.0)
            match = max(exact, _SYNONYM * near)
            if match:
                (shared if exact else meant).add(term)
            total += weight[term] * match
        # One word that may mean the same is chance: dogs turn, and so do currencies.
        scores.append((total / whole, shared | meant if shared or len(meant) > 1 else set()))
    return scores


def _saturate(fields: Mapping[str, Counter[str]], term: str) -> float:
    mass = sum(factor * min(fields[name][term], 3) for name, factor in _FIELDS)
    return mass / (mass + _SATURATION)


def _weigh_rarity(term: str, tools: Sequence[Mapping[str, Counter[str]]]) -> float:
    holders = sum(any(fields[name][term] for name, _ in _FIELDS) for fields in tools)
    return math.log(1 + (len(tools) - holders + 0.5) / (holders + 0.5)) + 0.25


@lru_cache(maxsize=20_000)
def _find_synonyms(term: str) -> frozenset[str]:
    """Words that the lexicon takes for the same, stemmed."""
    return frozenset(
        other for group in _make_synonym_groups() if term in group for other in group
    ) - {term}


@lru_cache(maxsize=1)
def _make_synonym_groups() -> list[frozenset[str]]:
    groups: list[frozenset[str]] = []
    for table in ("verbs", "nouns"):
        for key, options in load_lexicon()[table].items():
            if " " not in key:
                singles = [o for o in options if " " not in o]
                groups.append(frozenset(_stem_words(" ".join([key, *singles]))))
    return [group for group in groups if len(group) > 1]
