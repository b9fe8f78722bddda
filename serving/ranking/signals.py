"""What one query says about the pool. Cosines are standard deviations above its mean and word
scores shares of its best, so weights hold for any encoder. One product and one BM25 choose some
hundred candidates, for which the other views are read; of a large index LanceDB finds the pool."""

import math
from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np

from assets.vectors.lexical import stem_words
from assets.vectors.texts import ALL, ASKED, FULL, JOINT, SERVER_FIELD, SERVER_VIEWS
from serving.index.model import BLOCK, RouterIndex, compute_products, list_nearly_best
from serving.ranking.overlays import ReliabilityOverlay
from serving.ranking.query import ToolQuery

TINY = 1e-6
# Shares of a question that an encoder reads. Of languages that it knows it reads about the second
# or more (MiniLM: .79 to .99, XLM-R's tokenizer: .70 to 1.00), of others about the first or less,
# the share of Latin names in the text.
UNREAD, READ = 0.25, 0.75
# Rows of a large pool, for which the spread of a small one's cosines is corrected (`standing`).
FITTED_ROWS = {FULL: 12_600, "server": 1_482, "summary": 1_482}
FEW_ELIGIBLE = 20_000  # tools of a large index that are all scored where no others may be answered
NEAR_TIMES = 3  # as many near tools as candidates: one bit a dimension orders them roughly
NEAR_SERVERS = 40  # views of servers whose tools join the pool of a large index
CANDIDATES = 300  # hold 82% of the right tools of the corpus among 12,600; 100 hold 75%
SERVER, WORDS, COVERAGE = "server", "joint words", "coverage"
ABOUT, NAME = "about words", "name"
UNREAD_WORDS = "unread joint words"


def read_ask_texts(ask: ToolQuery) -> tuple[str, str]:
    """Words for the tool and for its server: a user's are both, a model's only what it names."""
    tool = "\n".join(text for text in (ask.tool, ask.query) if text)
    server = "\n".join(text for text in (ask.server, ask.query) if text)
    return tool or server, server or tool


@dataclass(frozen=True)
class QueryPool:
    """The tools that a query scores, and their servers: places in rising order, None for all.
    `owners`, intp [tools], is where the pool has each tool's server."""

    tools: np.ndarray | None
    servers: np.ndarray | None
    owners: np.ndarray

    def find_places(self, rows: np.ndarray) -> np.ndarray:
        return rows if self.tools is None else self.tools[rows]

    def cut_mask(self, mask: np.ndarray | None) -> np.ndarray | None:
        return mask if mask is None or self.tools is None else mask[self.tools]


def find_pool(
    index: RouterIndex,
    ask: ToolQuery,
    tool: np.ndarray,
    server: np.ndarray,
    mask: np.ndarray | None,
) -> QueryPool:
    """All tools of a small index. Of a large one those nearest to the vector, those with the best
    words, those of the nearest servers, and all that `mask` leaves if these are few."""
    if index.search is None:
        return QueryPool(None, None, index.server_of)
    few, most = np.arange(0), max(CANDIDATES, 2 * ask.k)
    if mask is not None:
        eligible = np.flatnonzero(mask)
        if len(eligible) <= FEW_ELIGIBLE:
            few = eligible
        else:  # so many more that enough of them are eligible
            most = most * len(mask) // len(eligible)
    tool_text, server_text = read_ask_texts(ask)
    joint_terms = sorted({*_split_terms(tool_text), *_split_terms(server_text)})
    ids = [
        *index.search.find_near_tools(tool, most * NEAR_TIMES),
        *index.search.match_words(JOINT, joint_terms, most),
        *index.search.match_words(ALL, index.fields[ALL].cut_query(tool_text), most),
    ]
    near = index.search.find_near_servers(server, NEAR_SERVERS)
    of_servers = index.find_tools_of([index.server_places[name] for name in near])
    places = np.array([index.places[name] for name in dict.fromkeys(ids)], np.intp)
    tools = np.unique(np.concatenate([places, of_servers, few]))
    servers, owners = np.unique(index.server_of[tools], return_inverse=True)
    return QueryPool(tools, servers, owners)


def _take(values: np.ndarray, places: np.ndarray | None) -> np.ndarray:
    return values if places is None else values[places]


class QuerySignals:
    """The signals of a query over its pool (default: the whole index), computed when read. `tool`,
    `server`: unit vectors of the texts; `reading`: share of each that the encoder reads, 0..1."""

    def __init__(
        self,
        index: RouterIndex,
        ask: ToolQuery,
        tool: np.ndarray,
        server: np.ndarray,
        overlay: ReliabilityOverlay | None = None,
        reading: tuple[float, float] = (1.0, 1.0),
        pool: QueryPool | None = None,
    ) -> None:
        self.index, self.ask, self.overlay = index, ask, overlay
        self.pool = pool or find_pool(index, ask, tool, server, None)
        self.reading, self.tool, self.server = reading, tool, server
        self.tool_text, self.server_text = read_ask_texts(ask)

    @cached_property
    def _block(self) -> dict[str, np.ndarray]:
        if self.index.block is None:
            return {name: self._multiply(name, self.tool) for name in BLOCK}
        product, products, end = compute_products(self.index.block, self.tool), {}, 0
        for name in BLOCK:
            start, end = end, end + len(self.index.views[name].vectors)
            products[name] = product[start:end]
        return products

    def _multiply(self, name: str, vector: np.ndarray) -> np.ndarray:
        places = self.pool.servers if name in SERVER_VIEWS else self.pool.tools
        return compute_products(_take(self.index.views[name].vectors, places), vector)

    @cached_property
    def dense(self) -> np.ndarray:
        """Cosine to each tool's full text, float32 [tools]."""
        return self._block[FULL]

    @cached_property
    def rough_cosines(self) -> dict[str, np.ndarray]:
        """About what `dense` and `servers` are: exactly that in a small pool."""
        sketch = self.index.sketch
        cosines = dict(self._block) if sketch is None else sketch.products(self.tool)
        if self.server is not self.tool:
            cosines |= {name: self.servers(name) for name in SERVER_VIEWS}
        return cosines

    def standing(self, name: str) -> tuple[float, float]:
        """Mean and spread of the query's cosines to a view's rows, corrected for the pool's size:
        the best of 70 rows lies three spreads above the mean, of 12,600 more than four."""
        vector = self.server if name in SERVER_VIEWS else self.tool
        mean, spread = self.index.moments[name].measure_along(vector)
        rows, fitted = len(self.index.views[name].vectors), FITTED_ROWS[name]
        outlying = (math.log(max(rows, 8)) / math.log(fitted)) ** 0.5
        return mean, max(spread * outlying, 1e-6)

    def exact(self, name: str, places: np.ndarray) -> np.ndarray:
        """Cosines to the rows at `places` of a view of the block."""
        vector = self.server if name in SERVER_VIEWS else self.tool
        return compute_products(self.index.views[name].vectors[places], vector)

    def trust(self, name: str) -> np.float32:
        """What a view's cosine counts, 0..1: nothing if the encoder reads under a quarter of the
        question, all from three quarters. An unread text's vector only tells its script."""
        share = self.reading[name in SERVER_VIEWS]
        return np.float32(min(max((share - UNREAD) / (READ - UNREAD), 0.0), 1.0))

    @cached_property
    def lexical(self) -> np.ndarray:
        """BM25 of each tool's whole text, float32 [tools]."""
        field = self.index.fields[ALL]
        return field.sum_scores(field.cut_query(self.tool_text), self.pool.tools)

    def servers(self, name: str) -> np.ndarray:
        """Cosine of the server's text to each server, float32 [servers]."""
        if self.server is self.tool:
            return self._block[name]
        return self._multiply(name, self.server)

    @cached_property
    def server_words(self) -> np.ndarray:
        """BM25 of each server's document as a share of the best of all, float32 [servers]."""
        scores = self.index.fields[SERVER_FIELD].sum_scores(_split_terms(self.server_text))
        return _take(_scale_values(scores), self.pool.servers)

    @cached_property
    def described(self) -> np.ndarray:
        """Which servers have a text to compare with, bool [servers]: those with a description, and
        all if the question says what server it wants."""
        return _take(self.index.described, self.pool.servers) | bool(self.ask.server)

    @cached_property
    def words(self) -> np.ndarray:
        """BM25 by tool as a share of the pool's best, float32 [tools], with its server's text, or
        alone if the server has no description."""
        return self._words[0]

    def cover(self, rows: np.ndarray) -> np.ndarray:
        """The scores behind `words` as shares of an upper bound, float32 [rows]."""
        shares, of_joint, of_alone = self._words
        described = self.described[self.pool.owners[rows]]
        return shares[rows] * np.where(described, of_joint, of_alone)

    @cached_property
    def _words(self) -> tuple[np.ndarray, np.float32, np.float32]:
        """`words`, and the best score as a share of the bound: of tool and server, of tools."""
        described = self.described
        joint = alone = (np.zeros(0, np.float32), np.float32(0))
        if described.any():
            terms = {*_split_terms(self.tool_text), *_split_terms(self.server_text)}
            scores = self.index.fields[JOINT].sum_scores(sorted(terms), self.pool.tools)
            joint = self._share_words(JOINT, sorted(terms), scores)
        if not described.all():
            terms = self.index.fields[ALL].cut_query(self.tool_text)
            alone = self._share_words(ALL, terms, self.lexical)
        if not len(joint[0]) or not len(alone[0]):
            shares = joint[0] if len(joint[0]) else alone[0]
        else:
            shares = np.where(described[self.pool.owners], joint[0], alone[0])
        return shares, joint[1], alone[1]

    def _share_words(
        self, name: str, terms: list[str], scores: np.ndarray
    ) -> tuple[np.ndarray, np.float32]:
        scores = scores * _take(self.index.credit[name], self.pool.tools)
        best = max(float(scores.max(initial=0.0)), TINY)
        bound = max(self.index.fields[name].bound_score(terms), TINY)
        return scores / np.float32(best), np.float32(best / bound)

    def field(self, name: str) -> np.ndarray:
        """BM25 of one field of each tool, float32 [tools]."""
        scores = self.index.fields[name].sum_scores(_split_terms(self.tool_text), self.pool.tools)
        return scores * _take(self.index.credit[name], self.pool.tools)

    def list_shared(self, places: np.ndarray) -> list[list[str]]:
        """The five heaviest words that the question has in common with each tool."""
        return [words[:5] for words in self.index.fields[ALL].find_shared(self.tool_text, places)]


@lru_cache(maxsize=1_024)
def _split_terms(text: str) -> tuple[str, ...]:
    return tuple(sorted(set(stem_words(text))))


def normalise_vector(vector: np.ndarray) -> np.ndarray:
    return (vector / max(float(np.linalg.norm(vector)), 1e-9)).astype(np.float32)


@dataclass(frozen=True)
class QueryCandidates:
    """Candidates' places and features, [candidates]; `rough`, float32 [pool], orders the pool."""

    places: np.ndarray
    features: dict[str, np.ndarray]
    rough: np.ndarray


def choose_candidates(
    signals: QuerySignals, mask: np.ndarray | None, most: int = CANDIDATES
) -> QueryCandidates:
    """The pool's `most` best tools by a rough score, by place, with features. mask: over it."""
    index, words, trust = signals.index, signals.words, signals.trust(FULL)
    mean, spread = signals.standing(FULL)
    rough = signals.rough_cosines[FULL] * (trust / np.float32(spread)) + words * np.float32(4)
    shift = trust * np.float32(mean / spread)
    rough += (_score_servers(signals) - shift).take(signals.pool.owners)
    rows = _choose_best(rough, mask, most)
    places = signals.pool.find_places(rows)
    owners = index.server_of[places]
    own_text = (signals.exact(FULL, places) - mean) / spread * trust
    server_mean, server_spread = signals.standing(SERVER)
    of_server = (signals.exact(SERVER, owners) - server_mean) / server_spread
    of_server *= signals.trust(SERVER)
    features = {
        FULL: own_text,
        # 0, as of a middling server, without a description
        SERVER: np.where(signals.described[signals.pool.owners[rows]], of_server, np.float32(0)),
        WORDS: words[rows],
        COVERAGE: signals.cover(rows),
        ABOUT: _scale_values(signals.field("about"))[rows],
        NAME: signals.index.fields["name"].match_rarity(_split_terms(signals.tool_text), places),
        UNREAD_WORDS: words[rows] * (1 - trust),
    }
    if ASKED in index.views:
        features[ASKED] = _score_requests(signals, places, own_text, (mean, spread))
    return QueryCandidates(places, features, rough)


def _score_servers(signals: QuerySignals) -> np.ndarray:
    """What each server adds to the rough score, float32 [servers]: 0 without a description."""
    standings = {name: signals.standing(name) for name in SERVER_VIEWS}
    cosines = [
        (signals.rough_cosines[name] - np.float32(mean)) / np.float32(spread)
        for name, (mean, spread) in standings.items()
    ]
    best = np.maximum(*cosines) * (np.float32(0.7) * signals.trust(SERVER))
    return np.where(signals.described, best + signals.server_words, np.float32(0))


def _score_requests(
    signals: QuerySignals, places: np.ndarray, own_text: np.ndarray, standing: tuple[float, float]
) -> np.ndarray:
    """The best cosine to a request that was written for the tool, above that of its own text."""
    view, (mean, spread) = signals.index.views[ASKED], standing
    start = np.searchsorted(view.owners, places)
    end = np.searchsorted(view.owners, places, side="right")
    scores = np.zeros(len(places), np.float32)
    for at in np.flatnonzero(end > start).tolist():
        cosine = float((view.vectors[start[at] : end[at]] @ signals.tool).max())
        scores[at] = (cosine - mean) / spread * signals.trust(FULL)
    return np.where(end > start, np.maximum(scores - own_text, 0.0), 0.0).astype(np.float32)


def weigh_evidence(candidates: QueryCandidates, scores: np.ndarray) -> dict[str, float]:
    """Evidence that the pool holds a suitable tool, from candidates and their fused scores."""
    if not len(scores):
        return {}
    order = np.argsort(-scores)
    top, best = order[0], float(scores[order[0]])
    tenth = float(scores[order[min(10, len(order) - 1)]])
    columns = {name: candidates.features[name] for name in (FULL, SERVER, COVERAGE, NAME)}
    return {
        **{f"most {name}": float(values.max()) for name, values in columns.items()},
        **{f"{name} of best": float(values[top]) for name, values in columns.items()},
        "best": best,
        "lead": best - float(scores[order[1]]) if len(order) > 1 else 0.0,
        "lead of ten": best - tenth,
    }


def _choose_best(scores: np.ndarray, mask: np.ndarray | None, most: int) -> np.ndarray:
    """Places of the `most` best where `mask` holds, in rising order; of equal ones the first."""
    places = np.arange(len(scores)) if mask is None else np.flatnonzero(mask)
    eligible = scores if mask is None else scores[places]
    near = list_nearly_best(eligible, most)
    if most < len(near):
        near = np.sort(near[np.argsort(-eligible[near], kind="stable")[:most]])
    return places[near]


def _scale_values(values: np.ndarray) -> np.ndarray:
    return values / max(float(values.max(initial=0.0)), TINY)
