"""Chooses the tool that a request needs by comparing words, without a model."""

import math
import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from functools import cache, lru_cache

from assets.synthesis.contract_reading import get_properties
from assets.synthesis.verify.words import fold_text, stem_word
from assets.vectors.lexicon import collect_words, load_lexicon, split_identifier
from warehouse.json_types import Contract, Json, JsonObject
from warehouse.patterns import compile_pattern
from warehouse.storage.files import read_data

_WEIGHTS = (3.0, 2.0, 1.2)  # of a word in the name, the description, the parameters
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
    scores = _score_tools([_weigh_words(contract) for contract in contracts], terms)
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
    return list(dict.fromkeys(_stem_words(_VALUES.sub(" ", text))))


_VALUES = compile_pattern(r"""'[^']{2,}'(?:[^\w]|$)|"[^"]{2,}"|\S+[/@]\S+""")


def _stem_words(text: str) -> list[str]:
    words = re.findall(r"[^\W\d_]{2,}", fold_text(text))
    return [stem_word(word) for word in words if word not in _IDLE]


_IDLE = collect_words(read_data(__file__, "words.toml")["idle"])


def _weigh_words(contract: Contract) -> dict[str, float]:
    """Word -> how much a tool speaks of it, from 0 to 1; a word said twice weighs little more."""
    texts = (
        " ".join(split_identifier(str(contract.get("name") or ""))),
        str(contract.get("description") or "")[:600],
        " ".join(word for name in get_properties(contract) for word in split_identifier(str(name))),
    )
    mass: dict[str, float] = defaultdict(float)
    for weight, text in zip(_WEIGHTS, texts, strict=True):
        for word, count in Counter(_stem_words(text)).items():
            mass[word] += weight * min(count, 3)
    return {word: value / (value + _SATURATION) for word, value in mass.items()}


def _score_tools(
    tools: Sequence[dict[str, float]], terms: Sequence[str]
) -> list[tuple[float, set[str]]]:
    """As BM25: rare words among the tools weigh more."""
    holders = {term: sum(term in words for words in tools) for term in terms}
    rarity = {
        term: math.log(1 + (len(tools) - count + 0.5) / (count + 0.5)) + 0.25
        for term, count in holders.items()
    }
    whole = sum(rarity.values()) or 1.0
    scores: list[tuple[float, set[str]]] = []
    for words in tools:
        total, shared, meant = 0.0, set[str](), set[str]()
        for term in terms:
            near = max((words.get(other, 0.0) for other in _find_synonyms(term)), default=0.0)
            if match := max(words.get(term, 0.0), _SYNONYM * near):
                (shared if term in words else meant).add(term)
                total += rarity[term] * match
        # One word that may mean the same is chance: dogs turn, and so do currencies.
        scores.append((total / whole, shared | meant if shared or len(meant) > 1 else set()))
    return scores


@lru_cache(maxsize=20_000)
def _find_synonyms(term: str) -> frozenset[str]:
    """Words that the lexicon takes for the same, stemmed."""
    groups = (group for group in _make_synonym_groups() if term in group)
    return frozenset(other for group in groups for other in group) - {term}


@cache
def _make_synonym_groups() -> list[frozenset[str]]:
    lexicon = load_lexicon()
    return [
        frozenset(_stem_words(" ".join([key, *(o for o in options if " " not in o)])))
        for table in ("verbs", "nouns")
        for key, options in lexicon[table].items()
        if " " not in key
    ]
