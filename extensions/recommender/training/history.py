"""What the reranker learns from: calls that ran, with the words that each was made for."""

import time
import zlib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace

import numpy as np
import polars as pl

from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.measure import read_listed, read_weighed
from assets.outcomes.table import EXECUTIONS
from assets.synthesis.tables import PAIRS
from extensions.recommender.reranking.features import Question
from extensions.recommender.reranking.pool import Pool
from extensions.recommender.training.examples import Example
from serving.ranking.reranking import write_client_key
from warehouse.storage.digest import digest
from warehouse.storage.tables import Tables
from warehouse.store import Warehouse

_TEST = 5  # one task in five is held out
_OLD = 0.5  # what a call of an earlier contract counts
# A request is for one tool: some of the others that are served near it count, at a
# quarter, as tools that would not have done it. Without them nothing says what a query is about.
_PASSED, _NEAR, _PASSED_WEIGHT = 4, 20, 0.25

Ask = Callable[[Iterable[str]], Mapping[str, Question]]  # words -> what the reranker is asked


def read_calls(warehouse: Warehouse, policy: ReliabilityPolicy) -> pl.DataFrame:
    """Rows of OBSERVED, weighed as reliability weighs them, of the calls whose words are known.
    Raises SourceDecisionError."""
    rows = read_listed(warehouse.tables)
    return add_words(read_weighed(warehouse, rows, policy, time.time()).frame, warehouse.tables)


def add_words(frame: pl.DataFrame, tables: Tables) -> pl.DataFrame:
    """Rows of OBSERVED that have words: those of an executed call are the request's that it was
    written for."""
    executed = tables.read(EXECUTIONS).select(call_id="execution_id", pair_id="pair_ids")
    ids = pl.col("pair_id").str.json_decode(pl.List(pl.String))
    first = executed.with_columns(ids.list.first()).unique("call_id")
    words = tables.read(PAIRS).select("pair_id", words="instruction").unique("pair_id")
    named = first.join(words, on="pair_id", how="inner").select("call_id", "words")
    asked = frame.join(named, on="call_id", how="left", maintain_order="left")
    blank = pl.col("query") == ""
    asked = asked.with_columns(query=pl.when(blank).then("words").otherwise("query")).drop("words")
    worded = pl.col("query").fill_null("").str.strip_chars() != ""
    counts = (pl.col("weight") > 0) & pl.col("weight", "at").is_finite()
    return asked.filter(worded, counts)


def digest_history(frame: pl.DataFrame, order: str) -> str:
    """The digest of what is learnt from: the calls, of their words the digests alone, and the order
    that they are held against (`ServedOrder.version`)."""
    columns = ["at", "query_key", "tool_id", "contract_digest", "success", "weight"]
    return digest([[*map(list, frame.select(columns).sort(columns).rows())], order])


def split_calls(frame: pl.DataFrame) -> tuple[pl.DataFrame, pl.DataFrame]:
    """(to learn from, held out): all calls for the same words are on one side."""
    out = pl.Series(
        [zlib.crc32(words.encode()) % _TEST == 0 for words in frame["query"]], dtype=pl.Boolean
    )
    return frame.filter(~out), frame.filter(out)


def make_examples(frame: pl.DataFrame, pool: Pool, ask: Ask) -> list[Example]:
    """The examples of rows of OBSERVED with words, in the order of time; those of tools that the
    pool does not hold are left out."""
    rows = [row for row in frame.sort("at", "call_id").to_dicts() if row["tool_id"] in pool.places]
    questions = ask([row["query"] for row in rows])
    return [_make_example(row, questions[row["query"]], pool) for row in rows]


def _make_example(row: Mapping[str, object], question: Question, pool: Pool) -> Example:
    place = pool.places[str(row["tool_id"])]
    same = row["contract_digest"] == pool.tools[place].contract_digest
    weight = min(float(row["weight"]), 1.0) * (1.0 if same else _OLD)  # type: ignore[arg-type]
    client = write_client_key(str(row["source"]), row["client"])  # type: ignore[arg-type]
    asked = replace(question, at=float(row["at"]), client=client)  # type: ignore[arg-type]
    task = str(row["query_key"] or row["query"])
    return Example(asked, place, bool(row["success"]), weight, task)


def add_passed_over(examples: Sequence[Example], pool: Pool) -> list[Example]:
    """The examples, and for each request that was answered a few tools near it that were not called
    for it, nor any of the same contract."""
    by_words: dict[str, list[Example]] = {}
    for one in examples:
        by_words.setdefault(one.question.text, []).append(one)
    found = list(examples)
    for text, own in by_words.items():
        done = next((one for one in own if one.success), None)
        if done is None:
            continue
        called = {pool.tools[one.place].contract_digest for one in own}
        near = [
            place
            for place in done.question.candidates[:_NEAR].tolist()
            if pool.tools[place].contract_digest not in called
        ]
        dice = np.random.default_rng(zlib.crc32(text.encode()))
        drawn = dice.permutation(len(near))[:_PASSED].tolist()
        found += [
            replace(done, place=near[at], success=False, weight=_PASSED_WEIGHT) for at in drawn
        ]
    return found
