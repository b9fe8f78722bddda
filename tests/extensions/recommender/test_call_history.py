"""The order that a reranker learns from and is measured on: the one that it is handed when it
serves."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from assets.contracts.quarantined_tools import CLEAR
from assets.synthesis.tables import JUDGEMENTS, PAIRS, GoldenCall, make_single_row
from assets.vectors.texts import ASKED
from extensions.recommender.call_history import (
    _OLD,
    add_passed_over,
    add_words,
    drop_requests,
    make_examples,
    open_served_order,
)
from extensions.recommender.evaluation import REQUEST, evaluate_reranker
from extensions.recommender.rerank_method import OutcomeExample
from extensions.recommender.tool_pool import ToolFacts, ToolPool
from serving.index.model import IndexSource
from serving.ranking.query import ToolQuery
from serving.ranking.strategies import RERANKED, RerankQuestion
from tests.outcomes.reliability.observing import Observation, make_frame
from tests.support.reranked import ROWS, draw_calls, order_rows
from tests.support.reranking import DIM, make_pool
from tests.vectors.conftest import WordEmbedder
from warehouse.store import Warehouse

TOOLS = make_pool()
POOL = ToolPool([replace(tool, contract_digest="c1:new") for tool in TOOLS.tools], TOOLS.vectors)
SEEN = Observation(
    at=20.0, tool_id="npm:s1::tool_1", contract_digest="c1:new", success=True, query="do job 1",
    query_key="q1:1", source="token:ann",
)  # fmt: skip


ORDER = np.arange(len(POOL))[::-1]  # as tools are served, whatever they are alike to


def ask(words: Iterable[str]) -> dict[str, RerankQuestion]:
    vector = np.eye(1, DIM, dtype=np.float32)[0]
    return {text: RerankQuestion(text, vector, ORDER) for text in words}


def test_calls_are_examples_in_the_order_of_time() -> None:
    earlier = replace(SEEN, at=10.0, success=False, client="alice")
    first, second = make_examples(make_frame([SEEN, earlier]), POOL, ask)
    assert (first.success, first.question.at) == (False, 10.0)
    assert (first.question.client, second.question.client) == ("token:ann alice", None)
    assert first.task == second.task == "q1:1"
    assert second.place == POOL.places["npm:s1::tool_1"]
    assert first.question.candidates.tolist() == ORDER.tolist()


def test_what_was_passed_over_is_what_is_served_first() -> None:
    tools = [
        ToolFacts(f"npm:s::tool_{at}", "npm:s", {"name": f"tool_{at}"}, f"c1:{at}")
        for at in range(40)
    ]
    pool, served = ToolPool(tools, np.eye(40, DIM, dtype=np.float32)), np.arange(40)[::-1]
    asked = RerankQuestion("do job 1", np.eye(1, DIM, dtype=np.float32)[0], served)
    done = OutcomeExample(asked, 35, True)
    own, *passed = add_passed_over([done], pool)
    assert own is done
    assert len({one.place for one in passed}) == 4
    assert {one.place for one in passed} <= set(range(20, 40)) - {35}
    assert not any(one.success for one in passed)


def test_what_another_contract_did_counts_for_less() -> None:
    old = replace(SEEN, contract_digest="c1:old", weight=0.5)
    [example] = make_examples(make_frame([old]), POOL, ask)
    assert example.weight == 0.5 * _OLD


def test_a_tool_that_is_gone_teaches_nothing() -> None:
    gone = replace(SEEN, tool_id="npm:gone::x")
    assert len(make_examples(make_frame([gone, SEEN]), POOL, ask)) == 1
    assert make_examples(make_frame([]), POOL, ask) == []


@pytest.mark.parametrize(
    "changed",
    [{"query": " "}, {"weight": 0.0}, {"weight": float("nan")}, {"at": float("inf")}],
)
def test_a_call_without_words_time_or_weight_is_left_out(
    changed: dict[str, object], tmp_path: Path
) -> None:
    tables = Warehouse(home=tmp_path, state=tmp_path / "state").tables
    rows = make_frame([replace(SEEN, **changed), SEEN])  # type: ignore[arg-type]
    assert add_words(rows, tables)["at"].to_list() == [20.0]


# Both tools say the same of mail; by cosine the other one is nearer, by its words this one.
WORDS, RIGHT, NEARER = "good mail of a city", "npm:good::good_mail", "npm:bad::bad_mail"


def test_a_question_has_its_candidates_as_the_router_ranks_them(tmp_path: Path) -> None:
    served = order_rows(tmp_path, WordEmbedder())
    [asked] = served.ask([WORDS]).values()
    pool = served.pool
    names = [pool.tools[place].tool_id for place in asked.candidates.tolist()]
    hits = served._router.find(ToolQuery(WORDS, k=RERANKED)).hits
    assert names == [hit.tool_id for hit in hits]
    assert names[0] == RIGHT
    assert pool.tools[int(np.argmax(pool.vectors @ asked.vector))].tool_id == NEARER
    scores = served.score([WORDS])[WORDS]
    assert (np.diff(scores[asked.candidates]) <= 0).all()
    assert scores.shape == (len(pool),)


def test_the_order_without_a_reranker_is_measured_as_it_is_served(tmp_path: Path) -> None:
    served = order_rows(tmp_path, WordEmbedder())
    pool, asked = served.pool, served.ask([WORDS])
    requests = [(asked[WORDS], pool.places[RIGHT])]
    [row] = evaluate_reranker({"none": None}, [], requests, pool, served.score, "set")
    assert (row["kind"], row["right"]) == (REQUEST, True)


def test_words_that_are_asked_are_in_no_index_that_they_are_put_to(tmp_path: Path) -> None:
    warehouse = Warehouse(home=tmp_path / "home", state=tmp_path / "state")
    tables, row = warehouse.tables, ROWS[0]
    own = GoldenCall(row["server_id"], row["tool"], row["contract_digest"], {})
    texts = ("is it raining over there", "do I need a coat")
    pairs = [{**make_single_row(own, text, []), "pair_id": text} for text in texts]
    judged = [
        dict.fromkeys(JUDGEMENTS.columns) | {"pair_id": text, "verdict": "accept"} for text in texts
    ]
    for spec, held in ((CLEAR, ROWS), (PAIRS, pairs), (JUDGEMENTS, judged)):
        tables.promote(tables.stage(spec, spec.frame(held), "registry"), "run", [])
    encoder = WordEmbedder()
    with open_served_order(warehouse, encoder, texts[:1]) as served:
        views = served._router.index.views
        assert len(views[ASKED].vectors) == 1
        name = served.version
    with open_served_order(warehouse, encoder, texts) as served:
        assert ASKED not in served._router.index.views
        assert served.version != name
    assert list((warehouse.home / "cache").iterdir()) == []
    assert not (warehouse.home / "router").exists()
    kept = drop_requests(IndexSource(ROWS, instructions={"c1:a": [texts[0], texts[1]]}), [texts[0]])
    assert kept.instructions == {"c1:a": [texts[1]]}


def test_the_same_questions_are_learnt_from_again(tmp_path: Path) -> None:
    served = order_rows(tmp_path, WordEmbedder())
    calls = draw_calls(40)
    first, second = (make_examples(calls, served.pool, served.ask) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.question.at == other.question.at
        assert one.question.candidates.tolist() == other.question.candidates.tolist()
