"""A served index with a reranker, and a log of calls beside it that teaches it more."""

from pathlib import Path
from typing import Any

from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.log import CallLog, query_digest
from extensions.recommender.online_learner import OnlineLearner
from serving.index.build import build_index, move_pointer
from serving.index.model import RERANKER_FILE, IndexSource
from serving.ranking.query import ToolQuery
from serving.router import Router, ServedRouter
from tests.serving.meta_server import opened
from tests.support.reranked import DIGESTS, ROWS, draw_calls, train
from tests.vectors.conftest import WordEmbedder

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
        """P(success) of each tool for QUERY."""
        hits = self.served.current().find(ToolQuery(QUERY, k=10, client=client)).hits
        return {hit.tool_id: hit.score for hit in hits}


def log_search(outcomes: CallLog, token: str, search_id: str, words: str = QUERY) -> None:
    facts = {"token": token, "status": "searched", "search_id": search_id, "words": words}
    outcomes.record(facts | {"query": query_digest(words)})


def log_call(
    outcomes: CallLog, token: str, number: int, tool_id: str = GOOD, worked: bool = False,
    **more: Any,
) -> None:  # fmt: skip
    """A search of a token, and a call of one of the tools that it showed."""
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
