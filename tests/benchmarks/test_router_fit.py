"""The fit of the router's weights: every set with the same say, and no set judged by its own."""

import json
from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from benchmarks.retriever_fit.recipe import FOLDS
from benchmarks.router_fit.__main__ import Work, print_sets
from benchmarks.router_fit.left_out import (
    ATTACKED,
    compare,
    fit_apart,
    fit_without,
    name_language,
    plant_attackers,
)
from benchmarks.router_fit.rows import PEERS, Rows, measure_order
from benchmarks.router_fit.sets import (
    FIT,
    HELD,
    QuerySet,
    Request,
    check_sides,
    choose_fitted,
    trim_set,
)
from benchmarks.router_fit.weights import (
    Block,
    find_quantile,
    fit_logistic,
    fit_ranking,
    measure_auroc,
)
from benchmarks.router_latency import embed_grown, grow_source
from benchmarks.shared_data import StoredEmbedder
from serving.index.model import IndexSource
from tests.support.cases import cases
from tests.support.examples import examples
from tests.vectors.conftest import WordEmbedder


def make_set(name: str = "set", servers: int = 12, tools: int = 3) -> QuerySet:
    listed = [
        {"qualified_name": f"s{at}", "overview": "A server", "tools": [
            {"name": f"t{of}", "description": f"Does {of}"} for of in range(tools)]}
        for at in range(servers)
    ]  # fmt: skip
    asked = [Request(f"do {at}", (f"s{at}::t0",), FIT if at % 2 else HELD) for at in range(servers)]
    return QuerySet(name, tuple(listed), tuple(asked))


def make_rows(signal: int, count: int = 40, side: str = FIT, seed: int = 0) -> Rows:
    """Requests with four candidates; only the feature at `signal` knows the right one."""
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(count, 4, 2)).astype(np.float32)
    right = np.zeros((count, 4), bool)
    right[np.arange(count), rng.integers(0, 4, count)] = True
    x[..., signal] += 3 * right
    requests = tuple(Request(f"q{at}", (f"s{at % 7}::t",), side) for at in range(count))
    twins = np.tile(np.arange(4), (count, 1))
    gold = tuple(frozenset([int(at)]) for at in right.argmax(1))
    peers = {name: np.zeros((count, 4)) for name in PEERS}
    return Rows(requests, ("a", "b"), x, np.ones_like(right), right, twins, gold, peers)


def test_every_set_has_the_same_say_however_large_it_is():
    blocks = [Block(r.x, r.held, r.right) for r in (make_rows(0, 30), make_rows(1, 30, seed=1))]
    once = fit_ranking(blocks)
    large = Block(*(np.concatenate([part] * 9) for part in vars(blocks[0]).values()))
    assert fit_ranking([large, blocks[1]]) == pytest.approx(once, abs=1e-3)
    often = fit_ranking([*[blocks[0]] * 9, blocks[1]])
    assert often[0] / often[1] > 1.5 * once[0] / once[1]


def test_the_fit_gives_its_weight_to_what_tells_the_right_tool():
    found = fit_ranking([Block(r.x, r.held, r.right) for r in [make_rows(0)]])
    assert found[0] > 1 > abs(found[1])


def test_weights_are_held_back_where_few_rows_speak_for_them():
    rows = make_rows(0)
    few = rows.select(np.arange(40) < 4)
    alone = Block(few.x, few.held, few.right)
    assert 1 < fit_ranking([alone])[0] < 3.2  # 4.1 with a ridge of .001


def test_tables_of_the_test_sides_are_printed_only_where_asked_for(capsys):
    rows = {"one": make_rows(0), "two": make_rows(1, side=HELD)}
    weights = {name: np.ones(2) for name in rows}
    assert [line.name for line in print_sets(rows, weights, test=False)] == ["one"]
    assert "two" not in capsys.readouterr().out
    assert [line.name for line in print_sets(rows, weights, test=True)] == ["one"]
    assert "| two | 40 |" in capsys.readouterr().out


def test_a_fit_without_a_right_candidate_is_refused():
    rows = make_rows(0)
    with pytest.raises(ValueError, match="no row holds a right candidate"):
        fit_ranking([Block(rows.x, rows.held, np.zeros_like(rows.right))])


def test_no_row_of_a_set_or_of_its_family_is_in_its_own_weights():
    sets = {"tldr-en": make_rows(0), "tldr-i18n": make_rows(0, seed=1), "other": make_rows(1)}
    apart = fit_apart(sets)
    poisoned = make_rows(0)
    poisoned.x[:] = np.nan
    changed = fit_apart({**sets, "tldr-en": poisoned, "tldr-i18n": poisoned})
    assert changed["tldr-en"] == pytest.approx(apart["tldr-en"])
    assert changed["tldr-i18n"] == pytest.approx(apart["tldr-i18n"])
    assert apart["other"][0] > apart["other"][1]
    assert apart["tldr-en"][1] > apart["tldr-en"][0]


def test_no_held_request_is_fitted_on():
    fit, held = make_rows(0), make_rows(1, side=HELD)
    both = replace(
        fit, requests=fit.requests + held.requests, gold=fit.gold + held.gold,
        x=np.concatenate([fit.x, np.full_like(held.x, np.nan)]),
        **{n: np.concatenate([getattr(fit, n), getattr(held, n)])
           for n in ("held", "right", "twins")},
        peers={name: np.zeros((80, 4)) for name in PEERS},
    )  # fmt: skip
    assert fit_without({"a": both}, None) == pytest.approx(fit_without({"a": fit}, None))


@given(st.sets(st.sampled_from(["sgd", "tldr-en", "tldr-i18n", "corpus", "nestful"])))
def test_what_is_only_looked_at_is_never_fitted(names):
    assert "sgd" not in choose_fitted(names, None)
    for left in names:
        assert left not in choose_fitted(names, left)


def test_a_server_on_both_sides_is_refused_by_name():
    found = make_set()
    check_sides(found)
    wrong = replace(found, requests=(*found.requests, Request("x", ("s1::t1",), HELD)))
    with pytest.raises(ValueError, match="s1 has requests on both sides"):
        check_sides(wrong)


@examples(40)
@given(st.integers(1, 40), st.integers(1, 8))
def test_a_trimmed_set_asks_only_for_what_it_kept(tools, requests):
    found = trim_set(make_set(), tools, requests)
    names = {server["qualified_name"] for server in found.servers}
    assert found.tools <= max(tools, 3)
    assert all(request.server in names for request in found.requests)
    assert all(sum(r.side == side for r in found.requests) <= requests for side in (FIT, HELD))
    assert found == trim_set(make_set(), tools, requests)


@cases(
    "found, wants_all, expected",
    ([3, 1, 2], False, (0.0, 1.0, 1.0, 0.5)),
    ([7, 7, 1], False, (0.0, 1.0, 1.0, 0.5)),  # a twin takes no place of its own
    ([1, 2, 3], True, (0.5, 1.0, 1.0, 1.0)),
    ([-1, -1], False, (0.0, 0.0, 0.0, 0.0)),
)
def test_an_order_is_measured_as_the_scorer_does(found, wants_all, expected):
    assert measure_order(np.array(found), frozenset([1, 2]), wants_all) == expected


def test_a_set_of_one_server_is_compared():
    rows = make_rows(0)
    alone = replace(rows, requests=tuple(Request(r.text, ("s::t",)) for r in rows.requests))
    line = compare("one", alone, alone.measure(np.array([1.0, 0.0])))
    assert (line.servers, line.gain.low, line.gain.high) == (1, line.gain.value, line.gain.value)


def test_attackers_repeat_the_requests_of_a_set():
    found = make_set()
    planted = plant_attackers(found, 2)
    descriptions = [server["tools"][0]["description"] for server in planted.servers[-2:]]
    assert sorted("\n".join(descriptions).split("\n")) == sorted(r.text for r in found.requests)


def test_a_changed_pool_is_read_by_the_adapter_that_did_not_learn_its_set(tmp_path):
    first, second = (
        StoredEmbedder(WordEmbedder(), tmp_path),
        StoredEmbedder(WordEmbedder(), tmp_path),
    )
    work = Work(tmp_path, [first, second], {}, {})
    for of in (FOLDS[1][0], f"{FOLDS[1][0]}/{ATTACKED}-1"):
        assert work.choose_embedder(of) is second
    assert work.choose_embedder(FOLDS[0][0]) is first


@cases(
    "text, lang, expected",
("turn on the light", "en-GB", "English"), ("Licht an", "de", "Latin script, other languages"),
     ("включи свет", "ru", "Cyrillic, Greek"), ("打开灯", "", "Chinese, Japanese, Korean"),
     ("!?", "", "Latin script"),
)  # fmt: skip
def test_a_request_is_told_by_its_writing(text, lang, expected):
    assert name_language(Request(text, ("s::t",), lang=lang)) == expected


def test_the_logistic_counts_rows_by_their_say():
    x, y = np.array([[0.0], [1.0], [0.0], [1.0]]), np.array([0.0, 1.0, 1.0, 0.0])
    rising, _ = fit_logistic(x, y, np.array([9.0, 9.0, 1.0, 1.0]))
    falling, _ = fit_logistic(x, y, np.array([1.0, 1.0, 9.0, 9.0]))
    assert rising[0] > 0 > falling[0]


def test_auroc_counts_a_tie_as_half():
    assert measure_auroc(np.array([1.0, 1.0]), np.array([1.0, 0.0])) == 0.5
    assert measure_auroc(np.array([2.0, 3.0, 1.0]), np.array([1.0, 1.0, 0.0])) == 1.0


def test_a_quantile_is_of_the_weight():
    values, say = np.array([3.0, 1.0, 2.0]), np.array([1.0, 8.0, 1.0])
    assert find_quantile(values, say, 0.5) == 1.0
    assert find_quantile(values, say, 0.85) == 2.0


class Counting:
    """Unit vectors drawn from each text, and how many texts were embedded."""

    id, dim = "counting/1", 8

    def __init__(self) -> None:
        self.embedded = 0

    def embed(self, texts: Sequence[str], *, on_done: object = None) -> np.ndarray:
        self.embedded += len(texts)
        rows = [np.random.default_rng(list(text.encode())).standard_normal(8) for text in texts]
        unit = np.array(rows, np.float32)
        return unit / np.linalg.norm(unit, axis=1, keepdims=True)


def test_kept_vectors_are_made_once_and_stay(tmp_path):
    model = Counting()
    first = StoredEmbedder(model, tmp_path).embed(["a", "b", "a"])
    again = StoredEmbedder(model, tmp_path).embed(["b", "a", "c"])
    assert model.embedded == 3
    assert np.array_equal(first[0], first[2])
    assert np.array_equal(again[0], first[1])


def test_a_grown_pool_has_its_size_and_vectors_near_the_real_ones():
    contracts = [
        {"name": f"tool{at}", "description": f"It does {at} things with many words in a row"}
        for at in "abc"
    ]
    rows = [{"server_id": of["name"], "contract": json.dumps(of)} for of in contracts]
    names = [of["name"] for of in contracts]
    source = grow_source(IndexSource(rows, {name: {"name": name} for name in names}), 8)
    tools = [json.loads(row["contract"])["name"] for row in source.rows]
    assert len(set(tools)) == len(source.servers) == 8
    model = Counting()
    vectors = embed_grown(set(names), model.embed)(tools)
    assert np.allclose(np.linalg.norm(vectors, axis=1), 1, atol=1e-5)
    near = (vectors @ model.embed(names).T).max(axis=1)
    assert near.min() > 0.9
