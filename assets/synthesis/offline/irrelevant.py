"""Requests that no tool shown can serve, with the answer an assistant gives without one."""

import random
from collections.abc import Sequence

from assets.synthesis.offline.choice import choose_tool, extract_terms
from assets.synthesis.offline.language.rewrites import read_phrases
from assets.synthesis.offline.requests import LANGUAGE
from assets.synthesis.verify.grounding.grounding import stem_word
from assets.vectors.lexicon import list_pool, split_identifier
from warehouse.json_types import Json, JsonObject
from warehouse.storage.digest import digest


def answer_aside(meta: JsonObject, seed: int) -> Json:
    """The generator's reply: small talk, sums in the head, taste, or another line of work."""
    contracts = list(meta["contracts"])
    rng = random.Random(digest(["aside", contracts, meta.get("profile"), seed]))
    told = _collect_terms(contracts)
    # The fewest words in common first; a set of tools may well speak of everything.
    kinds = sorted(
        read_phrases()["asides"], key=lambda k: (len(told & _stem_words(k["about"])), rng.random())
    )
    made = {"instruction": "", "reply": ""}
    for kind in kinds:
        for ask in rng.sample(kind["ask"], len(kind["ask"])):
            made = _fill_phrase(kind, ask, rng)
            if (
                not told & set(extract_terms(made["instruction"]))
                and not choose_tool(contracts, made["instruction"])[0]
            ):
                return {**made, "language": LANGUAGE}
    # Every aside shares a word with some tool: the first kind shares the least with them.
    return {**_fill_phrase(kinds[0], kinds[0]["ask"][0], rng), "language": LANGUAGE}


def _collect_terms(contracts: Sequence[JsonObject]) -> set[str]:
    """The content words that the tools use of themselves."""
    names = [word for c in contracts for word in split_identifier(str(c.get("name") or ""))]
    about = [str(c.get("description") or "")[:600] for c in contracts]
    return set(extract_terms(" ".join([*names, *about])))


def _stem_words(words: Sequence[str]) -> set[str]:
    return {stem_word(word) for word in words}


def _fill_phrase(kind: JsonObject, ask: str, rng: random.Random) -> dict[str, str]:
    facts = {**_make_sum(str(kind.get("make")), rng), "first": rng.choice(list_pool("first"))}
    reply = kind["reply"][kind["ask"].index(ask) % len(kind["reply"])]
    for name, value in facts.items():
        ask, reply = ask.replace(f"{{{name}}}", value), reply.replace(f"{{{name}}}", value)
    return {"instruction": ask, "reply": reply}


def _make_sum(make: str, rng: random.Random) -> dict[str, str]:
    """Numbers of a sum done in the head, and its result."""
    a, b = rng.randint(11, 49), rng.randint(6, 29)
    match make:
        case "product":
            c = a * b
        case "tenth":
            a *= 10
            c = a // 10
        case "mean":
            b = a + 2 * b
            c = (a + b) // 2
        case _:
            c = a + b
    return {"a": str(a), "b": str(b), "c": str(c)}
