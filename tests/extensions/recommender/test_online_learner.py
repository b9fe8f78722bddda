"""The served reranker follows the log: what it learns, from whom, and that it takes it back."""

import shutil
import threading
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.log import DeletionSubject, remove_lines
from serving.ranking.query import ToolQuery
from serving.router import Router
from tests.support.online import BAD, GOOD, QUERY, Learning, log_call, log_claim, publish_ranked
from tests.support.reranked import ROWS
from tests.vectors.conftest import snapshot


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    home = tmp_path_factory.mktemp("home")
    publish_ranked(home)
    return home


@pytest.fixture
def home(published: Path, tmp_path: Path) -> Path:
    """A home of its own with that index."""
    shutil.copytree(published, tmp_path / "home")
    return tmp_path / "home"


def log_turn(learning: Learning, token: str = "ann", count: int = 15, start: int = 0) -> None:
    """The good tool fails and the bad one works, so many times."""
    for at in range(start, start + count):
        log_call(learning.outcomes, token, 2 * at, GOOD, worked=False)
        log_call(learning.outcomes, token, 2 * at + 1, BAD, worked=True)


def test_outcomes_change_the_order_that_the_next_search_shows(home: Path) -> None:
    learning = Learning(home)
    before = learning.settle().find(ToolQuery(QUERY, k=2)).hits
    assert before[0].tool_id == GOOD
    assert learning.learner.learnt == 0
    log_turn(learning)
    after = learning.settle().find(ToolQuery(QUERY, k=2)).hits
    assert after[0].tool_id == BAD
    assert learning.learner.learnt == 30
    assert Learning(home).find_odds()[GOOD] > 0.5, "the released file is as it was"


def test_what_fails_for_one_client_says_more_of_it_than_of_another(home: Path) -> None:
    learning = Learning(home)
    learning.settle()
    for at in range(10):
        log_call(learning.outcomes, "ann", at, GOOD, client="shell 2")
    learning.settle()
    own, other = (learning.find_odds(client) for client in ("token:ann shell 2", "token:bo x 1"))
    assert own[GOOD] < other[GOOD]
    assert other == learning.find_odds()


def test_what_a_token_only_claims_moves_a_tool_little(home: Path) -> None:
    held = {}
    for together in (1e6, 1.0):
        learning = Learning(home, ReliabilityPolicy(claims_together=together))
        if not held:
            learning.settle()
            held["released"] = learning.find_odds()[GOOD]
            for at in range(80):
                log_claim(learning.outcomes, "liar", at)
        learning.settle()
        held[together] = learning.find_odds()[GOOD]
    assert held["released"] - held[1e6] > 0.5
    assert held["released"] - held[1.0] < 0.1


def test_a_restart_leads_to_the_same(home: Path) -> None:
    learning = Learning(home)
    log_turn(learning, count=4)
    learning.settle()
    log_turn(learning, count=4, start=4)
    learning.settle()
    restarted = Learning(home)
    restarted.settle()
    assert restarted.find_odds() == learning.find_odds()


def test_what_is_deleted_from_the_log_is_unlearnt(home: Path) -> None:
    learning = Learning(home)
    learning.settle()
    released = learning.find_odds()
    log_turn(learning)
    learning.settle()
    remove_lines(learning.outcomes, DeletionSubject("ann"))
    learning.settle()
    assert learning.find_odds() == released


def test_another_release_learns_what_its_fit_has_not_seen(home: Path) -> None:
    learning = Learning(home)
    log_turn(learning)
    learning.settle()
    first = learning.served.current()
    changed = snapshot("npm:bad", "bad_mail", "Tell the mail of a city bad, differently")
    rest = [row for row in ROWS if row["tool"] != "bad_mail"]
    publish_ranked(home, [*rest, changed])
    router = learning.settle()
    assert router.index.version != first.index.version
    assert learning.learner.learnt == 30  # of them half are of a contract that is gone
    fresh = Learning(home)
    released = fresh.find_odds()
    assert learning.find_odds()[GOOD] < released[GOOD] - 0.2
    assert learning.find_odds()[BAD] <= released[BAD]


def test_calls_of_another_contract_or_tool_teach_nothing(home: Path) -> None:
    learning = Learning(home)
    learning.settle()
    released = learning.find_odds()
    log_call(learning.outcomes, "ann", 1, contract_digest="c1:old")
    log_call(learning.outcomes, "ann", 2, contract_digest=None)
    log_call(learning.outcomes, "ann", 3, GOOD, search_id="s-unknown")
    learning.settle()
    assert learning.find_odds() == released


def test_an_index_without_a_reranker_learns_nothing(tmp_path: Path) -> None:
    publish_ranked(tmp_path, reranked=False)
    learning = Learning(tmp_path)
    log_turn(learning, count=2)
    assert learning.settle().ranker is None
    assert learning.learner.learnt is None


def test_a_search_waits_for_no_learning(home: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    learning = Learning(home)
    log_turn(learning, count=1)
    embedding, go_on = threading.Event(), threading.Event()
    ask = Router.list_questions

    def wait_and_ask(self: Router, words: Sequence[str]) -> Any:
        embedding.set()
        assert go_on.wait(60)
        return ask(self, words)

    monkeypatch.setattr(Router, "list_questions", wait_and_ask)
    thread = threading.Thread(target=learning.settle, daemon=True)
    thread.start()
    assert embedding.wait(60)
    assert learning.find_odds()[GOOD] > 0.5
    assert learning.learner.step(), "a second step does not wait either"
    go_on.set()
    thread.join(60)
    assert learning.learner.learnt == 2


Act = Callable[[Learning], object]


def act(kind: int, number: int) -> Act:
    """One line or two of the log, by number; or a step of the learner."""
    if kind == 0:
        return lambda held: held.learner.step()
    if kind == 1:
        token, worked = ("ann", "bo")[number % 2], number % 3 == 0
        return lambda held: log_call(held.outcomes, token, number, (GOOD, BAD)[number % 2], worked)
    said = {"status": "reported", "reported": ("worked", "failed", "wrong_tool")[number % 3]}
    about = {"token": ("ann", "bo")[number % 2], "call_id": f"c{number}", "tool_id": GOOD}
    return lambda held: held.outcomes.record({**about, **said, "search_id": f"s{number}"})


@given(acts=st.lists(st.builds(act, st.integers(0, 2), st.integers(0, 7)), max_size=25))
@settings(
    max_examples=10,
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
)
def test_learning_a_little_at_a_time_is_learning_all_at_once(
    published: Path, tmp_path_factory: pytest.TempPathFactory, acts: list[Act]
) -> None:
    home = tmp_path_factory.mktemp("copy") / "home"
    shutil.copytree(published, home)
    learning = Learning(home)
    for one in acts:
        one(learning)
    learning.settle()
    whole = Learning(home)
    whole.settle()
    assert whole.learner.learnt == learning.learner.learnt
    assert learning.find_odds() == pytest.approx(whole.find_odds(), abs=1e-9)
