"""What one question says about the whole pool: cosines and word scores, computed when needed."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from assets.vectors.lexical import stem_words
from assets.vectors.texts import ALL, ASKED, FULL, JOINT, SERVER_FIELD, SERVER_VIEWS
from serving.index.model import BLOCK, Index, compute_products, list_nearly_best
from serving.ranking.overlays import Overlay
from serving.ranking.query import Ask

TINY = 1e-6
# Shares of a question that an encoder reads. Of languages that it knows it reads about the second
# or more (MiniLM: .79 to .99, XLM-R's tokenizer: .70 to 1.00), of others about the first or less,
# what Latin names stand in the text.
UNREAD, READ = 0.25, 0.75
# Rows of a large pool, by whose best the spread of a small one's cosines is told (`standing`).
FITTED_ROWS = {FULL: 12_600, "server": 1_482, "summary": 1_482}


def read_ask_texts(ask: Ask) -> tuple[str, str]:
    """What is asked of the tool and of its server. A user's words stand for both; a model that
    names only one side has said nothing of the other."""
    tool = "\n".join(text for text in (ask.tool, ask.query) if text)
    server = "\n".join(text for text in (ask.server, ask.query) if text)
    return tool or server, server or tool


class Signals:
    """The signals of one question. `tool` and `server` are unit vectors of the two texts,
    `reading` says how much of each the encoder reads, 0..1."""

    def __init__(
        self,
        index: Index,
        ask: Ask,
        tool: np.ndarray,
        server: np.ndarray,
        overlay: Overlay | None = None,
        reading: tuple[float, float] = (1.0, 1.0),
    ) -> None:
        self.index, self.ask, self.overlay = index, ask, overlay
        self.reading = reading
        self.tool, self.server = tool, server
        self.tool_text, self.server_text = read_ask_texts(ask)

    @cached_property
    def _block(self) -> dict[str, np.ndarray]:
        """Products of the tool's vector with all views of the block."""
        product, out, end = compute_products(self.index.block, self.tool), {}, 0
        for name in BLOCK:
            start, end = end, end + len(self.index.views[name].vectors)
            out[name] = product[start:end]
        return out

    @cached_property
    def dense(self) -> np.ndarray:
        """Cosine to each tool's full text, float32 [tools]."""
        return self._block[FULL]

    @cached_property
    def glimpse(self) -> dict[str, np.ndarray]:
        """About what `dense` and `servers` are: exactly that in a small pool."""
        sketch = self.index.sketch
        found = dict(self._block) if sketch is None else sketch.products(self.tool)
        if self.server is not self.tool:
            found |= {name: self.servers(name) for name in SERVER_VIEWS}
        return found

    def standing(self, name: str) -> tuple[float, float]:
        """Mean of the question's cosines to all rows of a view of the block, and their spread as
        it would be for the best of the rows to stand as far out as the best of the fitted ones: the
        best of 70 rows lies three spreads above the mean, that of 12,600 more than four, while the
        best word score is always the whole of itself."""
        mean, spread = self.index.moments[name].measure_along(self._read_side(name))
        rows, fitted = len(self.index.views[name].vectors), FITTED_ROWS[name]
        outlying = (math.log(max(rows, 8)) / math.log(fitted)) ** 0.5
        return mean, max(spread * outlying, 1e-6)

    def exact(self, name: str, places: np.ndarray) -> np.ndarray:
        """Cosines to the rows at `places` of a view of the block."""
        return compute_products(self.index.views[name].vectors[places], self._read_side(name))

    def trust(self, name: str) -> np.float32:
        """What a cosine to a view counts, 0..1: nothing where the encoder reads less than a
        quarter of the question, all where it reads three quarters. Of a text that it does not know
        its vector is no more than a likeness of scripts."""
        tool, server = self.reading
        share = server if name in SERVER_VIEWS else tool
        return np.float32(min(max((share - UNREAD) / (READ - UNREAD), 0.0), 1.0))

    def _read_side(self, name: str) -> np.ndarray:
        return self.server if name in SERVER_VIEWS else self.tool

    @cached_property
    def lexical(self) -> np.ndarray:
        """BM25 of each tool's whole text, float32 [tools]."""
        return self.index.fields[ALL].score(self.tool_text)

    def servers(self, name: str) -> np.ndarray:
        """Cosine of the server's text to each server, float32 [servers]."""
        if self.server is self.tool:
            return self._block[name]
        return compute_products(self.index.views[name].vectors, self.server)

    @cached_property
    def server_words(self) -> np.ndarray:
        """BM25 of each server's document, float32 [servers]."""
        return self.index.fields[SERVER_FIELD].sum_scores(_split_terms(self.server_text))

    @cached_property
    def described(self) -> np.ndarray:
        """Which servers have a text to be held against, bool [servers]: those with a description,
        and all where the question says what server it wants."""
        return self.index.described | bool(self.ask.server)

    @cached_property
    def words(self) -> np.ndarray:
        """BM25 of each tool as a share of the pool's best, float32 [tools]. A tool's text stands
        together with its server's, and alone where the server has no description: there it would
        be told by its tools once more."""
        return self._words[0]

    def cover(self, places: np.ndarray) -> np.ndarray:
        """The scores behind `words` as shares of what no text could exceed, float32 [places]."""
        shares, of_joint, of_alone = self._words
        described = self.described[self.index.server_of[places]]
        return shares[places] * np.where(described, of_joint, of_alone)

    @cached_property
    def _words(self) -> tuple[np.ndarray, np.float32, np.float32]:
        """`words`, and the best score as a share of the bound: of tool and server, of tools."""
        described, none = self.described, np.float32(0)
        joint = alone = (np.zeros(0, np.float32), none)
        if described.any():
            terms = {*_split_terms(self.tool_text), *_split_terms(self.server_text)}
            joint = self._share_words(JOINT, sorted(terms))
        if not described.all():
            terms = self.index.fields[ALL].cut_query(self.tool_text)
            alone = self._share_words(ALL, terms, self.lexical)
        if not len(joint[0]) or not len(alone[0]):
            shares = joint[0] if len(joint[0]) else alone[0]
        else:
            shares = np.where(described[self.index.server_of], joint[0], alone[0])
        return shares, joint[1], alone[1]

    def _share_words(
        self, name: str, terms: list[str], known: np.ndarray | None = None
    ) -> tuple[np.ndarray, np.float32]:
        field = self.index.fields[name]
        scores = (field.sum_scores(terms) if known is None else known) * self.index.credit[name]
        best = max(float(scores.max(initial=0.0)), TINY)
        scores /= np.float32(best)
        return scores, np.float32(best / max(field.bound_score(terms), TINY))

    def field(self, name: str) -> np.ndarray:
        """BM25 of one field of each tool, float32 [tools]."""
        scores = self.index.fields[name].sum_scores(_split_terms(self.tool_text))
        return scores * self.index.credit[name]

    def match_names(self, places: np.ndarray) -> np.ndarray:
        """How alike the question and the names of the tools at `places` are in words, 0..1."""
        return self.index.fields["name"].match_rarity(_split_terms(self.tool_text), places)

    def list_shared(self, places: np.ndarray, most: int = 5) -> list[list[str]]:
        """The words that the question has in common with each tool, heaviest first."""
        return [
            found[:most] for found in self.index.fields[ALL].find_shared(self.tool_text, places)
        ]


@lru_cache(maxsize=1_024)
def _split_terms(text: str) -> tuple[str, ...]:
    return tuple(sorted(set(stem_words(text))))


def normalise_vector(vector: np.ndarray) -> np.ndarray:
    """The vector at length one."""
    return (vector / max(float(np.linalg.norm(vector)), 1e-9)).astype(np.float32)


CANDIDATES = 300  # hold 82% of the right tools of the corpus among 12,600; 100 hold 75%
SERVER, WORDS, COVERAGE = "server", "joint words", "coverage"
ABOUT, NAME = "about words", "name"
UNREAD_WORDS = "unread joint words"


@dataclass(frozen=True)
class Candidates:
    """Places of the candidates and their features, each [candidates]; `rough` orders the pool."""

    places: np.ndarray
    features: dict[str, np.ndarray]
    rough: np.ndarray  # float32 [tools]


def choose_candidates(
    signals: Signals, mask: np.ndarray | None, most: int = CANDIDATES
) -> Candidates:
    """The `most` best tools at first sight, in the order of their places, with their features."""
    index = signals.index
    mean, spread = signals.standing(FULL)
    words = signals.words
    trust = signals.trust(FULL)
    rough = signals.glimpse[FULL] * (trust / np.float32(spread)) + words * np.float32(4)
    shift = trust * np.float32(mean / spread)
    rough += (_score_servers(signals) - shift).take(index.server_of)
    places = _choose_best(rough, mask, most)
    owners = index.server_of[places]
    own = (signals.exact(FULL, places) - mean) / spread * trust
    features = {
        FULL: own,
        SERVER: _measure_server(signals, owners),
        WORDS: words[places],
        COVERAGE: signals.cover(places),
        ABOUT: _scale_values(signals.field("about"))[places],
        NAME: signals.match_names(places),
        UNREAD_WORDS: words[places] * (1 - trust),
    }
    features |= _score_requests(signals, places, own, (mean, spread))
    return Candidates(places, features, rough)


def _score_servers(signals: Signals) -> np.ndarray:
    """What each server adds at first sight, float32 [servers]: nothing without a description."""
    standing = {name: signals.standing(name) for name in SERVER_VIEWS}
    seen = [
        (signals.glimpse[name] - np.float32(mean)) / np.float32(spread)
        for name, (mean, spread) in standing.items()
    ]
    best = np.maximum(*seen) * (np.float32(0.7) * signals.trust(SERVER))
    found = best + _scale_values(signals.server_words)
    return np.where(signals.described, found, np.float32(0))


def _measure_server(signals: Signals, owners: np.ndarray) -> np.ndarray:
    """Cosine to the listing of each candidate's server, 0 (as of a middling one) without any."""
    mean, spread = signals.standing(SERVER)
    cosine = (signals.exact(SERVER, owners) - mean) / spread * signals.trust(SERVER)
    return np.where(signals.described[owners], cosine, np.float32(0))


def weigh_evidence(found: Candidates, scores: np.ndarray) -> dict[str, float]:
    """What speaks for the pool holding a suitable tool, from candidates and their fused scores."""
    if not len(scores):
        return {}
    order = np.argsort(-scores)
    top, best = order[0], float(scores[order[0]])
    tail = scores[order[1:]]
    near = float(scores[order[min(10, len(order) - 1)]])
    seen = (FULL, SERVER, COVERAGE, NAME)
    return {
        **{f"most {name}": float(found.features[name].max()) for name in seen},
        **{f"{name} of best": float(found.features[name][top]) for name in seen},
        "best": best,
        "lead": best - float(tail[0]) if len(tail) else 0.0,
        "lead of ten": best - near,
    }


def _score_requests(
    signals: Signals, places: np.ndarray, own: np.ndarray, standing: tuple[float, float]
) -> dict[str, np.ndarray]:
    """The best cosine to a request that was written for the tool, above its own text's; nothing
    where the index holds none."""
    view = signals.index.views.get(ASKED)
    if view is None:
        return {}
    mean, spread = standing
    start = np.searchsorted(view.owners, places)
    end = np.searchsorted(view.owners, places, side="right")
    out = np.zeros(len(places), np.float32)
    for at in np.flatnonzero(end > start).tolist():
        cosine = float((view.vectors[start[at] : end[at]] @ signals.tool).max())
        out[at] = (cosine - mean) / spread * signals.trust(FULL)
    return {ASKED: np.where(end > start, np.maximum(out - own, 0.0), 0.0).astype(np.float32)}


def _choose_best(scores: np.ndarray, mask: np.ndarray | None, most: int) -> np.ndarray:
    """Places of the `most` best where `mask` holds, in rising order; of equal ones the first."""
    places = np.arange(len(scores)) if mask is None else np.flatnonzero(mask)
    held = scores if mask is None else scores[places]
    near = list_nearly_best(held, most)
    if most < len(near):
        near = np.sort(near[np.argsort(-held[near], kind="stable")[:most]])
    return places[near]


def _scale_values(values: np.ndarray) -> np.ndarray:
    return values / max(float(values.max(initial=0.0)), TINY)
