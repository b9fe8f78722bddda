"""Requests that no tool shown can serve, with the answer an assistant gives without one."""

import random
from collections.abc import Mapping, Sequence
from typing import Any

from assets.synthesis.offline.choice import choose, terms
from assets.synthesis.offline.language.rewrites import phrases
from assets.synthesis.offline.requests import LANGUAGE
from assets.synthesis.verify.grounding.grounding import stem
from assets.vectors.lexicon import pool, words_of
from warehouse.storage.digest import digest

Json = Any


def aside(meta: Mapping[str, Json], seed: int) -> Json:
    """The generator's reply: small talk, sums in the head, taste, or another line of work."""
    contracts = list(meta["contracts"])
    rng = random.Random(digest(["aside", contracts, meta.get("profile"), seed]))
    told = _told(contracts)
    # The fewest words in common first; a set of tools may well speak of everything.
    kinds = sorted(
        phrases()["asides"], key=lambda k: (len(told & _stemmed(k["about"])), rng.random())
    )
    made = {"instruction": "", "reply": ""}
    for kind in kinds:
        for ask in rng.sample(kind["ask"], len(kind["ask"])):
            made = _said(kind, ask, rng)
            if (
                not told & set(terms(made["instruction"]))
                and not choose(contracts, made["instruction"])[0]
            ):
                return {**made, "language": LANGUAGE}
    # Every aside shares a word with some tool: the first kind shares the least with them.
    return {**_said(kinds[0], kinds[0]["ask"][0], rng), "language": LANGUAGE}


def _told(contracts: Sequence[Mapping[str, Json]]) -> set[str]:
    """The content words that the tools use of themselves."""
    text = " ".join(
        f"{' '.join(words_of(str(c.get('name') or '')))} {str(c.get('description') or '')[:600]}"
        for c in contracts
    )
    return set(terms(text))


def _stemmed(words: Sequence[str]) -> set[str]:
    return {stem(word) for word in words}


def _said(kind: Mapping[str, Json], ask: str, rng: random.Random) -> dict[str, str]:
    facts = {**_sum(str(kind.get("make")), rng), "first": rng.choice(pool("first"))}
    reply = kind["reply"][kind["ask"].index(ask) % len(kind["reply"])]
    for name, value in facts.items():
        ask, reply = ask.replace(f"{{{name}}}", value), reply.replace(f"{{{name}}}", value)
    return {"instruction": ask, "reply": reply}


def _sum(make: str, rng: random.Random) -> dict[str, str]:
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
