"""The served reranker follows the log: each line once, what it teaches, what it takes back."""

import json
import shutil
import threading
from collections import defaultdict
from collections.abc import Callable, Sequence
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from assets.outcomes.policy import ReliabilityPolicy
from assets.servers.calls.log import CallLog, DeletionSubject, remove_lines
from extensions.recommender.online_learner import KEPT, LessonLog, LogFollower, LogRewritten
from serving.router import Router
from tests.extensions.recommender.reranked_tools import (
    BAD,
    GOOD,
    ROWS,
    Learning,
    log_call,
    log_claim,
    publish_ranked,
)
from tests.support.cases import cases
from tests.support.examples import json_values
from tests.vectors.conftest import snapshot


def log_turn(learning: Learning, token: str = "ann", count: int = 15, start: int = 0) -> None:
    """The good tool fails and the bad one works, so many times."""
    for at in range(start, start + count):
        log_call(learning.outcomes, token, 2 * at, GOOD, worked=False)
        log_call(learning.outcomes, token, 2 * at + 1, BAD, worked=True)


@pytest.fixture
def learning(home: Path) -> Learning:
    """What the released reranker's learner is at its start."""
    learning = Learning(home)
    learning.settle()
    return learning


def test_what_fails_for_one_client_says_more_of_it_than_of_another(learning):
    for at in range(10):
        log_call(learning.outcomes, "ann", at, GOOD, client="shell 2")
    learning.settle()
    own, other = (learning.find_odds(client) for client in ("token:ann shell 2", "token:bo x 1"))
    assert own[GOOD] < other[GOOD]
    assert other == learning.find_odds()


def test_what_a_token_only_claims_moves_a_tool_little(home):
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


def test_a_restart_leads_to_the_same_and_what_is_deleted_is_unlearnt(home, learning):
    released = learning.find_odds()
    for start in (0, 4):
        log_turn(learning, count=4, start=start)
        learning.settle()
    restarted = Learning(home)
    restarted.settle()
    assert restarted.find_odds() == learning.find_odds() != released
    remove_lines(learning.outcomes, DeletionSubject("ann"))
    learning.settle()
    assert learning.find_odds() == released


def test_another_release_learns_what_its_fit_has_not_seen(home):
    learning = Learning(home)
    log_turn(learning)
    learning.settle()
    first = learning.served.current()
    changed = snapshot("npm:bad", "bad_mail", "Tell the mail of a city bad, differently")
    rest = [row for row in ROWS if row["tool"] != "bad_mail"]
    publish_ranked(home, [*rest, changed])
    assert learning.settle().index.version != first.index.version
    assert learning.learner.learnt == 30  # of them half are of a contract that is gone
    released = Learning(home).find_odds()
    assert learning.find_odds()[GOOD] < released[GOOD] - 0.2
    assert learning.find_odds()[BAD] <= released[BAD]


def test_what_names_another_contract_or_no_reranker_teaches_nothing(learning, tmp_path):
    released = learning.find_odds()
    log_call(learning.outcomes, "ann", 1, contract_digest="c1:old")
    log_call(learning.outcomes, "ann", 2, contract_digest=None)
    log_call(learning.outcomes, "ann", 3, GOOD, search_id="s-unknown")
    learning.settle()
    assert learning.find_odds() == released
    publish_ranked(tmp_path / "plain", reranked=False)
    plain = Learning(tmp_path / "plain")
    log_turn(plain, count=2)
    assert plain.settle().ranker is None
    assert plain.learner.learnt is None


def test_a_search_waits_for_no_learning(home, monkeypatch):
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
def test_learning_a_little_at_a_time_is_learning_all_at_once(published, tmp_path_factory, acts):
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


NOW, TOOL = 1_000_000.0, "npm:a::t"
POLICY = ReliabilityPolicy()


def search(token: str = "ann", search_id: str = "s1", **more: Any) -> dict[str, Any]:
    words = {"words": "tell the weather", "search_id": search_id}
    return {"at": NOW, "token": token, "status": "searched", **words, **more}


def call(token: str = "ann", call_id: str = "c1", **more: Any) -> dict[str, Any]:
    about = {"tool_id": TOOL, "contract_digest": "c1:x", "search_id": "s1", "query": "q1:1"}
    line = {"at": NOW, "token": token, "status": "ok", "call_id": call_id}
    return {**line, **about, **more}


def report(reported: str, call_id: str | None = "c1", token: str = "ann", **more: Any) -> Any:
    said = {"status": "reported", "reported": reported}
    return call(token, **{"call_id": call_id, **said, **more})


def read(*lines: Any, policy: ReliabilityPolicy = POLICY, **more: Any) -> LessonLog:
    made = LessonLog(policy, **{"since": 0.0, **more})
    for line in (search(), search("bo"), *lines):
        made.add_line(line, NOW)
    return made


def tell(lessons: LessonLog) -> list[tuple[str, bool, float]]:
    return [(one.source, one.success, one.weight) for one in lessons.kept]


FAILED = {"status": "tool_error", "blame": "tool"}


@cases(
    "lines, taught",
    ([call()], [True]),
    ([call(**FAILED)], [False]),
    ([call(status="failed", blame="server")], [False]),
    ([call(status="failed", blame="upstream"), call(status="refused", blame="us")], []),
    ([call(status="invalid_arguments", blame="caller")], []),
    ([call(search_id="of another"), call(search_id=None)], []),
    ([call(), report("failed")], [False]),
    ([call(), report("wrong_tool")], [False]),
    ([call(), report("worked")], [True]),
    ([call(), report("failed"), report("worked")], [True]),
    ([call(), report("failed"), report("failed")], [False]),
    ([call(), call(**FAILED)], [True]),
    ([call(**FAILED), report("worked")], [False]),
    ([call(status="refused", blame="us"), report("worked")], []),
    ([report("splendid")], []),
)
def test_a_call_teaches_once_and_the_last_word_on_it_counts(lines, taught):
    assert [one.success for one in read(*lines).kept] == taught


def test_claims_of_no_call_count_as_one_a_day_and_only_the_newest_are_kept():
    claims = [report(said, None) for said in ("worked", "failed", "worked", "failed")]
    assert tell(read(*claims)) == [("token:ann", False, POLICY.claims)]
    assert len(read(*claims, report("worked", None, at=NOW - 86_400)).kept) == 2
    assert tell(read(report("failed", "never made"))) == [("token:ann", False, POLICY.claims)]

    def claim(at: int, tool: str = TOOL) -> Any:
        return report("failed", None, query=f"q1:{at}", at=NOW - at % 9 * 86_400, tool_id=tool)

    found = read(*map(claim, range(80)), call())
    assert tell(found) == [("token:ann", False, 0.25)] * 4 + [("token:ann", True, 1.0)]
    many = read(*(claim(at, f"npm:a::t{at % 20}") for at in range(80)))
    assert sum(lesson.weight for lesson in many.kept) == 10
    policy = ReliabilityPolicy(per_day=1e9)
    calls = [call(call_id=f"c{at}") for at in range(KEPT + 10)]
    found = read(*calls, policy=policy)
    assert len(found.kept) == KEPT + 10 - found.dropped
    found.add_line(report("failed", "c0"), NOW)  # of one that is gone
    assert found.take_revised() is None
    found.add_line(report("failed", f"c{KEPT}"), NOW)
    assert found.take_revised() == KEPT - found.dropped
    assert found.take_revised() is None


def test_a_source_says_nothing_of_anothers_call_and_no_more_than_its_weight_and_its_day():
    found = read(call("bo"), report("failed", "c1", "ann"))
    assert tell(found) == [("token:bo", True, 1.0), ("token:ann", False, POLICY.claims)]
    assert read(call(at=NOW + 1_000)).left_out["from the future"] == 1
    assert read(call(at=NOW + 60)).kept
    assert not read(call(), since=NOW).kept
    silent = ReliabilityPolicy(weights={"token:ann": 0.0})
    assert tell(read(call(), call("bo"), policy=silent)) == [("token:bo", True, 1.0)]
    weighed = ReliabilityPolicy(weights={"token:ann": 0.5, "token:bo": 3.0})
    assert [weight for *_, weight in tell(read(call(), call("bo"), policy=weighed))] == [0.5, 1.0]
    one = [call(call_id=f"c{at}", **FAILED) for at in range(500)]
    found = read(*one, call("bo"))
    assert sum(lesson.weight for lesson in found.kept if lesson.source == "token:ann") == 20
    assert (found.left_out["of a flood"], found.kept[-1].source) == (480, "token:bo")
    many = [call(call_id=f"c{at}", tool_id=f"npm:a::t{at}", **FAILED) for at in range(500)]
    assert sum(lesson.weight for lesson in read(*many).kept) == 200
    assert len(read(*one, *[call(call_id="next", at=NOW - 86_400)]).kept) == 21


ODD = json_values(leaves=4)


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_whatever_a_line_holds_it_costs_no_other(data):
    base = data.draw(st.sampled_from([search(), call(), call(**FAILED), report("failed")]))
    odd = {**base, **data.draw(st.dictionaries(st.sampled_from([*base, "client"]), ODD))}
    assert tell(read(odd, call("bo", "other")))[-1] == ("token:bo", True, 1.0)


KINDS = [
    call,
    lambda token, name, **more: call(token, name, **FAILED, **more),
    lambda token, name, **more: report("failed", name, token, **more),
    lambda token, name, **more: report("worked", None, token, **more),
]
LINES = st.lists(
    st.builds(
        lambda kind, token, number, tool: kind(token, f"c{number}", tool_id=f"npm:a::t{tool}"),
        *(st.sampled_from(KINDS), st.sampled_from(["ann", "bo"])),
        *(st.integers(0, 40), st.integers(0, 2)),
    ),
    max_size=120,
)


@given(LINES, st.floats(0.5, 5))
@settings(max_examples=40, deadline=None)
def test_no_source_says_more_than_its_limit_and_leaving_it_out_leaves_the_others(lines, per_day):
    policy = ReliabilityPolicy(per_day=per_day)
    found = read(*lines, policy=policy)
    spent: dict[Any, float] = defaultdict(float)
    for one in found.kept:
        spent[one.source, one.tool_id] += one.weight
    assert all(weight <= per_day + 1e-9 for weight in spent.values())
    without = read(*lines, policy=ReliabilityPolicy(per_day=per_day, weights={"token:ann": 0.0}))
    assert without.kept == [one for one in found.kept if one.source == "token:bo"]
    again = read(*lines, *[line for line in lines if line["status"] != "reported"], policy=policy)
    assert again.kept == found.kept


CALL = {"status": "ok", "tool_id": "npm:a::b"}


def read_all(follower: LogFollower) -> list[dict]:
    found = []
    while lines := follower.read_lines():
        found += lines
    return found


def test_each_line_comes_once_in_order_from_the_first_day_on_whatever_a_file_holds(tmp_path):
    log = CallLog(tmp_path)
    follower = LogFollower(log, 0.0)
    assert read_all(follower) == []
    for token in ("ann", "bo"):
        log.record({**CALL, "token": token})
    assert [line["token"] for line in read_all(follower)] == ["ann", "bo"]
    [path] = log.list_files()
    with path.open("ab") as file:
        file.write(b'no line\n{"at": 1.0, "token"')
        file.flush()
        assert read_all(follower) == []
        file.write(b': "cy"}\n')
    assert [line["token"] for line in read_all(follower)] == ["cy"]
    log = CallLog(tmp_path / "days")
    log.folder.mkdir(parents=True)
    for day in ("2026-01-01", "2026-01-02", "2026-01-03"):
        line = json.dumps({"at": 1, "token": day})
        (log.folder / f"{day}.jsonl").write_text(line + "\n")
    found = read_all(LogFollower(log, datetime(2026, 1, 2, 12, tzinfo=UTC).timestamp()))
    assert [line["token"] for line in found] == ["2026-01-02", "2026-01-03"]
    log = CallLog(tmp_path / "long")
    log.folder.mkdir(parents=True)
    path = log.folder / "2026-01-01.jsonl"
    path.write_bytes(b"x" * (3 << 20) + b'\n{"at": 1, "token": "ann"}\n')
    follower = LogFollower(log, 0.0)
    found = [line for _ in range(6) for line in follower.read_lines()]
    assert [line["token"] for line in found] == ["ann"]


@cases("subject", DeletionSubject("ann"), DeletionSubject(before=date(2100, 1, 1)))
def test_deleted_lines_are_told_of(tmp_path, subject):
    log = CallLog(tmp_path)
    for token in ("ann", "bo"):
        log.record({**CALL, "token": token})
    follower = LogFollower(log, 0.0)
    read_all(follower)
    remove_lines(log, subject)
    with pytest.raises(LogRewritten):
        follower.read_lines()
