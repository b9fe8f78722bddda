"""The role reranker: its calls, its assets, its evaluation, and what is served of it."""

from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.log import CallLog
from assets.synthesis.tables import JUDGEMENTS, PAIRS, GoldenCall, make_single_row
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.texts import ASKED
from extensions.publishing.model_card import write_card
from extensions.recommender import call_history, defs, evaluation, online_learner, rerank_method
from extensions.recommender.role import UNTRAINED_ORDER, find_lack, load_reranker
from extensions.recommender.tool_pool import ToolFacts, ToolPool
from serving.export import check_export, export_release, open_served
from serving.index.model import IndexSource
from serving.ranking.query import ToolQuery
from serving.ranking.strategies import RERANKED, RerankQuestion
from serving.router import Router, ServedRouter
from tests.extensions.recommender.reranked_tools import (
    DIGESTS,
    DIM,
    JOBS,
    ROWS,
    draw_calls,
    make_pool,
    order_rows,
    train,
)
from tests.outcomes.reliability.observing import Observation, make_frame
from tests.support.cases import cases
from tests.training.conftest import materialize
from tests.vectors.conftest import WordEmbedder
from training.adapter_table import check_adapter_rules, make_adapter_row, make_adapter_table
from training.gates import as_rows
from training.policies import TrainerPolicy
from training.releases.defs import release, router_index
from training.releases.in_service import find_release_models, find_reranker_file
from training.releases.rollback import roll_back_release, undo_rollback
from training.role import check_evaluation, find_weights_flaw
from training.runtime.model_store import get_model_folder
from training.sets.training_set import TRAINING_SET
from warehouse.home import claim_home
from warehouse.store import Warehouse


@cases(
    "worked, failed, tools, lacks",
(150, 50, 8, False), (199, 0, 50, True), (190, 10, 50, True), (0, 0, 0, True),
     (100, 100, 7, True), (100, 99, 50, True),
)  # fmt: skip
def test_too_few_outcomes_are_said_to_be_so(worked, failed, tools, lacks):
    said = find_lack([True] * worked + [False] * failed, tools)
    assert (said is not None) is lacks
    if said:
        assert f"{worked} worked, {failed} failed" in said


def test_a_reranker_of_calls_passes_its_gates_and_is_told_of_when_broken(tmp_path):
    embedder = WordEmbedder()
    learnt, held_out = call_history.split_calls(draw_calls(500))
    assert not {*learnt["query"]} & {*held_out["query"]}
    card = train(tmp_path, learnt, embedder)
    assert train(tmp_path, learnt, embedder) == card  # the same calls again train nothing
    assert all(verdict.passed for verdict in check_adapter_rules(tmp_path, card))
    make_adapter_table("reranker").frame([make_adapter_row(card)])
    served = order_rows(tmp_path, embedder)
    pool = served.pool
    models = {card["name"]: load_reranker(tmp_path, card, pool), UNTRAINED_ORDER: None}
    asked = {f"tell me the {job} of a city good": f"npm:good::good_{job}" for job in JOBS}
    questions = served.ask(asked)
    requests = [(questions[text], pool.places[name]) for text, name in asked.items()]
    calls = call_history.make_examples(held_out, pool, served.ask)
    fine = [call for call in calls if call.success]
    rows = evaluation.evaluate_reranker({"a": None, "b": None}, fine, [], pool, served.score, "set")
    gates, _ = check_evaluation("reranker", rows, "a", "b", evaluation.summarise_reranker)
    assert {gate.name: gate.passed for gate in gates} == {"same_items": True, "measured": False}
    rows = evaluation.evaluate_reranker(models, calls, requests, pool, served.score, "set")
    evaluation.RERANKER_EVALUATION.frame(rows)
    models = (card["name"], UNTRAINED_ORDER)
    gates, summary = check_evaluation("reranker", rows, *models, evaluation.summarise_reranker)
    passed = dict.fromkeys(("same_items", "enough_tools", "gain", "requests"), True)
    assert {gate.name: gate.passed for gate in gates} == passed
    card_path = write_card(tmp_path, card["name"], summary=summary, gates=as_rows(gates))
    told = card_path.read_text() if card_path else ""
    assert "AUC, calls that worked" in told
    assert "lora" not in told.lower()
    assert summary["auc"]["candidate"]["value"] > 0.8 > summary["auc"]["incumbent"]["value"]
    folder = get_model_folder(tmp_path, card["name"])
    assert find_weights_flaw("reranker", folder) is None
    (folder / "reranker.npz").write_bytes(b"PK no archive")
    assert "reranker" in str(find_weights_flaw("reranker", folder))


ASSETS = [defs.reranker_adapter, defs.reranker_evaluation, defs.reranker_champion]


def run_assets(warehouse: Warehouse, assets: Any = ASSETS, embedder: Any = None) -> dict[str, Any]:
    given: dict[str, Any] = {"warehouse": warehouse, "trainer": TrainerPolicy()}
    policy = ReliabilityPolicy(per_day=1_000)
    embedder = embedder or WordEmbedder()
    return materialize(assets, **given, embedder=embedder, reliability_policy=policy)


def write_log(home: Path, count: int, nearer_fail: bool = False) -> None:
    """Searches in words and calls of what they showed, as a meta-server's log has them; most
    nearer to the tool that fails, by its name, where the order alone is not to tell what works."""
    log = CallLog(home)
    for at, row in enumerate(draw_calls(count).to_dicts()):
        words, key = row["query"], row["query_key"]
        if nearer_fail:
            city = "bad city" if at % 80 < 60 else "city"
            words = " ".join(words.split()[:-1]).replace("city", city) + f" {at % 80}"
            key = f"q1:{at % 80}"
        search = {"token": "ann", "search_id": str(at), "query": key}
        log.record({**search, "status": "searched", "words": words})
        ended = {"status": "ok"} if row["success"] else {"status": "tool_error", "blame": "tool"}
        tool = {"tool_id": row["tool_id"], "contract_digest": DIGESTS[row["tool_id"]]}
        log.record({**search, **ended, **tool, "call_id": str(at)})


def test_too_few_calls_train_nothing_and_enough_are_learnt_from(warehouse):
    told = run_assets(warehouse)
    assert "too few outcomes: 0 calls" in told["reranker_adapter"]["learnt"]
    assert told["reranker_champion"]["model"] == "retriever-order"
    tables = warehouse.tables
    tables.promote(tables.stage(CLEAR, CLEAR.frame(ROWS), "registry"), "run", [])
    write_log(warehouse.home, 300)
    told, model = run_assets(warehouse), tables.read(defs.ADAPTER)["model"][0]
    assert told["reranker_evaluation"]["summary"]["gain"]["value"] > 0.1
    # No held-out request was there to measure that none is pushed out: so it is not promoted.
    assert told["reranker_champion"]["promoted"] is False
    assert "requests: not measured" in told["reranker_champion"]["why"]
    assert find_reranker_file(warehouse.home, {"reranker": model}).is_file()  # type: ignore[union-attr]
    assert find_release_models(warehouse.home)["reranker"].model == "retriever-order"


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


def test_calls_are_examples_in_the_order_of_time_and_what_was_passed_over_is_served_first():
    earlier = replace(SEEN, at=10.0, success=False, client="alice")
    first, second = call_history.make_examples(make_frame([SEEN, earlier]), POOL, ask)
    assert (first.success, first.question.at) == (False, 10.0)
    assert (first.question.client, second.question.client) == ("token:ann alice", None)
    assert first.task == second.task == "q1:1"
    assert second.place == POOL.places["npm:s1::tool_1"]
    assert first.question.candidates.tolist() == ORDER.tolist()
    gone = replace(SEEN, tool_id="npm:gone::x")
    old = replace(SEEN, contract_digest="c1:old", weight=0.5)
    [example] = call_history.make_examples(make_frame([gone, old]), POOL, ask)
    assert example.weight == 0.5 * call_history._OLD, "what another contract did counts for less"
    assert call_history.make_examples(make_frame([]), POOL, ask) == []
    tools = [
        ToolFacts(f"npm:s::tool_{at}", "npm:s", {"name": f"tool_{at}"}, f"c1:{at}")
        for at in range(40)
    ]
    pool, served = ToolPool(tools, np.eye(40, DIM, dtype=np.float32)), np.arange(40)[::-1]
    asked = RerankQuestion("do job 1", np.eye(1, DIM, dtype=np.float32)[0], served)
    done = rerank_method.OutcomeExample(asked, 35, True)
    own, *passed = call_history.add_passed_over([done], pool)
    places = {one.place for one in passed if not one.success}
    assert (own, len(places), len(passed)) == (done, 4, 4)
    assert places <= set(range(20, 40)) - {35}


@cases("changed", {"query": " "}, {"weight": 0.0}, {"weight": float("nan")}, {"at": float("inf")})
def test_a_call_without_words_time_or_weight_is_left_out(changed, warehouse):
    rows = make_frame([replace(SEEN, **changed), SEEN])  # type: ignore[arg-type]
    assert call_history.add_words(rows, warehouse.tables)["at"].to_list() == [20.0]


# Both tools say the same of mail; by cosine the other one is nearer, by its words this one.
WORDS, RIGHT, NEARER = "good mail of a city", "npm:good::good_mail", "npm:bad::bad_mail"


def test_a_question_has_its_candidates_as_the_router_ranks_them(tmp_path):
    served = order_rows(tmp_path, WordEmbedder())
    [asked] = served.ask([WORDS]).values()
    pool = served.pool
    names = [pool.tools[place].tool_id for place in asked.candidates.tolist()]
    assert names == [hit.tool_id for hit in served._router.find(ToolQuery(WORDS, k=RERANKED)).hits]
    assert names[0] == RIGHT
    assert pool.tools[int(np.argmax(pool.vectors @ asked.vector))].tool_id == NEARER
    scores = served.score([WORDS])[WORDS]
    assert (np.diff(scores[asked.candidates]) <= 0).all()
    assert scores.shape == (len(pool),)
    requests = [(asked, pool.places[RIGHT])]
    [row] = evaluation.evaluate_reranker({"none": None}, [], requests, pool, served.score, "set")
    assert (row["kind"], row["right"]) == (evaluation.REQUEST, True), "measured as it is served"


def test_words_that_are_asked_are_in_no_index_that_they_are_put_to(warehouse):
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
    with call_history.open_served_order(warehouse, encoder, texts[:1]) as served:
        assert len(served._router.index.views[ASKED].vectors) == 1
        name = served.version
    with call_history.open_served_order(warehouse, encoder, texts) as served:
        assert ASKED not in served._router.index.views
        assert served.version != name
    assert list((warehouse.home / "cache").iterdir()) == []
    assert not (warehouse.home / "router").exists()
    kept = call_history.drop_requests(
        IndexSource(ROWS, instructions={"c1:a": [texts[0], texts[1]]}), [texts[0]]
    )
    assert kept.instructions == {"c1:a": [texts[1]]}


SERVING = [release, router_index]
# What the retriever answers with the tool that fails: its name is nearer.
QUERY = "tell the file of a bad city"


def find_first(router: Router) -> str:
    return router.find(ToolQuery(QUERY, k=5)).hits[0].tool_id


@pytest.mark.slow  # it trains; six assets, an export and two rollbacks take some ten seconds
def test_a_promoted_reranker_is_served_exported_and_rolled_back(warehouse, tmp_path):
    home, embedder = warehouse.home, MiniLM(threads=1)
    claim_home(home)
    tables = warehouse.tables
    tables.promote(tables.stage(CLEAR, CLEAR.frame(ROWS), "registry"), "run", [])
    rows = [
        dict.fromkeys(TRAINING_SET.columns)
        | {"pair_id": f"{job}-{at}", "server_id": "npm:good", "tool": f"good_{job}"}
        | {"split": "test_server", "task": "single", "instruction": f"{words} the good {job}"}
        for job in JOBS
        for at, words in enumerate(("tell me", "show", "what is"))
    ]
    tables.promote(tables.stage(TRAINING_SET, TRAINING_SET.frame(rows), None), "run", [])
    assert run_assets(warehouse, SERVING, embedder)["router_index"]["reranker"] == "retriever-order"
    running = ServedRouter(home)
    assert find_first(running.current()) == "npm:bad::bad_file"

    write_log(home, 400, nearer_fail=True)
    told = run_assets(warehouse, ASSETS, embedder)
    assert told["reranker_champion"]["promoted"] is True, told["reranker_champion"]["why"]
    served = run_assets(warehouse, SERVING, embedder)["router_index"]["reranker"]
    assert served == told["reranker_champion"]["model"]
    running.settle(30)
    assert find_first(running.settle(30)) == "npm:good::good_file"

    # The fit has read this log: following it teaches nothing twice.
    learner = online_learner.OnlineLearner(running, CallLog(home), ReliabilityPolicy())
    while not learner.step():
        pass
    assert learner.learnt == 0

    out = tmp_path / "out"
    assert export_release(home, out)["models"]["reranker"] == served
    assert "AUC, calls that worked" in (out / "cards" / "reranker.md").read_text()
    assert check_export(out)["files"]
    elsewhere = open_served(out).current()
    assert find_first(elsewhere) == "npm:good::good_file"
    assert elsewhere.index.reranker == served

    rolled = roll_back_release(home)
    assert (rolled.models["reranker"], rolled.rejected["reranker"]) == ("retriever-order", [served])
    running.settle(30)
    assert find_first(running.settle(30)) == "npm:bad::bad_file"
    again = run_assets(warehouse, [*ASSETS, *SERVING], embedder)
    assert again["reranker_champion"]["promoted"] is False
    assert again["router_index"]["reranker"] == "retriever-order"

    undo_rollback(home)
    running.settle(30)
    assert find_first(running.settle(30)) == "npm:good::good_file"
