"""Summarises a server's tools in two or three sentences, for retrieval, without a model."""

import re
from collections import Counter, defaultdict
from collections.abc import Iterator, Mapping, Sequence
from functools import cache
from pathlib import Path

from assets.contracts.canonical import iterate_parameters
from assets.synthesis.contract_reading import read_purpose
from assets.vectors.lexicon import (
    collect_words,
    find_family,
    join_words,
    split_identifier,
    stem_plural,
)
from warehouse.json_types import Contract, JsonObject
from warehouse.storage.digest import digest_sources
from warehouse.storage.files import read_data

_ORDER = ("read", "search", "create", "update", "delete", "send", "run", "compute", "navigate")
_OBJECTS, _WORDS, _VERBS = 6, 6, 2  # named of one group
_LONGEST = 7  # words of one object
_MOST = 900  # characters of a summary
_STOP, _HEAD = map(collect_words, read_data(__file__, "offline_summaries.toml").values())
# What follows says where and how, and is the same for every tool of a server.
_CUT = re.compile(
    r"\s(?:in|from|for|to|by|with|across|on|at|based|using|via|within|through|into|when|that|which)\s",
    re.IGNORECASE,
)


@cache
def get_offline_version() -> str:
    """Changes with whatever decides the text: this file, and how a contract is read."""
    names = (
        "synthesis/offline_summaries.py",
        "synthesis/offline_summaries.toml",
        "synthesis/contract_reading.py",
        "vectors/lexicon.py",
        "vectors/lexicon.json",
    )
    return f"offline-{digest_sources(Path(__file__).parents[1], *names)}"


def write_summary(server: str, contracts: Sequence[JsonObject]) -> str:
    """Two or three sentences about a server's tools. server: its readable name."""
    contracts = sorted(contracts, key=lambda contract: contract["name"])
    if not contracts:
        return f"{server} offers no tools."
    # family -> object -> the verbs that it is done with.
    groups: dict[str, dict[str, Counter[str]]] = defaultdict(lambda: defaultdict(Counter))
    for contract in contracts:
        does = read_purpose(contract)
        family = does.family if does.family in _ORDER else "run"
        verb, phrase = does.verb, does.rest
        # `get` + "tell the time" -> `tell` + "the time": for a verb that the lexicon lacks.
        head, _, tail = phrase.partition(" ")
        if tail.lower().startswith(("the ", "a ", "an ", "all ", "your ")) and head.isalpha():
            verb, phrase = head.lower(), tail
        groups[family][_find_object(phrase)][verb] += 1
    clauses = [_make_clause(family, groups[family]) for family in _ORDER if family in groups]
    sentences = [f"{server} can {'; '.join(clauses)}."]
    words = _find_domain_words(contracts, sentences[0])
    if words:
        sentences.append(f"Its tools speak of {join_words(words)}.")
    if groups.keys() <= {"read", "search"}:
        sentences.append("It only reads.")
    return " ".join(sentences)[:_MOST]


def make_readable(server_id: str) -> str:
    """A server's id as a name: `npm:@acme/jira-mcp` -> jira."""
    _, _, name = server_id.rpartition(":")
    name_parts = [_split_name(part) for part in re.split(r"[/:]+", name or server_id)]
    # A publisher's name is no field; where nothing else is left, it is all there is.
    words = next((part for part in reversed(name_parts) if part), []) or split_identifier(server_id)
    return " ".join(words)[:80] or server_id[:80]


def _split_name(part: str) -> list[str]:
    return [
        word for word in split_identifier(part) if word not in ("mcp", "server", "servers", "https")
    ]


def _find_object(phrase: str) -> str:
    words = re.sub(r"[^\w\s'/-]+", " ", phrase).split()
    start = next(
        (at for at, word in enumerate(words[:-1]) if word.lower() not in _HEAD), len(words) - 1
    )
    words = _CUT.split(" ".join(words[max(start, 0) :]), maxsplit=1)[0].split()[:_LONGEST]
    while words and words[-1].lower() in _STOP:
        words.pop()
    return " ".join(words) or "its data"


def _make_clause(family: str, objects: Mapping[str, Counter[str]]) -> str:
    verbs: Counter[str] = Counter()
    for counted in objects.values():
        verbs.update(counted)
    top_verbs = [
        verb for verb, _ in sorted(verbs.items(), key=lambda item: (-item[1], item[0]))[:_VERBS]
    ]
    things = _choose_spread(
        sorted(objects, key=lambda item: (len(item.split()), item.lower())), _OBJECTS
    )
    more = " and more" if len(objects) > len(things) else ""
    return f"{' or '.join(top_verbs)} {join_words(things)}{more}"


def _choose_spread(things: Sequence[str], most: int) -> list[str]:
    """Some of many, none of which only repeats the words of another."""
    distinct: list[str] = []
    for thing in things:
        words = {stem_plural(word) for word in split_identifier(thing)}
        if not any(
            {stem_plural(word) for word in split_identifier(other)} >= words for other in distinct
        ):
            distinct.append(thing)
    if len(distinct) <= most:
        return distinct
    return [distinct[place * (len(distinct) - 1) // (most - 1)] for place in range(most)]


def _find_domain_words(contracts: Sequence[JsonObject], text: str) -> list[str]:
    said_words = {stem_plural(word) for word in split_identifier(text)}
    counted: Counter[str] = Counter()
    for contract in contracts:
        counted.update({stem_plural(word): word for word in _walk_words(contract)}.values())
    ranked = sorted(counted.items(), key=lambda item: (-item[1], item[0]))
    least = 2 if len(contracts) > 2 else 1
    fits = [
        word for word, count in ranked if count >= least and stem_plural(word) not in said_words
    ]
    return fits[:_WORDS]


def _walk_words(contract: Contract) -> Iterator[str]:
    first = re.split(r"[.!?\n]", str(contract.get("description") or ""), maxsplit=1)[0][:300]
    texts = [contract["name"], first, *(name for name, _ in iterate_parameters(contract))]
    for text in texts:
        for word in split_identifier(text):
            if len(word) > 2 and word not in _STOP and not word.isdigit() and not find_family(word):
                yield word
