"""What the reranker learns from: calls that ran, with the words that each was made for."""

import time
import zlib
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import polars as pl

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.measure import read_listed, read_weighed
from assets.outcomes.table import EXECUTIONS
from assets.synthesis.tables import PAIRS
from assets.vectors.encoders.embedder import Embedder
from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.reranker_file import open_pool
from extensions.recommender.tool_pool import ToolPool
from serving.index.build import build_index, embed_views
from serving.index.folder import load_index
from serving.index.model import IndexSource
from serving.ranking.overlays import OverlayBroken, read_overlay
from serving.ranking.strategies import RerankQuestion, write_client_key
from serving.router import Router
from training.releases.index_source import build_published_source
from warehouse.progress import SilentProgress
from warehouse.storage.digest import digest
from warehouse.storage.lance import LanceStore
from warehouse.storage.tables import Tables
from warehouse.store import Warehouse

_TEST = 5  # one task in five is held out
_OLD = 0.5  # what a call of an earlier contract counts
# A request is for one tool: some of the others that are served near it count, at a
# quarter, as tools that would not have done it. Without them nothing says what a query is about.
_PASSED, _NEAR, _PASSED_WEIGHT = 4, 20, 0.25

Ask = Callable[[Iterable[str]], Mapping[str, RerankQuestion]]  # words -> what the reranker is asked


def read_calls(warehouse: Warehouse, policy: ReliabilityPolicy) -> pl.DataFrame:
    """Rows of OBSERVED, weighed as reliability weighs them, of the calls whose words are known."""
    rows = read_listed(warehouse.tables)
    return add_words(read_weighed(warehouse, rows, policy, time.time()).frame, warehouse.tables)


def add_words(frame: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Rows of OBSERVED that have words: executed calls have those of their request."""
    executed = tables.read(EXECUTIONS).select(call_id="execution_id", pair_id="pair_ids")
    ids = pl.col("pair_id").str.json_decode(pl.List(pl.String))
    first = executed.with_columns(ids.list.first()).unique("call_id")
    words = tables.read(PAIRS).select("pair_id", words="instruction").unique("pair_id")
    named = first.join(words, on="pair_id", how="inner").select("call_id", "words")
    asked = frame.join(named, on="call_id", how="left", maintain_order="left")
    blank = pl.col("query") == ""
    asked = asked.with_columns(query=pl.when(blank).then("words").otherwise("query")).drop("words")
    worded = pl.col("query").fill_null("").str.strip_chars() != ""
    return asked.filter(worded, (pl.col("weight") > 0) & pl.col("weight", "at").is_finite())


def digest_history(frame: pl.DataFrame, order: str) -> str:
    """Digest of what is learnt from: the calls, by digests of their words, and their order."""
    columns = ["at", "query_key", "tool_id", "contract_digest", "success", "weight"]
    return digest([[*map(list, frame.select(columns).sort(columns).rows())], order])


def split_calls(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(to learn from, held out): all calls for the same words are on one side."""
    out = pl.Series(
        [zlib.crc32(words.encode()) % _TEST == 0 for words in frame["query"]], dtype=pl.Boolean
    )
    return frame.filter(~out), frame.filter(out)


def make_examples(frame: pl.DataFrame, pool: ToolPool, ask: Ask) -> list[OutcomeExample]:
    """Examples of rows of OBSERVED with words, by time; tools outside the pool are left out."""
    rows = [row for row in frame.sort("at", "call_id").to_dicts() if row["tool_id"] in pool.places]
    questions = ask([row["query"] for row in rows])
    return [_make_example(row, questions[row["query"]], pool) for row in rows]


def _make_example(
    row: Mapping[str, object], question: RerankQuestion, pool: ToolPool
) -> OutcomeExample:
    place = pool.places[str(row["tool_id"])]
    same = row["contract_digest"] == pool.tools[place].contract_digest
    weight = min(float(row["weight"]), 1.0) * (1.0 if same else _OLD)  # type: ignore[arg-type]
    client = write_client_key(str(row["source"]), row["client"])  # type: ignore[arg-type]
    asked = replace(question, at=float(row["at"]), client=client)  # type: ignore[arg-type]
    task = str(row["query_key"] or row["query"])
    return OutcomeExample(asked, place, bool(row["success"]), weight, task)


def add_passed_over(examples: Sequence[OutcomeExample], pool: ToolPool) -> list[OutcomeExample]:
    """The examples, and a few tools near each answered request that were not called for it."""
    by_words: dict[str, list[OutcomeExample]] = {}
    for example in examples:
        by_words.setdefault(example.question.text, []).append(example)
    results = list(examples)
    for text, calls in by_words.items():
        done = next((item for item in calls if item.success), None)
        if done is None:
            continue
        called = {pool.tools[item.place].contract_digest for item in calls}
        near = [
            place
            for place in done.question.candidates[:_NEAR].tolist()
            if pool.tools[place].contract_digest not in called
        ]
        dice = np.random.default_rng(zlib.crc32(text.encode()))
        drawn = dice.permutation(len(near))[:_PASSED].tolist()
        results += [
            replace(done, place=near[at], success=False, weight=_PASSED_WEIGHT) for at in drawn
        ]
    return results


class ServedOrder:
    """A router without a reranker. pool: its tools; version: all of its order but outcomes."""

    def __init__(self, router: Router) -> None:
        self._router, self.pool = router, open_pool(router.index)
        self.version = router.index.version

    def ask(self, words: Iterable[str], *, lifted: bool = False) -> dict[str, RerankQuestion]:
        """By their words, questions as the reranker is asked them. lifted: in the order that
        reliability has a part in, as it is served; not where outcomes are to be told beforehand."""
        texts = list(dict.fromkeys(words))
        overlay = self._router.overlay if lifted else None
        return dict(zip(texts, self._router.list_questions(texts, overlay), strict=True))

    def score(self, words: Iterable[str]) -> dict[str, np.ndarray]:
        """By their words, the score that orders all tools, float32 [tools]; no outcome is in it."""
        texts = list(dict.fromkeys(words))
        return dict(zip(texts, self._router.score_tools(texts), strict=True))


@contextmanager
def open_served_order(
    warehouse: Warehouse, encoder: Embedder, asked: Collection[str]
) -> Iterator[ServedOrder]:
    """The order of the current tables with a retriever's encoder. asked: words that no index may
    hold as requests. Listed contracts are no candidates: nothing is learnt without a launch."""
    home = warehouse.home
    source, _ = build_published_source(warehouse, unverified=False)
    store = LanceStore(home / "lance")
    cache = home / "cache"
    cache.mkdir(parents=True, exist_ok=True)
    with TemporaryDirectory(prefix="served-order-", dir=cache) as folder:
        router = open_order(
            Path(folder),
            drop_requests(source, asked),
            lambda texts: embed_views(texts, encoder, store, SilentProgress()),
            encoder,
        )
        try:
            overlay = read_overlay(home, router.index)
        except OverlayBroken:
            overlay = None  # as it is served then
        yield ServedOrder(router.renew(router.blocked, overlay))


def open_order(
    place: Path,
    source: IndexSource,
    embed: Callable[[Sequence[str]], np.ndarray],
    encoder: Embedder,
) -> Router:
    version = build_index(place, source, embed, embedder=encoder.id)
    return Router(load_index(place, version), encoder)


def drop_requests(source: IndexSource, asked: Collection[str]) -> IndexSource:
    """What orders tools of a source, without requests that are asked: no recipe, no history."""
    left_out = {text.strip() for text in asked}
    instructions = {
        digest: [text for text in texts if text.strip() not in left_out]
        for digest, texts in source.instructions.items()
    }
    return replace(source, instructions=instructions, recipes={}, moves=())
