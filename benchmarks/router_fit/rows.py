"""Requests against the index of a pool: features of every candidate, and what peers answer."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from assets.vectors.encoders.embedder import Embedder, measure_reading
from assets.vectors.encoders.session import TextTokenizer
from benchmarks.router_fit.sets import QuerySet, Request
from serving.adhoc import read_source
from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import RouterIndex
from serving.ranking.query import ToolQuery, check_ask
from serving.ranking.signals import (
    ABOUT,
    COVERAGE,
    FULL,
    NAME,
    SERVER,
    UNREAD_WORDS,
    WORDS,
    QuerySignals,
    choose_candidates,
)
from serving.ranking.strategies import BY_NAME
from serving.router import QUERY_TOKENS

FEATURES = (FULL, SERVER, WORDS, COVERAGE, ABOUT, NAME, UNREAD_WORDS)
PEERS = ("dense", "bm25", "rrf", "mcp-zero")
MEASURES: tuple[str, ...] = ("Recall@1", "Recall@5", "Recall@10", "MRR@10")
_DEPTH = 60  # places of a peer that are looked at: ten after twins are one
Array = np.ndarray


@dataclass(frozen=True)
class Rows:
    """Requests of one pool with their candidates: x [requests, most, features]."""

    requests: tuple[Request, ...]
    names: tuple[str, ...]  # of the features
    x: Array  # float32 [requests, most, features]
    held: Array  # bool [requests, most]: a candidate stands here
    right: Array  # bool [requests, most]: a right tool or a twin of one
    twins: Array  # int [requests, most]: what the candidates are, twins alike; -1 for none
    gold: tuple[frozenset[int], ...]  # what is right, as `twins` has it
    peers: dict[str, Array]  # strategy -> measures [requests, 4]

    def select(self, use: Array) -> "Rows":
        """The rows where `use` holds."""
        at = np.flatnonzero(use)
        return Rows(
            tuple(self.requests[i] for i in at), self.names, self.x[at], self.held[at],
            self.right[at], self.twins[at], tuple(self.gold[i] for i in at),
            {name: values[at] for name, values in self.peers.items()},
        )  # fmt: skip

    def measure(self, weights: Array) -> Array:
        """Measures [requests, 4] of the order by these weights."""
        scores = np.where(self.held, self.x @ weights.astype(np.float32), -np.inf)
        order = np.argsort(-np.round(scores.astype(np.float64), 6), axis=1, kind="stable")
        found = np.take_along_axis(self.twins, order, 1)
        rows = zip(found, self.gold, self.requests, strict=True)
        return np.array([measure_order(row, gold, of.wants_all) for row, gold, of in rows])


def measure_order(found: Array, gold: frozenset[int], wants_all: bool) -> tuple[float, ...]:
    """Recall@1/5/10 and MRR@10 of one answer as `score/retrieval.py` has them; twins count once."""
    shown = [tool for tool in dict.fromkeys(found.tolist()) if tool >= 0][:10]
    places = [at for at, tool in enumerate(shown) if tool in gold]
    wanted = len(gold) if wants_all else 1
    recalls = [min(sum(at < k for at in places), wanted) / wanted for k in (1, 5, 10)]
    return (*recalls, 1 / (places[0] + 1) if places else 0.0)


def open_index(found: QuerySet, home: Path, embedder: Embedder) -> RouterIndex:
    """The index of a set's pool; built once."""
    place = home / "index" / found.name
    place.mkdir(parents=True, exist_ok=True)
    listed = place / "servers.jsonl"
    listed.write_text("".join(json.dumps(row) + "\n" for row in found.servers), encoding="utf-8")
    source, _ = read_source(listed)
    version = build_index(place, source, embedder.embed, embedder=embedder.id)
    return load_index(place, version)


def read_signals(
    index: RouterIndex, requests: Sequence[Request], embedder: Embedder
) -> list[QuerySignals]:
    """Each request read as the router reads it: of a long one both ends."""
    asks = [check_ask(ToolQuery(request.text))[0] for request in requests]
    texts: Sequence[str] = [ask.query or "" for ask in asks]
    if tokenizer := getattr(embedder, "tokenizer", None):
        texts = TextTokenizer(tokenizer, QUERY_TOKENS, both_ends=True).keep_ends(texts)
    read = zip(asks, embedder.embed(texts), measure_reading(embedder, texts).tolist(), strict=True)
    return [QuerySignals(index, ask, v, v, reading=(share, share)) for ask, v, share in read]


def collect_rows(
    index: RouterIndex,
    requests: Sequence[Request],
    signals: Sequence[QuerySignals],
    names: Sequence[str],
) -> Rows:
    """Candidates, features by name (0 where a request has none of it) and peers."""
    found = [choose_candidates(signal, None) for signal in signals]
    most = max((len(item.places) for item in found), default=1)
    shape = (len(requests), most)
    x = np.zeros((*shape, len(names)), np.float32)
    held, right = np.zeros(shape, bool), np.zeros(shape, bool)
    twins = np.full(shape, -1)
    gold = [
        frozenset(index.twins[[index.places[tool] for tool in of.gold]].tolist()) for of in requests
    ]
    for row, one in enumerate(found):
        size = len(one.places)
        held[row, :size] = True
        twins[row, :size] = index.twins[one.places]
        right[row, :size] = np.isin(twins[row, :size], list(gold[row]))
        none = np.zeros(size, np.float32)
        x[row, :size] = np.stack([one.features.get(name, none) for name in names], -1)
    found_by = {
        name: [BY_NAME[name](signal, None, _DEPTH).places for signal in signals] for name in PEERS
    }
    peers = {
        name: _measure_peer(index, places, requests, gold) for name, places in found_by.items()
    }
    return Rows(tuple(requests), tuple(names), x, held, right, twins, tuple(gold), peers)


def _measure_peer(
    index: RouterIndex,
    places: Sequence[Array],
    requests: Sequence[Request],
    gold: Sequence[frozenset[int]],
) -> Array:
    rows = zip(places, gold, requests, strict=True)
    return np.array(
        [measure_order(index.twins[row], of, asked.wants_all) for row, of, asked in rows]
    )


def join_rows(parts: Sequence[Rows]) -> Rows:
    """Rows of several pools as far as a comparison needs them: requests and peers."""
    requests = tuple(request for part in parts for request in part.requests)
    peers = {name: np.concatenate([part.peers[name] for part in parts]) for name in PEERS}
    none = np.zeros((len(requests), 0))
    empty = none.astype(bool)
    return Rows(requests, (), none[..., None], empty, empty, none, (), peers)
