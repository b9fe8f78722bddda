"""Checks a model's text for orders and language. Figures: 1,224 good requests of the corpus."""

import re
import unicodedata
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from itertools import islice

from assets.contracts.scan import scan_list
from assets.contracts.scan.rule_table import LOW
from assets.vectors.lexicon import collect_words
from warehouse.json_types import Json, JsonObject
from warehouse.storage.files import read_data

# Their longest run of words out of their tool's descriptions: 1,222 have at most 5, two have 6.
RUN = 7
_TEXTS = 400  # of one contract
_LONGEST = 20_000  # characters of one text


def find_order(text: str) -> str | None:
    """The order that a text gives its reader (4 good requests look so), or None."""
    findings = scan_list([{"name": "text", "description": text, "inputSchema": {}}])
    grave = next((finding for finding in findings if finding.severity != LOW), None)
    return f"{grave.rule}: {grave.excerpt}" if grave is not None else None


def collect_runs(contracts: Iterable[JsonObject]) -> frozenset[tuple[str, ...]]:
    """Every run of words in the contracts' titles and descriptions."""
    return frozenset(
        run
        for contract in contracts
        for text in islice(_walk_texts(contract), _TEXTS)
        for run in _split_runs(text)
    )


def find_repeated_run(text: str, runs: frozenset[tuple[str, ...]]) -> str | None:
    """The first run of words that a text repeats, or None."""
    repeated = next((run for run in _split_runs(text) if run in runs), None)
    return " ".join(repeated) if repeated is not None else None


def _split_runs(text: str) -> Iterator[tuple[str, ...]]:
    words = re.findall(r"\w+", text[:_LONGEST].casefold())
    return (tuple(words[at : at + RUN]) for at in range(len(words) - RUN + 1))


def _walk_texts(value: Json) -> Iterator[str]:
    """Titles and descriptions at any depth, without recursion: nesting may be the attack."""
    stack: list[Json] = [value]
    while stack:
        node = stack.pop()
        if isinstance(node, Mapping):
            for name, member in node.items():
                if name in ("description", "title") and isinstance(member, str):
                    yield member
                else:
                    stack.append(member)
        elif isinstance(node, Sequence) and not isinstance(node, str):
            stack.extend(node)


_LATIN = {"LATIN"}
_SPOKEN = read_data(__file__, "words.toml")
_SCRIPTS = {language: set(names) for language, names in _SPOKEN["scripts"].items()}
_WORDS = {language: collect_words(text) for language, text in _SPOKEN["small_words"].items()}
_ENOUGH = 4  # small words: fewer are names and quotations


def has_english_words(text: str) -> bool:
    """Whether a text has a small word of English, as nearly every English sentence does."""
    return not _WORDS["en"].isdisjoint(text[:4000].casefold().split())


def find_other_language(text: str, asked: str) -> str | None:
    """The language or script a text is plainly in instead of the one asked for, or None."""
    asked = asked.lower().split("-")[0].split("_")[0]
    letters = [char for char in text[:2000] if char.isalpha()]
    if asked not in _SCRIPTS and asked not in _WORDS:
        return None  # a language that nothing here knows
    scripts = Counter(unicodedata.name(char, "?").split()[0] for char in letters)
    expected = _SCRIPTS.get(asked, _LATIN)
    if len(letters) >= 6 and sum(scripts[name] for name in expected) < 0.5 * len(letters):
        return scripts.most_common(1)[0][0].title()
    if expected != _LATIN:
        return None
    flat = unicodedata.normalize("NFKD", text[:4000].casefold()).replace("ı", "i")
    flat = "".join(char for char in flat if not unicodedata.combining(char))
    tokens = re.findall(r"[\w']+", flat)
    counts = {name: sum(word in words for word in tokens) for name, words in _WORDS.items()}
    best = max(counts, key=lambda name: counts[name])
    plainly = counts[best] >= _ENOUGH and counts[best] >= 4 * max(1, counts[asked])
    return best if best != asked and plainly else None
