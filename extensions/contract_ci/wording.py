"""Look-alikes of a server's tools, and descriptions that let the router find its tools more often.

Half of the questions choose a wording, the other half measure it. A wording only adds what is true
of the tool: its parameters, its server, words in which its users ask for it.
"""

import json
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

from assets.contracts.canonical import canonicalize_contract, contract_digest, tool_text
from assets.vectors.confusable_table import CONFUSABLE, find_confusables
from assets.vectors.distinguish import STOP, split_words
from assets.vectors.encoders.embedder import Embedder
from assets.vectors.lexicon import join_words, stem_plural
from serving.adhoc import VectorCache
from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexSource
from serving.ranking.query import BadQuery, ToolQuery
from serving.router import Router
from warehouse.json_types import Contract
from warehouse.progress import SilentProgress
from warehouse.statistics import wilson_interval

_NEAREST = 30  # tools of the index that each own tool is compared with


@dataclass(frozen=True)
class LookAlike:
    """tool: of the server itself. other: "<server_id>::<tool>". cosine: of their texts."""

    tool: str
    other: str
    cosine: float
    tells_apart: str


def find_lookalikes(
    server_id: str, contracts: Mapping[str, Contract], router: Router, base: Embedder
) -> list[LookAlike]:
    """Tools of the router's index, of other servers, that are look-alikes of these contracts as the
    asset `confusables` judges it (not twins: their text is the same). `base` is MiniLM, on whose
    scale likeness is read."""
    rows = [make_row(server_id, contract) for contract in contracts.values()]
    others: dict[str, dict[str, Any]] = {}
    for contract in contracts.values():
        others |= find_neighbours(tool_text(contract), router, server_id)
    rows += others.values()
    if not rows:
        return []
    matrix = base.embed([tool_text(json.loads(row["contract"])) for row in rows])
    lookalikes = []
    for pair in find_confusables(rows, matrix):
        sides = [(pair["server_id"], pair["tool"]), (pair["other_server_id"], pair["other_tool"])]
        own_sides = [side for side in sides if side[0] == server_id]
        if pair["kind"] == CONFUSABLE and len(own_sides) == 1:
            (other,) = (side for side in sides if side[0] != server_id)
            name = "::".join(other)
            lookalikes.append(LookAlike(own_sides[0][1], name, pair["cosine"], pair["tells_apart"]))
    return sorted(
        lookalikes, key=lambda lookalike: (lookalike.tool, -lookalike.cosine, lookalike.other)
    )


def find_neighbours(text: str, router: Router, server_id: str) -> dict[str, dict[str, Any]]:
    """Tool id -> snapshot row of the tools that a search for a text shows, the server's own left
    out."""
    try:
        hits = router.find(ToolQuery(text, k=_NEAREST)).hits
    except BadQuery:
        return {}
    index = router.index
    return {
        hit.tool_id: make_row(hit.server_id, index.contract(index.places[hit.tool_id]))
        for hit in hits
        if hit.server_id != server_id
    }


def make_row(server_id: str, contract: Contract) -> dict[str, Any]:
    return {
        "server_id": server_id,
        "tool": contract["name"],
        "contract_digest": contract_digest(contract),
        "contract": json.dumps(contract, ensure_ascii=False),
        "marketplace": "contract ci",
    }


def list_new(before: Iterable[LookAlike], after: Iterable[LookAlike]) -> list[LookAlike]:
    """Those of `after` whose pair was none before."""
    known_pairs = {(lookalike.tool, lookalike.other) for lookalike in before}
    return [
        lookalike for lookalike in after if (lookalike.tool, lookalike.other) not in known_pairs
    ]


_MOST_WORDS = 5
LEAST = 8  # questions below which a half measures nothing


@dataclass(frozen=True)
class WordingQuestion:
    """query: as a user asks. tool: the server's tool that is meant."""

    query: str
    tool: str


@dataclass(frozen=True)
class ToolWording:
    """One tool's new description."""

    tool: str
    description: str


@dataclass(frozen=True)
class WordingProposal:
    """wordings: [] where none helped on the half that chooses. before, after: right first hits of
    n held-out questions."""

    wordings: list[ToolWording]
    n: int
    before: int
    after: int

    def as_row(self) -> dict[str, Any]:
        def show(hits: int) -> dict[str, Any]:
            low, high = wilson_interval(hits, self.n)
            share = hits / self.n if self.n else None
            return {"recall_at_1": share, "low": low, "high": high}

        return {
            "held_out": self.n,
            "before": show(self.before),
            "after": show(self.after),
            "shown_to_help": self.after > self.before,
            "wordings": [vars(wording) for wording in self.wordings],
        }


class _SearchField:
    """The server's tools among those that the index shows for the same questions."""

    def __init__(
        self, server_id: str, others: Sequence[dict[str, Any]], encoder: Embedder, place: Path
    ) -> None:
        self._server_id, self._others, self._place = server_id, others, place
        self._encoder, self._cache = encoder, VectorCache(place, encoder, SilentProgress())

    def count_right(
        self, contracts: Mapping[str, Contract], questions: Sequence[WordingQuestion]
    ) -> list[bool]:
        """Whether each question's first hit is the tool that is meant."""
        rows = [make_row(self._server_id, entry) for entry in contracts.values()]
        source = IndexSource([*rows, *self._others])
        version = build_index(self._place, source, self._cache, embedder=self._encoder.id)
        router = Router(load_index(self._place, version), self._encoder)
        answers = router.find_many([ToolQuery(question.query, k=1) for question in questions])
        return [
            bool(answer.hits)
            and (answer.hits[0].server_id, answer.hits[0].tool) == (self._server_id, entry.tool)
            for answer, entry in zip(answers, questions, strict=True)
        ]


def propose_wordings(
    server_id: str,
    contracts: Mapping[str, Contract],
    questions: Sequence[WordingQuestion],
    router: Router,
) -> WordingProposal:
    """For each tool that questions mean, the first wording that answers more of one half's
    questions right; measured on the other half. Every second question of each tool chooses.
    Raises ValueError where a half has fewer than 8."""
    chosen_by, held_out = _split_halves(questions)
    if min(len(chosen_by), len(held_out)) < LEAST:
        raise ValueError(
            f"{len(questions)} questions for this server's tools; at least {2 * LEAST} are needed"
        )
    others: dict[str, dict[str, Any]] = {}
    for entry in questions:
        others |= find_neighbours(entry.query, router, server_id)
    with TemporaryDirectory(prefix="toolmill-ci-") as folder:
        field = _SearchField(server_id, list(others.values()), router.encoder, Path(folder))
        best, wordings = dict(contracts), []
        right = sum(field.count_right(best, chosen_by))
        for name in sorted({entry.tool for entry in chosen_by}):
            queries = [entry.query for entry in chosen_by if entry.tool == name]
            for text in write_wordings(contracts[name], server_id, queries):
                tried = {**best, name: canonicalize_contract({**best[name], "description": text})}
                count = sum(field.count_right(tried, chosen_by))
                if count > right:
                    best, right = tried, count
            if best[name] != contracts[name]:
                wordings.append(ToolWording(name, best[name]["description"]))
        before, after = (sum(field.count_right(entry, held_out)) for entry in (contracts, best))
    return WordingProposal(wordings, len(held_out), before, after)


def _split_halves(
    questions: Sequence[WordingQuestion],
) -> tuple[list[WordingQuestion], list[WordingQuestion]]:
    halves: tuple[list[WordingQuestion], list[WordingQuestion]] = ([], [])
    counts: Counter[str] = Counter()
    for question in sorted(set(questions), key=lambda each: (each.tool, each.query)):
        halves[counts[question.tool] % 2].append(question)
        counts[question.tool] += 1
    return halves


def write_wordings(contract: Contract, server_id: str, queries: Sequence[str]) -> Iterator[str]:
    """The description with one more sentence: its users' words, its server's name, what it takes.
    asked: questions that mean the tool."""
    text = str(contract.get("description") or "").strip()
    lead = f"{text.rstrip('.')}. " if text else ""
    known_words = {stem_plural(word) for word in split_words(f"{contract['name']} {text}")}
    if words := _list_asked(queries, known_words):
        yield f"{lead}Also: {', '.join(words)}."
    server = re.split(r"[/:]", server_id.rstrip("/"))[-1]
    yield f"{lead}Part of {server}."
    parameters = list((contract.get("inputSchema") or {}).get("properties") or {})
    if parameters:
        yield f"{lead}Takes {join_words(parameters[:_MOST_WORDS])}."


def _list_asked(queries: Sequence[str], known_words: set[str]) -> list[str]:
    """Words of two questions or more that the tool does not have, the most frequent first."""
    counts: Counter[str] = Counter()
    for query in queries:
        counts.update({word for word in split_words(query) if word not in STOP})
    new = [
        word for word, count in counts.items() if count > 1 and stem_plural(word) not in known_words
    ]
    return sorted(new, key=lambda word: (-counts[word], word))[:_MOST_WORDS]
