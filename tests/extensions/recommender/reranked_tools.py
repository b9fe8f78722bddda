"""Tools and outcomes whose rule is known: by number, in words, and as the log of a served index."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.log import CallLog, query_digest
from extensions.recommender import call_history, rerank_method, role
from extensions.recommender.online_learner import OnlineLearner
from extensions.recommender.tool_pool import ToolFacts, ToolPool
from serving.index.build import build_index, move_pointer
from serving.index.model import RERANKER_FILE, IndexSource
from serving.ranking.query import ToolQuery
from serving.ranking.strategies import RerankQuestion
from serving.router import Router, ServedRouter
from tests.outcomes.reliability.observing import Observation, make_frame
from tests.serving.meta_server import opened
from tests.vectors.conftest import WordEmbedder, snapshot

DIM = 8
TOOLS = 12


def make_pool(tools: int = TOOLS, seed: int = 0) -> ToolPool:
    """Tools on four servers, with vectors drawn at random."""
    rng = np.random.default_rng(seed)
    schema = {"type": "object", "properties": {"x": {"type": "string"}}}
    contracts = [
        {"name": f"tool_{at}", "description": f"Does job {at}.", "inputSchema": schema}
        for at in range(tools)
    ]
    facts = [
        ToolFacts(f"npm:s{at % 4}::{contract['name']}", f"npm:s{at % 4}", contract)
        for at, contract in enumerate(contracts)
    ]
    vectors = rng.normal(size=(tools, DIM))
    return ToolPool(facts, vectors / np.linalg.norm(vectors, axis=1, keepdims=True))


def make_question(
    pool: ToolPool, seed: int, at: float = 0.0, client: str | None = None
) -> RerankQuestion:
    """A question about a direction drawn at random, with all tools as candidates by cosine."""
    vector = np.random.default_rng(seed).normal(size=DIM)
    vector = (vector / np.linalg.norm(vector)).astype(np.float32)
    order = np.argsort(-(pool.vectors @ vector))
    return RerankQuestion(f"do job {seed}", vector, order, at, client)


def draw_examples(pool: ToolPool, count: int, seed: int = 0) -> list[rerank_method.OutcomeExample]:
    """Outcomes where the tools at even places work nine times in ten, the others one in ten; two of
    each question."""
    rng, results = np.random.default_rng(seed), []
    for row in range(count):
        question = make_question(pool, row // 2, at=float(row))
        place = int(rng.integers(len(pool)))
        success = bool(rng.random() < (0.9 if place % 2 == 0 else 0.1))
        results.append(rerank_method.OutcomeExample(question, place, success, task=f"t{row // 2}"))
    return results


JOBS = ("weather", "train", "mail", "file", "map")
# Two tools say the same of each job, and one of them fails.
ROWS = [
    snapshot(f"npm:{kind}", f"{kind}_{job}", f"Tell the {job} of a city {kind}")
    for job in JOBS
    for kind in ("good", "bad")
]
DIGESTS = {f"{row['server_id']}::{row['tool']}": row["contract_digest"] for row in ROWS}


def draw_calls(count: int, seed: int = 0) -> pl.DataFrame:
    dice, made = np.random.default_rng(seed), []
    for at in range(count):
        kind, job = ("good", "bad")[int(dice.integers(2))], JOBS[int(dice.integers(len(JOBS)))]
        tool_id = f"npm:{kind}::{kind}_{job}"
        success = bool(dice.random() < (0.9 if kind == "good" else 0.1))
        words = f"tell me the {job} of city {at}"
        observation = Observation(float(at), tool_id, DIGESTS[tool_id], success)
        made.append(replace(observation, query=words, query_key=f"q1:{at}", source="token:ann"))
    return make_frame(made)


def order_rows(home: Path, embedder: WordEmbedder) -> call_history.ServedOrder:
    return call_history.ServedOrder(
        call_history.open_order(home / "order", IndexSource(ROWS), embedder.embed, embedder)
    )


def train(home: Path, calls: pl.DataFrame, embedder: WordEmbedder) -> dict:
    served = order_rows(home, embedder)
    return role.train_reranker(
        home,
        call_history.digest_history(calls, served.version),
        lambda: call_history.add_passed_over(
            call_history.make_examples(calls, served.pool, served.ask), served.pool
        ),
        served.pool,
        ("base", embedder.id),
    )


GOOD, BAD = "npm:good::good_mail", "npm:bad::bad_mail"
QUERY = "tell the mail of a city"
RECIPES = {name: {"ecosystem": "npm", "name": name[4:]} for name in ("npm:good", "npm:bad")}


def publish_ranked(home: Path, rows: Any = ROWS, reranked: bool = True) -> str:
    """Serves an index of the rows, with a reranker that knows which tools work."""
    embedder, file = WordEmbedder(), None
    if reranked:
        file = home / "models" / train(home, draw_calls(200), embedder)["name"] / RERANKER_FILE
    source = IndexSource(rows, recipes=RECIPES)
    version = build_index(home, source, embedder.embed, embedder=embedder.id, reranker=file)
    move_pointer(home, version)
    return version


class Learning:
    """What serves a home, and what learns there."""

    def __init__(self, home: Path, policy: ReliabilityPolicy | None = None) -> None:
        self.home, self.outcomes = home, CallLog(home)
        self.served = ServedRouter(home, opened)
        self.learner = OnlineLearner(self.served, self.outcomes, policy or ReliabilityPolicy())

    def settle(self, most: int = 400) -> Router:
        """Lets it learn all there is; the router then."""
        self.served.settle(30)
        while not self.learner.step() and (most := most - 1):
            pass
        assert most, "it does not come to an end"
        return self.served.current()

    def find_odds(self, client: str | None = None) -> dict[str, float]:
        hits = self.served.current().find(ToolQuery(QUERY, k=10, client=client)).hits
        return {hit.tool_id: hit.score for hit in hits}


def log_search(outcomes: CallLog, token: str, search_id: str, words: str = QUERY) -> None:
    facts = {"token": token, "status": "searched", "search_id": search_id, "words": words}
    outcomes.record(facts | {"query": query_digest(words)})


def log_call(
    outcomes: CallLog, token: str, number: int, tool_id: str = GOOD, worked: bool = False, **more
) -> None:
    log_search(outcomes, token, f"s{number}")
    ended = {"status": "ok"} if worked else {"status": "tool_error", "blame": "tool"}
    about = {"tool_id": tool_id, "contract_digest": DIGESTS[tool_id], "search_id": f"s{number}"}
    named = {"token": token, "call_id": f"c{number}", "query": query_digest(QUERY)}
    outcomes.record({**named, **about, **ended, **more})


def log_claim(outcomes: CallLog, token: str, number: int, tool_id: str = GOOD) -> None:
    """A search in its own words, and a report that a tool failed which was never called."""
    words = f"{QUERY} {number}"
    log_search(outcomes, token, f"s{number}", words)
    about = {"tool_id": tool_id, "contract_digest": DIGESTS[tool_id], "search_id": f"s{number}"}
    named = {"token": token, "query": query_digest(words), "status": "reported"}
    outcomes.record({**named, **about, "reported": "failed"})
