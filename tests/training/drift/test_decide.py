"""Signals of drift, and the decision to train: each role by its own evidence, none for ever."""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.vectors.encoders.weights import find_base_path
from tests.support.cases import cases
from training.caller.smollm2 import name_smollm2_base
from training.drift import measure
from training.drift.decide import (
    NOTHING_TRAINED,
    UNMEASURED_GAIN,
    HomeFacts,
    MeasuredGain,
    RetrainDecision,
    RoleEvidence,
    SkipDecision,
    decide_retraining,
    decide_roles,
    describe_decisions,
    estimate_gain,
    read_gains,
)
from training.drift.signals import (
    CLASS_WEIGHTS,
    RETRIEVER_DECAY,
    DriftSignal,
    count_moves,
    find_change_classes,
    judge_signal,
    make_contract_signal,
    make_unmeasured,
    measure_new_tool_gap,
    measure_retriever_decay,
)
from training.role import (
    CALLER,
    RETRIEVER,
    get_causal_base_name,
    get_retriever_base_name,
    is_same_base,
)
from training.settings import RetrainPolicy

DAY = 86_400.0
NOW = 1_000 * DAY
HOME = HomeFacts("new", 500)
ROLE = RoleEvidence(RETRIEVER, "old", NOW - 30 * DAY, 100)
THEN = {f"s::{n}": "1" for n in range(100)}
MOVED = {**THEN, **{f"s::{n}": "2" for n in range(5)}}
BAD = MeasuredGain(NOW - DAY, -0.3, -0.4, -0.2, 80)


def measure_moves(now: dict[str, str] = MOVED, threshold: float = 0.01) -> list[DriftSignal]:
    return [judge_signal(make_contract_signal(count_moves(THEN, now), threshold), 0.05)]


def decide(drift: Any = None, home: Any = HOME, role: Any = ROLE, policy: Any = None, now=NOW):
    return decide_retraining(home, role, measure_moves() if drift is None else drift, policy, now)


def trains(*args: Any, **how: Any) -> bool:
    return isinstance(decide(*args, **how), RetrainDecision)


def test_what_fires_beyond_its_share_retrains_and_an_empty_history_is_no_evidence():
    gain = "a training is expected to gain +0.086 on requests of new contracts"
    moved = "5 changed, 0 new, 0 gone of 100 contracts (5.0%)"
    assert decide() == RetrainDecision([moved, f"{gain}; none was measured yet"])
    assert decide(measure_moves({**THEN, "s::new": "1"}, 0.05)).why[0].endswith("below 5.0%")
    unmeasured = [], [line(n=0)], [{"role": RETRIEVER, "at": NOW - DAY}]
    assert [read_gains(each) for each in unmeasured] == [(), (), ()]
    (refused := line(value=0.0, n=0))["attempt"]["promoted"] = False
    assert [gain.value for gain in read_gains([refused])] == [0.0]
    assert read_gains([line(), line(at=NOW - 1)]) == (MeasuredGain(NOW - DAY, -0.1, -0.2, 0.0, 9),)


@cases(
    "home, role, why",
    ({"training_set": None}, {}, "no training set"), ({"train_rows": 3}, {}, "3 training pairs"),
    ({}, {"trained_on": "new"}, "trained on"), ({"failed_attempts": 3}, {}, "failed 3 times in"),
    ({}, {"new_rows": 0}, "no training pair is of a new or changed contract"),
)  # fmt: skip
def test_what_cannot_be_learnt_is_not_trained(home, role, why):
    made = decide(home=replace(HOME, **home), role=replace(ROLE, **role))
    assert (type(made), why in made.why[-1]) == (SkipDecision, True)


def test_the_first_training_needs_no_drift_and_a_cool_down_holds_drift_back_until_it_ends():
    never = decide([], role=RoleEvidence(CALLER))
    assert never == RetrainDecision([NOTHING_TRAINED])
    assert describe_decisions({CALLER: never}) == [f"caller: {NOTHING_TRAINED}"]
    changed = replace(ROLE, trained_on="new", trained_at=NOW, changed_settings=("caller.rank",))
    made = decide([], role=changed, policy=RetrainPolicy(cool_down_h=20))
    assert made == RetrainDecision(["settings changed since the last training: caller.rank"])
    assert trains(home=replace(HOME, failed_attempts=2))
    policy = RetrainPolicy(cool_down_h=2)
    made = decide(role=replace(ROLE, trained_at=NOW - 7199), policy=policy)
    assert made == SkipDecision(["2 hours between trainings: none before 1972-09-27 00:00 UTC"])
    assert trains(role=replace(ROLE, trained_at=NOW - 7200), policy=policy)


def test_the_retriever_trains_only_where_its_own_signals_fire_and_seldom_where_none_should():
    quiet = judge_signal(measure_new_tool_gap([1] * 30 + [2] * 20, [1] * 60 + [2] * 40, 0.02), 0.05)
    made = decide([*measure_moves(), quiet])
    assert isinstance(made, SkipDecision)
    assert "first for 30 of 50 requests of new and changed contracts and for 60 of" in made.why[0]
    assert trains([*measure_moves(), quiet], role=replace(ROLE, role=CALLER))
    gap = judge_signal(measure_new_tool_gap([1] * 15 + [2] * 35, [1] * 60 + [2] * 40, 0.02), 0.05)
    assert gap.value == pytest.approx(0.3)
    assert trains([*measure_moves(), gap])
    assert trains([*measure_moves(), measure_new_tool_gap([], [1], 0.02)])  # not measured
    rng = np.random.default_rng(0)
    fired = worse = 0
    for _ in range(400):
        old = [*(1 + (rng.random(100) > 0.5).astype(int))]
        for share in (0.5, 0.2):
            new = [*(1 + (rng.random(40) > share).astype(int))]
            signal = judge_signal(measure_new_tool_gap(new, old, 0.02), 0.05)
            fired += signal.fired and share == 0.5
            worse += signal.fired and share < 0.5
    assert fired / 400 <= 0.05
    assert worse / 400 >= 0.9


@cases(
    "hours, ahead, expected",
    (20, 3600, False),  # trained, then the clock went back an hour
    (0, 3600, True),
    (None, 3600, True),
    (20, DAY * 365, True),  # noted by a clock that was a year ahead,
)
def test_a_clock_that_was_set_back_holds_no_training_back_for_long(hours, ahead, expected):
    role = replace(ROLE, trained_at=NOW + ahead)
    assert trains(role=role, policy=RetrainPolicy(cool_down_h=hours)) is expected


def test_a_bad_candidate_delays_the_next_training_of_its_role_alone():
    role = replace(ROLE, gains=(BAD,))
    made = decide(role=role)
    assert isinstance(made, SkipDecision)
    assert "gained -0.300 [-0.400, -0.200], n=80, 1 days ago" in made.why[1]
    until = "asks again on 1972-10-07 00:00 UTC, or as soon as enough other contracts change"
    assert made.why[2] == f"{until} (0.02 expected is enough)"
    assert not trains(role=role, now=NOW + 9 * DAY)
    assert trains(role=role, now=NOW + 10 * DAY)  # 1972-10-07
    everything = measure_moves({f"s::{n}": "2" for n in range(90)} | {"s::99": "1"})
    assert trains(everything, role=role)  # what was measured then says little of these
    lost = judge_signal(DriftSignal(RETRIEVER_DECAY, 0.1, 50, 0.02, "lost"), 0.05)
    roles = [replace(ROLE, gains=(BAD,)), replace(ROLE, role=CALLER)]
    decisions = decide_roles(HOME, roles, lambda _: measure_moves(), RetrainPolicy(), NOW)
    assert [type(made) for made in decisions.values()] == [SkipDecision, RetrainDecision]
    roles = [ROLE, replace(ROLE, role=CALLER)]
    alone = decide_roles(HOME, roles, lambda _: [lost], RetrainPolicy(), NOW)
    assert isinstance(alone[RETRIEVER], RetrainDecision)
    assert not isinstance(alone[CALLER], RetrainDecision)
    [train, wait] = describe_decisions(alone)
    assert wait == "caller: wait (no drift was measured)"
    assert train.startswith("retriever: due (retriever_decay 0.100 of 0.02: lost; ")


def line(role: str = RETRIEVER, at: Any = NOW - DAY, **figure: Any) -> dict[str, Any]:
    gain = {"value": -0.1, "low": -0.2, "high": 0.0, "n": 9} | figure
    return {"role": role, "at": at, "attempt": {"model": "m" * 64, "new_tools": gain}}


GAINS = st.lists(
    st.builds(
        lambda days, value, n: MeasuredGain(NOW - days * DAY, value, value, value, n),
        *(st.floats(0, 400), st.floats(-1, 1), st.integers(1, 10_000)),
    ),
    max_size=40,
)


@given(GAINS, st.integers(5, 100), st.sampled_from([3.0, 14.0, 60.0]), st.floats(0, 0.05))
def test_whatever_the_history_some_drift_trains_within_the_set_days(gains, moved, days, least):
    policy = RetrainPolicy(retry_days=days, min_gain=least, cool_down_h=20)
    last = max((gain.at for gain in gains), default=NOW)
    role = replace(ROLE, gains=tuple(gains), trained_at=last)
    drift = measure_moves({**THEN, **{f"s::{n}": "2" for n in range(moved)}})
    assert trains(drift, role=role, policy=policy, now=max(last, NOW) + days * DAY)


@given(GAINS, st.floats(0, 1), st.floats(0, 20))
def test_evidence_only_fades(gains, moved, days):
    """A past gain pulls less as days pass, and no expectation is beyond what was measured."""
    now = estimate_gain(gains, moved, 14, NOW)
    values = [UNMEASURED_GAIN, *(gain.value for gain in gains)]
    assert min(values) - 1e-9 <= now <= max(values) + 1e-9
    if len({gain.value for gain in gains}) == 1:
        later = estimate_gain(gains, moved, 14, NOW + days * DAY)
        assert abs(later - UNMEASURED_GAIN) <= abs(now - UNMEASURED_GAIN) + 1e-9


NIGHTLY = RetrainPolicy(cool_down_h=20)


def simulate(
    nights: int, gain: Callable[[int], float], drift: Callable[[int], list[DriftSignal]], held=99
) -> list[tuple[int, bool]]:
    """(night, promoted) of each training of a role whose set is another one every night. drift:
    judged signals so many nights after the last training. held: new held-out tools a night."""
    role, trained, last, learnt = replace(ROLE, trained_at=NOW), [], 0, 0
    for night in range(1, nights + 1):
        now = NOW + night * DAY
        home = replace(HOME, training_set=f"set {night}")
        role = replace(role, testable=held * (night - learnt))
        made = decide(drift(night - last), home, role, NIGHTLY, now)
        if isinstance(made, RetrainDecision):
            value = gain(len(trained))
            measured = MeasuredGain(now, value, value - 0.05, value + 0.05, 60)
            role = replace(role, trained_on=f"set {night}", trained_at=now)
            role = replace(role, gains=(*role.gains, measured))
            trained.append((night, measured.low > 0))
            last, learnt = night, night if measured.low > 0 else learnt
    return trained


def drift_by_night(nights: int) -> list[DriftSignal]:
    """Two of a hundred contracts change every night."""
    return measure_moves({**THEN, **{f"s::{n}": "2" for n in range(min(100, 2 * nights))}})


def test_thirty_nights_with_one_bad_candidate_go_on_training():
    trained = simulate(30, lambda n: -0.3 if n == 2 else 0.08, drift_by_night)
    nights = [night for night, _ in trained]
    assert trained[2] == (3, False)
    assert 1 < nights[3] - nights[2] <= 14  # delayed, and not ended
    assert sum(promoted for _, promoted in trained) == len(trained) - 1 >= 15
    bad = simulate(30, lambda _: -0.3, drift_by_night)
    assert 3 <= len(bad) < len(trained) / 2, "candidates that all lose are rare, and never the last"
    idle = [night for night, _ in simulate(30, lambda _: 0.0, drift_by_night)]
    assert len(idle) < 20, "what gains nothing is tried less often"
    assert max(np.diff(idle)) <= 14
    assert len(simulate(30, lambda _: 0.03, drift_by_night)) == 30
    few = simulate(30, lambda n: -0.01 if n == 1 else 0.08, drift_by_night, held=3)
    assert few[:4] == [(3, True), (6, False), (7, True), (10, True)]


def draw_lost_items(rng: np.random.Generator, lost: float) -> DriftSignal:
    """The retriever on 200 frozen items, of which as many are lost by chance as are won."""
    before = rng.random(200) < 0.8
    flips = rng.random(200) < np.where(before, 0.01, 0.04)
    after = (before ^ flips) & ~(before & (rng.random(200) < lost))
    then, ranks = ({str(n): 1 if hit else 9 for n, hit in enumerate(of)} for of in (before, after))
    rows = [{"pair_id": n, "server_id": "s", "tool": n, "rank": rank} for n, rank in then.items()]
    texts = {("s", str(n)): "" for n in range(200)}
    signal = measure_retriever_decay(rows, lambda _: ranks, texts, 0.02)
    return judge_signal(signal, RetrainPolicy.alpha)


def test_false_alarms_of_whole_histories_stay_at_the_level():
    """Of 40 histories of 30 nights: none trains where nothing changed; where contracts changed in
    words alone and hits flip by chance, at most .05 of the nights do."""
    rng, calm = np.random.default_rng(38), measure_moves(THEN)
    assert not simulate(300, lambda _: 0.0, lambda _: calm)
    by_chance = [
        simulate(30, lambda _: 0.0, lambda _: [*calm, draw_lost_items(rng, 0.0)]) for _ in range(40)
    ]
    assert sum(map(len, by_chance)) / (40 * 30) <= 0.05
    drifted = [draw_lost_items(rng, 0.1).fired for _ in range(40)]
    assert sum(drifted) >= 36, "and what is lost for certain is seen"


@settings(max_examples=50)
@given(st.integers(0, 300), st.floats(0, 50), st.integers(0, 4))
def test_more_reasons_against_never_make_a_training(new, hours, failed):
    strict = RetrainPolicy(cool_down_h=hours, min_gain=0.01)
    role = replace(ROLE, new_rows=new, trained_at=NOW - 3600)
    home = replace(HOME, failed_attempts=failed)
    if trains(home=home, role=role, policy=strict):
        assert trains(role=role, policy=RetrainPolicy(min_gain=0))


MAPS = st.dictionaries(st.sampled_from("abcdefgh"), st.sampled_from("123"), max_size=8)
CALLS = st.dictionaries(st.sampled_from("abcdefgh"), st.integers(0, 50), max_size=8)


@given(MAPS, MAPS)
def test_drift_counts_every_tool_once(then, now):
    found = count_moves(then, now)
    same = sum(then[key] == now[key] for key in then.keys() & now.keys())
    assert found.changed + found.new + found.gone + same == len(then.keys() | now.keys())
    assert found.known == len(then)
    assert count_moves(then, dict(then)).share == 0.0
    assert count_moves({}, {"a": "1", "b": "2"}).share == 1.0


@given(MAPS, MAPS, CALLS)
def test_a_share_stays_within_its_interval_whatever_weighs(then, now, calls):
    classes = dict.fromkeys(then, "wording")
    found = make_contract_signal(count_moves(then, now, classes, calls), 0.01)
    assert found.value is not None
    assert 0 <= found.low <= found.value + 1e-9
    assert found.value <= found.high + 1e-9 <= 1 + 2e-9


def test_a_change_weighs_by_its_class_and_calls_and_counts_by_the_worst_since_the_training():
    then, now = {"a": "1", "b": "1"}, {"a": "2", "b": "1"}
    shares = {name: count_moves(then, now, {"a": name}).share for name in CLASS_WEIGHTS}
    assert shares == {"wording": 0.125, "compatible": 0.25, "breaking": 0.5, "suspicious": 0.5}
    assert count_moves(then, now).share == 0.5  # a change of no known class
    assert count_moves(then, now, calls={"a": 8}).share == pytest.approx(9 / 10)
    assert count_moves(then, now, calls={"b": 8}).share == pytest.approx(1 / 10)
    assert "8 calls weighed" in count_moves(then, now, calls={"b": 8}).describe()
    changes = [
        change("0", "1", "breaking", "2026-01-01"),  # before the training
        change("2", "3", "wording", "2026-01-03"),
        change("1", "2", "compatible", "2026-01-02"),
    ]
    assert find_change_classes(changes, {"s::a": "1"}) == {"s::a": "compatible"}
    assert find_change_classes(changes, {"s::a": "9"}) == {}


def change(was: str, now: str, cls: str, day: str) -> dict[str, Any]:
    return {
        "server_id": "s", "tool": "a", "from_digest": was, "to_digest": now,
        "cls": cls, "run_date": day,
    }  # fmt: skip


def item(n: int, rank: int) -> dict[str, Any]:
    return {"pair_id": str(n), "server_id": "s", "tool": f"t{n}", "rank": rank}


def test_frozen_items_that_are_no_longer_found_are_lost_and_tested_one_sided():
    frozen = [item(n, 1 if n < 90 else 9) for n in range(100)]
    current = {("s", f"t{n}"): f"text {n}" for n in range(80)}  # twenty tools are gone
    asked: list[str] = []

    def rank(items: Sequence[Any]) -> dict[str, int]:
        asked.extend(row["positive"] for row in items)
        return {row["pair_id"]: 20 if int(row["pair_id"]) < 16 else 1 for row in items}

    found = measure_retriever_decay(frozen, rank, current, 0.02)
    assert found.n == 80 == len(asked)
    assert found.value == pytest.approx(16 / 80)
    assert found.p_value < 0.001
    assert "of 100 frozen items 20 lost their tool; 80 of the others" in found.why
    assert measure_retriever_decay(frozen, rank, current, 0.02, most=10).n <= 10
    assert measure_retriever_decay([], rank, current, 0.02).why == "it was never measured"
    assert measure_retriever_decay(frozen, rank, {}, 0.02).value is None

    def decay(before: list[int], after: list[int]) -> DriftSignal:
        ranks = {str(n): rank for n, rank in enumerate(after)}
        current = {("s", f"t{n}"): "text" for n in range(len(after))}
        frozen = [item(n, rank) for n, rank in enumerate(before)]
        return measure_retriever_decay(frozen, lambda _: ranks, current, 0.02)

    lost, won = decay([1] * 12 + [9] * 3, [9] * 12 + [1] * 3), decay([9] * 12, [1] * 12)
    assert lost.value == pytest.approx(9 / 15)
    assert lost.p_value == pytest.approx(sum((455, 105, 15, 1)) / 2**15)
    assert (won.value, won.p_value) == (-1, 1)
    assert lost.low < lost.value < lost.high


@cases(
    "value, p, threshold, fired",
    (0.2, 0.001, 0.1, True),
    (0.2, 0.06, 0.1, False),
    (0.05, 0.001, 0.1, False),
    (0.2, None, 0.1, True),  # counted, not tested
    (None, None, 0.1, False),
    (0.0, None, 0.0, False),  # nothing moved,
)
def test_a_signal_fires_by_its_threshold_and_its_test(value, p, threshold, fired):
    assert judge_signal(DriftSignal("x", value, 10, threshold, "", p_value=p), 0.05).fired is fired


A, B, COMMIT = "a" * 16, "b" * 16, f"some/base@{'c' * 40}"


def test_a_measurement_that_failed_is_made_again_and_any_other_is_not(warehouse, monkeypatch):
    unmeasured = make_unmeasured("contracts", 0.01, "nothing was trained yet")
    asked = Mock(side_effect=[TimeoutError("the endpoint does not answer"), unmeasured])
    monkeypatch.setattr(measure, "_measure_contracts", asked)
    sources = measure.DriftSources(warehouse, "set", pytest.fail, "none")
    for _ in range(4):
        [first, *_] = measure.measure_drift(sources, RetrainPolicy())
    assert (asked.call_count, first.why) == (2, "nothing was trained yet")


@cases(
    "then, now, same",
    (f"/models/x@{A}", f"/models/x@{B}", False),  # its files changed where they lay
    (f"/models/x@{A}", f"/elsewhere/x@{A}", True),  # the same files, moved
    (f"/models/x@{A}", f"sentence-transformers:/models/x@{A}", False),  # pooled otherwise
    (f"{COMMIT}@{A}", COMMIT, True),  # a commit says what its files are
    (f"{COMMIT}@{A}", COMMIT.replace("c", "d"), False),
    (f"/models/x@{A}", "/models/x", True),  # gone for now: the place is the same
    (f"smollm2:{A}", f"smollm2:{B}", False),  # another template
    (f"smollm2:{A}", "/models/causal", False),
)
def test_bases_are_told_apart(then, now, same):
    assert is_same_base(then, now) is same


def test_a_folder_is_named_with_its_files_and_a_hub_id_is_never_fetched(tmp_path):
    known = {get_retriever_base_name(name) for name in ("minilm", "", "minilm-l6-v2")}
    assert known == {"minilm-l6-v2"}
    assert get_retriever_base_name(COMMIT) == COMMIT
    assert get_retriever_base_name(str(tmp_path)) == str(tmp_path)  # no model: its training says so
    assert get_causal_base_name("/gone") == "/gone"
    assert get_causal_base_name("smollm2") == name_smollm2_base()
    named = f"sentence-transformers:{find_base_path()}"
    assert get_retriever_base_name(named).startswith(f"{named}@")
