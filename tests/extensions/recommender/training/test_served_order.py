"""The order that a reranker learns from and is measured on: the one that it is handed when it
serves."""

from pathlib import Path

import numpy as np

from assets.contracts.quarantined_tools import CLEAR
from assets.synthesis.tables import JUDGEMENTS, PAIRS, GoldenCall, make_single_row
from assets.vectors.texts import ASKED
from extensions.recommender.training.evaluation import REQUEST, evaluate_reranker
from extensions.recommender.training.history import make_examples
from extensions.recommender.training.served_order import drop_requests, open_served_order
from serving.index.model import Source
from serving.ranking.reranking import RERANKED
from serving.router import Ask
from tests.support.reranked import ROWS, draw_calls, order_rows
from tests.vectors.conftest import WordEmbedder
from warehouse.store import Warehouse

# Both tools say the same of mail; by cosine the other one is nearer, by its words this one.
WORDS, RIGHT, NEARER = "good mail of a city", "npm:good::good_mail", "npm:bad::bad_mail"


def test_a_question_has_its_candidates_as_the_router_ranks_them(tmp_path: Path) -> None:
    served = order_rows(tmp_path, WordEmbedder())
    [asked] = served.ask([WORDS]).values()
    pool = served.pool
    names = [pool.tools[place].tool_id for place in asked.candidates.tolist()]
    hits = served._router.find(Ask(WORDS, k=RERANKED)).hits
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
    kept = drop_requests(Source(ROWS, instructions={"c1:a": [texts[0], texts[1]]}), [texts[0]])
    assert kept.instructions == {"c1:a": [texts[1]]}


def test_the_same_questions_are_learnt_from_again(tmp_path: Path) -> None:
    served = order_rows(tmp_path, WordEmbedder())
    calls = draw_calls(40)
    first, second = (make_examples(calls, served.pool, served.ask) for _ in range(2))
    for one, other in zip(first, second, strict=True):
        assert one.question.at == other.question.at
        assert one.question.candidates.tolist() == other.question.candidates.tolist()
