"""The ways to order the pool: ours and the four it is measured against, over one index."""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from assets.vectors.texts import SERVER_VIEWS
from serving.index.model import RELIABILITY
from serving.ranking.signals import CANDIDATES, Signals, choose_candidates, weigh_evidence

RRF_K = 60  # the constant of Cormack et al. 2009, which every product keeps
MCP_ZERO_SERVERS = 5


@dataclass(frozen=True)
class Ranked:
    """Places of tools, best first, with their scores and the parts of these by name."""

    places: np.ndarray  # int [found]
    scores: np.ndarray  # float [found]
    parts: dict[str, np.ndarray] = field(default_factory=dict)  # not a number: not looked at
    suitable: float | None = None  # known where the strategy weighs it


Mask = np.ndarray | None


def rank_dense(signals: Signals, mask: Mask, most: int) -> Ranked:
    """Cosine of the question to the tool's full text."""
    places = find_top(signals.dense, mask, most)
    return Ranked(places, signals.dense[places], {"full": signals.dense[places]})


def rank_bm25(signals: Signals, mask: Mask, most: int) -> Ranked:
    """BM25 over the tool's whole text."""
    places = find_top(signals.lexical, mask, most)
    return Ranked(places, signals.lexical[places], {"words": signals.lexical[places]})


def rank_rrf(signals: Signals, mask: Mask, most: int) -> Ranked:
    """Plain reciprocal rank fusion of both; without a word in common there is no lexical rank."""
    total = np.zeros(len(signals.dense), np.float32)
    for scores in (signals.dense, signals.lexical):
        ranked = find_top(scores, mask, len(scores))
        if scores is signals.lexical:
            ranked = ranked[scores[ranked] > 0]
        total[ranked] += 1 / (RRF_K + 1 + np.arange(len(ranked), dtype=np.float32))
    places = find_top(total, mask, most)
    parts = {"full": signals.dense[places], "words": signals.lexical[places]}
    return Ranked(places, total[places], parts)


def mcp_zero(signals: Signals, mask: Mask, most: int) -> Ranked:
    """MCP-Zero's algorithm (arXiv 2506.01056): the five best servers by the better of description
    and summary, within them (s x t) x max(s, t). Servers without an eligible tool are passed over;
    the others follow by server, so that any number of hits can be asked for."""
    best = np.max([signals.servers(name) for name in SERVER_VIEWS], axis=0)
    server_of = signals.index.server_of
    able = np.ones(len(best), bool)
    if mask is not None:
        able = np.bincount(server_of[mask], minlength=len(best)) > 0
    chosen = np.zeros(len(best), bool)
    chosen[find_top(best, able, MCP_ZERO_SERVERS)] = True
    s, t = best[server_of], signals.dense
    score = (s * t) * np.maximum(s, t)
    score = np.where(chosen[server_of], score, score - 10)
    places = find_top(score, mask, most)
    return Ranked(places, score[places], {"server": s[places], "full": t[places]})


def rank_fused(signals: Signals, mask: Mask, most: int) -> Ranked:
    """All views and fields fused by fitted weights over the candidates of first sight; beyond them
    the order of first sight."""
    index = signals.index
    fusion = index.fusion
    found = choose_candidates(signals, mask)
    suits = fusion.score(found.features)
    score = suits
    if signals.overlay is not None:
        score = suits + np.float32(RELIABILITY) * signals.overlay.lift[found.places]
    order = np.lexsort((found.places, -np.round(score.astype(np.float64), 6)))[:most]
    places, scores = found.places[order], score[order]
    parts = {name: values[order] for name, values in found.features.items()}
    suitable = fusion.suitable(weigh_evidence(found, suits))
    if most > len(places) == CANDIDATES:
        rest = find_top(found.rough, mask, most + CANDIDATES)
        rest = rest[~np.isin(rest, places)][: most - len(places)]
        behind = scores[-1] - 1 - np.arange(len(rest), dtype=np.float32) * np.float32(0.01)
        places, scores = np.concatenate([places, rest]), np.concatenate([scores, behind])
        lost = np.full(len(rest), np.nan, np.float32)
        parts = {name: np.concatenate([values, lost]) for name, values in parts.items()}
    return Ranked(places, scores, parts, suitable)


BY_NAME: dict[str, Callable[[Signals, Mask, int], Ranked]] = {
    "ours": rank_fused,
    "mcp-zero": mcp_zero,
    "dense": rank_dense,
    "bm25": rank_bm25,
    "rrf": rank_rrf,
}


def find_top(scores: np.ndarray, mask: Mask, most: int) -> np.ndarray:
    """Places of the `most` best scores where `mask` holds, best first; equal scores by place, so
    that an answer is the same on every machine."""
    places = np.arange(len(scores)) if mask is None else np.flatnonzero(mask)
    held = scores if mask is None else scores[places]
    if most < len(places):
        near = np.argpartition(-held, most - 1)[:most]
        # All that tie with the last one in, so that which of them comes is decided by place.
        near = np.flatnonzero(held >= held[near].min()) if len(near) else near
        places, held = places[near], held[near]
    order = np.lexsort((places, -np.round(held.astype(np.float64), 6)))[:most]
    return places[order]
