"""What the fits of the shipped weights and adapter may learn from, and how orders are measured."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import tool_text
from assets.contracts.tool_id import ToolId
from assets.synthesis.verify.pair_checks import find_form_flaws
from benchmarks.retriever_fit.recipe import DESCRIPTIONS, FOLDS, LEARNT, Recipe
from benchmarks.retriever_fit.rows import (
    GRAMMAR,
    draw_requests,
    join_offline,
    join_written,
    make_listed_rows,
    make_rows,
    read_written,
)
from benchmarks.router_fit.__main__ import Work
from benchmarks.router_fit.left_out import ATTACKED, fit_apart, fit_without
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
from benchmarks.router_fit.weights import Block, find_quantile, fit_ranking, measure_auroc
from benchmarks.shared_data import StoredEmbedder
from tests.support.cases import cases
from tests.support.examples import examples
from tests.vectors.conftest import WordEmbedder
from training.retriever.batches import collect_tools, list_right_texts, select_teachable_rows
from training.sets.split import TEST, split_of


def make_set(servers: int = 8, tools: int = 3, each: int = 3) -> QuerySet:
    """Servers of even number are fitted on; the last one of all is asked nothing."""
    listed = [
        {"qualified_name": f"s{at}", "tools": [
            {"name": f"t{of}", "description": f"Does thing {of} of {at}",
             "inputSchema": {"type": "object", "properties": {"file": {}, f"p{of}": {}}}}
            for of in range(tools)]}
        for at in range(servers + 1)
    ]  # fmt: skip
    requests = [
        Request(f"please do {of} of {at}, {n}", (f"s{at}::t{of}",), HELD if at % 2 else FIT)
        for at in range(servers)
        for of in range(tools)
        for n in range(each)
    ]
    return QuerySet("sealtools", tuple(listed), tuple(requests))


def make_signals(signal: int, count: int = 40, side: str = FIT, seed: int = 0) -> Rows:
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
    blocks = [
        Block(rows.x, rows.held, rows.right)
        for rows in (make_signals(0, 30), make_signals(1, 30, seed=1))
    ]
    once = fit_ranking(blocks)
    large = Block(*(np.concatenate([part] * 9) for part in vars(blocks[0]).values()))
    assert fit_ranking([large, blocks[1]]) == pytest.approx(once, abs=1e-3)
    often = fit_ranking([*[blocks[0]] * 9, blocks[1]])
    assert often[0] / often[1] > 1.5 * once[0] / once[1]


def test_no_row_of_a_set_or_of_its_family_is_in_its_own_weights():
    sets = {name: make_signals(0, seed=seed) for seed, name in enumerate(("tldr-en", "tldr-i18n"))}
    apart = fit_apart({**sets, "other": make_signals(1)})
    poisoned = make_signals(0)
    poisoned.x[:] = np.nan
    changed = fit_apart({**dict.fromkeys(sets, poisoned), "other": make_signals(1)})
    for name in sets:
        assert changed[name] == pytest.approx(apart[name])
    assert apart["other"][0] > apart["other"][1]
    assert apart["tldr-en"][1] > apart["tldr-en"][0]


def test_no_held_request_is_fitted_on():
    fit, held = make_signals(0), make_signals(1, side=HELD)
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
    for left_out in names:
        assert left_out not in choose_fitted(names, left_out)


def test_a_server_on_both_sides_is_refused_by_name():
    good = make_set()
    check_sides(good)
    wrong = replace(good, requests=(*good.requests, Request("x", ("s1::t1",), FIT)))
    with pytest.raises(ValueError, match="s1 has requests on both sides"):
        check_sides(wrong)


@examples(40)
@given(st.integers(1, 40), st.integers(1, 8))
def test_a_trimmed_set_asks_only_for_what_it_kept(tools, requests):
    trimmed = trim_set(make_set(), tools, requests)
    names = {server["qualified_name"] for server in trimmed.servers}
    assert trimmed.tools <= max(tools, 3)
    assert all(request.server in names for request in trimmed.requests)
    assert all(sum(r.side == side for r in trimmed.requests) <= requests for side in (FIT, HELD))
    assert trimmed == trim_set(make_set(), tools, requests)


@cases(
    "order, wants_all, expected",
    ([3, 1, 2], False, (0.0, 1.0, 1.0, 0.5)),
    ([7, 7, 1], False, (0.0, 1.0, 1.0, 0.5)),  # a twin takes no place of its own
    ([1, 2, 3], True, (0.5, 1.0, 1.0, 1.0)),
    ([-1, -1], False, (0.0, 0.0, 0.0, 0.0)),
)
def test_an_order_is_measured_as_the_scorer_does(order, wants_all, expected):
    assert measure_order(np.array(order), frozenset([1, 2]), wants_all) == expected


def test_auroc_counts_a_tie_as_half_and_a_quantile_is_of_the_weight():
    assert measure_auroc(np.array([1.0, 1.0]), np.array([1.0, 0.0])) == 0.5
    assert measure_auroc(np.array([2.0, 3.0, 1.0]), np.array([1.0, 1.0, 0.0])) == 1.0
    values, say = np.array([3.0, 1.0, 2.0]), np.array([1.0, 8.0, 1.0])
    assert [find_quantile(values, say, share) for share in (0.5, 0.85)] == [1.0, 2.0]


def test_a_changed_pool_is_read_by_the_adapter_that_did_not_learn_its_set(tmp_path):
    first, second = (StoredEmbedder(WordEmbedder(), tmp_path) for _ in range(2))
    work = Work(tmp_path, [first, second], {}, {})
    for name in (FOLDS[1][0], f"{FOLDS[1][0]}/{ATTACKED}-1"):
        assert work.choose_embedder(name) is second
    assert work.choose_embedder(FOLDS[0][0]) is first


def test_folds_leave_every_learnt_set_out_once_and_nothing_of_a_test_side_is_learnt():
    assert sorted([*FOLDS[0], *FOLDS[1]]) == sorted(LEARNT)
    families = [{name.partition("-")[0] for name in fold} for fold in FOLDS]
    assert not families[0] & families[1]
    rows, pool = make_rows(make_set(), Recipe())
    texts = {row["positive"] for row in rows}
    texts |= {tool_text(entry["contract"]) for entry in pool.values()}
    assert len(select_teachable_rows(rows)[0]) == len(rows) == 4 * 3 * 3
    assert all(int(text.split(" of ")[1].split()[0]) % 2 == 0 for text in texts)
    assert not any(" of 8" in text for text in texts)


def test_both_views_of_a_tool_are_right_its_negatives_are_others_and_caps_hold():
    rows, pool = make_rows(make_set(), Recipe())
    tools = collect_tools(rows, pool)
    assert {row["contract_digest"].rpartition(":")[2] for row in rows} == {"full", "brief"}
    for row, right in zip(rows, list_right_texts(rows, {}, tools), strict=True):
        near = {tools[name].text for name in json.loads(row["negatives"])}
        assert 0 < len(near) <= Recipe().near
        assert row["positive"] in right
        assert not near & right
    recipe = replace(Recipe(), cap=10, pairs_a_tool=1)
    rows, _ = make_rows(make_set(), recipe)
    assert 0 < len(rows) <= 10
    assert len({row["contract"]["description"] for row in rows}) == len(rows)
    requests = make_set().requests
    drawn = draw_requests(requests, recipe, "sealtools")
    assert drawn == draw_requests(requests[::-1], recipe, "sealtools")
    assert not draw_requests([Request("x" * 601, ("s0::t0",))], recipe, "sealtools")


@pytest.fixture
def listed(tmp_path: Path) -> Path:
    """A marketplace's list: `s0` is asked by the corpus, odd tools are copies of one another."""
    servers = [
        {"qualified_name": f"s{at}", "tools": [
            {"name": f"read_{thing}", "description": about, "inputSchema": {
                "type": "object", "properties": {f"{thing}_id": {"type": "string"}}}}
            for thing, about in (
                ("invoice", f"Fetches one invoice of customer group {at}. Needs a key."),
                ("copy", "Copies what every other server copies, word for word."),
                ("deploy", f"Deploy Server {at}: a button of the page it was listed on."),
                ("short", "Too short."),
                ("parcel", f"Tells where a parcel of depot {at} is right now."))]}
        for at in range(20)
    ]  # fmt: skip
    for name in ("smithery", "corpus"):
        (tmp_path / name).mkdir()
    lines = "".join(json.dumps(server) + "\n" for server in servers)
    (tmp_path / "smithery" / "servers.jsonl").write_text(lines)
    pair = {"tool_id": "s0::read_invoice", "kind": "direct"}
    (tmp_path / "corpus" / "pairs_A0.jsonl").write_text(json.dumps(pair) + "\n")
    return tmp_path


def read_servers(listed: Path) -> list[dict]:
    return [json.loads(line) for line in (listed / "smithery" / "servers.jsonl").open()][1:3]


def test_listed_pairs_are_of_servers_that_nothing_is_tested_on(listed):
    rows, pool = make_listed_rows(DESCRIPTIONS, listed, Recipe())
    texts = " ".join(f"{row['instruction']} {row['contract']['description']}" for row in rows)
    learnt = {at for at in range(20) if f"group {at}" in texts or f"depot {at}" in texts}
    assert learnt == {at for at in range(1, 20) if split_of(f"s{at}") != TEST}
    assert "Deploy" not in texts
    assert len([row for row in rows if row["contract"]["name"] == "read_copy"]) == 1
    assert select_teachable_rows(rows)[1] == {}
    tools = collect_tools(rows, pool)
    for row, right in zip(rows, list_right_texts(rows, {}, tools), strict=True):
        near = {tools[key].text for key in json.loads(row["negatives"])}
        assert row["positive"] in right
        # What is near a copied tool are its copies, which are no negatives.
        assert near - right or row["contract"]["name"] == "read_copy"
        assert row["instruction"] not in row["positive"]
        assert "Needs a key" not in row["instruction"]
        assert row["positive"].splitlines()[1:], "the description goes, the parameters stay"
    assert all(not entry["contract"]["description"] for entry in pool.values())
    assert make_listed_rows(DESCRIPTIONS, listed, Recipe())[0] == rows


def test_written_requests_pass_the_form_checks_and_none_asks_a_test_server():
    written, grammar = read_written(), read_written(GRAMMAR)
    texts = [text.casefold() for row in written for text in row["requests"].values()]
    assert len(texts) == len(set(texts)) > 4_000
    assert len(grammar) == len({row["tool_id"] for row in grammar}) > 1_300
    servers = {ToolId.parse(row["tool_id"]).server_id for row in (*written, *grammar)}
    assert not [server for server in servers if split_of(server) == TEST]
    for row in written[::10]:  # all of them pass, which takes two seconds
        tool = ToolId.parse(row["tool_id"])
        for text in row["requests"].values():
            assert not [*find_form_flaws({"name": tool.tool}, text, tool.server_id)], text


def test_requests_of_the_grammar_are_told_from_tools_of_other_servers_too(listed):
    made = [
        {"tool_id": f"s{at}::{name}", "requests": {"offline": f"{name} of {at}"}}
        for at, name in ((1, "read_invoice"), (2, "read_parcel"), (9, "read_parcel"))
    ]
    rows, pool = join_offline(read_servers(listed), made, Recipe())
    assert {row["instruction"] for row in rows} == {"read_invoice of 1", "read_parcel of 2"}
    near = {
        pool[key]["contract"]["description"] for row in rows for key in json.loads(row["negatives"])
    }
    assert any("group 2" in text or "depot 1" in text for text in near)


def test_a_written_request_is_told_apart_from_siblings_alone(listed):
    servers = read_servers(listed)
    written = [
        {"tool_id": "s1::read_invoice", "requests": {"ask": "What did group 1 pay?"}},
        {"tool_id": "s1::read_gone", "requests": {"ask": "A tool that is listed no more"}},
        {"tool_id": "s9::read_parcel", "requests": {"ask": "A server that is left out"}},
    ]
    rows, pool = join_written(servers, written, Recipe())
    assert [row["instruction"] for row in rows] == ["What did group 1 pay?"]
    near = [pool[key]["contract"] for key in json.loads(rows[0]["negatives"])]
    names = {tool["name"] for tool in servers[0]["tools"]} - {"read_invoice"}
    assert {contract["name"] for contract in near} <= names
    assert near
    assert not any("group 2" in contract["description"] for contract in near)
