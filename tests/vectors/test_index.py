"""Embedding what the store lacks, neighbours, BM25, and the assets of look-alikes."""

import json
import random
from typing import Any
from unittest.mock import Mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.defs import clear_contracts, findings, snapshots
from assets.synthesis.defs import server_summaries
from assets.synthesis.summaries import SUMMARIES
from assets.vectors.confusable_table import CONFUSABLES
from assets.vectors.defs import confusables, contract_vectors
from assets.vectors.index import (
    ALIKE,
    INSTRUCTIONS,
    TWIN,
    VECTORS,
    NearTools,
    build_server_text,
    build_texts,
    embed_contracts,
    embed_texts,
    find_near_rows,
    find_norm_flaws,
)
from assets.vectors.lexical import BM25, split_words
from tests.contracts.pipeline import MARKET, POISON, Pipeline, honest_servers, poison_tool
from tests.support.cases import cases
from tests.vectors.conftest import WordEmbedder, snapshot
from warehouse.storage.lance import TEXTS, make_vector_key


def test_a_text_held_by_two_marketplaces_is_embedded_once(listed, embedder, store):
    rows = embed_contracts(listed, embedder, store)
    assert len(embedder.embedded) == len(set(embedder.embedded)) == 5
    assert len(VECTORS.frame(rows)) == 7
    assert find_norm_flaws(rows, store) == []
    lost = [{**rows[0], "embedder": "gone"}]
    key = make_vector_key(rows[0]["text_digest"], "gone")
    assert find_norm_flaws(lost, store) == [f"{key}: no vector"]
    members = build_texts(listed)
    assert [member["kind"] for member in members] == ["tool"] * 4 + ["server"] * 3
    assert {member["tool"] for member in members if member["kind"] == "server"} == {""}
    tools = [{"name": "b_tool"}, {"name": "aTool"}]
    assert build_server_text("npm:@x/y", tools) == build_server_text("npm:@x/y", tools[::-1])
    assert "a tool, b tool" in build_server_text("npm:@x/y", tools)


def test_a_second_run_embeds_only_what_is_new(listed, embedder, store):
    first = embed_contracts(listed, embedder, store)
    embedder.embedded.clear()
    assert embed_contracts(listed, embedder, store) == first
    assert embedder.embedded == []
    changed = [*listed[1:], snapshot("npm:files", "read_file", "Read a file or a folder")]
    embed_contracts(changed, embedder, store)
    assert len(embedder.embedded) == 1
    other = WordEmbedder("other")
    embed_contracts(listed, other, store)
    assert len(other.embedded) == 5


def test_a_killed_embedding_resumes_with_what_is_left(embedder, store):
    listed = [snapshot("npm:many", f"tool_{i}", f"Does thing {i}") for i in range(300)]
    killed = Mock(**{"update.side_effect": KeyboardInterrupt})
    with pytest.raises(KeyboardInterrupt):
        embed_contracts(listed, embedder, store, killed)
    assert 0 < len(embedder.embedded) < 301
    embed_contracts(listed, embedder, store)
    assert len(embedder.embedded) == 301


def test_texts_come_in_order_and_neighbours_by_likeness_without_twins(embedder, store):
    found = embed_texts(["b c", "a", "b c"], embedder, store)
    assert (found == embedder.embed(["b c", "a", "b c"])).all()
    embedder.embedded.clear()
    embed_texts(["a"], embedder, store)
    assert embedder.embedded == []
    before = store.count(TEXTS)
    for _ in range(2):
        embed_texts(["find my file"], embedder, store, table=INSTRUCTIONS)
    assert (store.count(TEXTS), store.count(INSTRUCTIONS)) == (before, 1)
    assert len(embedder.embedded) == 1
    rows = [
        snapshot("npm:a", "read_file", "Read a file from the disk"),
        snapshot("npm:b", "read_file", "Read a file from the disk"),  # a twin
        snapshot("npm:c", "write_file", "Write a file to the disk"),
        snapshot("npm:d", "zebra", "Stripes " * 30),
    ]
    near = find_near_rows(rows, embedder, store)
    assert [row["tool"] for row in near(rows[0])] == ["write_file"]
    assert {row["server_id"] for row in near(rows[2])} == {"npm:a", "npm:b"}
    assert near(rows[3]) == []
    with pytest.raises(KeyError):
        find_near_rows([], embedder, store)(rows[0])


@given(st.integers(2, 12), st.integers(0, 99))
def test_the_order_of_the_rows_decides_nothing(n, seed):
    rng = np.random.default_rng(seed)
    matrix = rng.integers(0, 3, (n, 4)).astype(np.float32) + 0.1
    matrix /= np.linalg.norm(matrix, axis=1, keepdims=True)
    rows = [{"server_id": f"s{i}", "tool": "t"} for i in range(n)]
    order = list(range(n))
    random.Random(seed).shuffle(order)
    one, other = NearTools(rows, matrix), NearTools([rows[i] for i in order], matrix[order])
    for i, row in enumerate(rows):
        found = one(row)
        assert found == other(row)
        for neighbour in found:
            cosine = float(matrix[i] @ matrix[rows.index(neighbour)])
            assert ALIKE - 1e-3 < cosine < TWIN + 1e-3


def test_of_many_like_tools_the_nearest_come_in_order_in_every_block():
    rng = np.random.default_rng(3)
    matrix = rng.standard_normal((600, 8)).astype(np.float32)
    matrix = np.round(matrix / np.linalg.norm(matrix, axis=1, keepdims=True), 2)
    rows = [{"server_id": f"s{at % 7}", "tool": f"t{at}"} for at in range(len(matrix))]
    near = NearTools(rows, matrix)
    products = np.round(matrix @ matrix.T, 4)
    for at in (0, 255, 256, 599, 1):
        fits = [
            (-products[at, other], rows[other]["server_id"], rows[other]["tool"])
            for other in range(len(rows))
            if other != at and ALIKE <= products[at, other] < TWIN
        ]
        assert [(row["server_id"], row["tool"]) for row in near(rows[at])] == [
            (server, tool) for _, server, tool in sorted(fits)[:8]
        ]


def test_identifiers_are_split_into_words_of_which_rare_ones_win_and_make_names_alike():
    assert split_words("getUserByID, list-commits read_files") == [
        "get", "user", "id", "list", "commit", "read", "file",
    ]  # fmt: skip
    assert split_words("天气 ok") == ["天", "气", "ok"]
    assert split_words("the of and") == []
    index = BM25.build(["read a file", "read a database", "send an email"])
    assert int(np.argmax(index.score("read my database"))) == 1
    assert index.find_shared("read my database", np.array([1])) == [["database", "read"]]
    assert BM25.build(["a b"]).score("zebra").tolist() == [0.0]
    assert BM25.build([]).score("zebra").shape == (0,)
    names = BM25.build(["get_user", "get_invoice", "get_user_invoice_list_page", "get", "__"])
    documents = np.arange(5)
    found = names.match_rarity(["get", "invoice"], documents)
    assert found[1] == pytest.approx(1.0)
    assert found[1] > max(found[2], found[3]) > min(found[2], found[3]) > found[4] == 0
    assert names.match_rarity(["zebra"], documents).tolist() == [0.0] * 5
    longer = names.match_rarity(["get", "invoice", "zebra", "lion"], documents)
    assert longer[1] < found[1]  # much of the request is not in the name


@given(st.lists(st.text(max_size=40), max_size=8), st.text(max_size=40))
def test_scores_are_finite_and_not_negative(texts, query):
    scores = BM25.build(texts).score(query)
    assert scores.shape == (len(texts),)
    assert np.isfinite(scores).all()
    assert (scores >= 0).all()


@given(st.lists(st.text(max_size=20), min_size=1, max_size=6), st.text(max_size=40))
def test_likeness_is_a_share_and_no_score_exceeds_its_bound(texts, query):
    index = BM25.build(texts)
    terms = index.cut_query(query)
    alike = index.match_rarity(terms, np.arange(len(texts)))
    assert ((alike >= 0) & (alike <= 1 + 1e-5)).all()
    assert index.score(query).max() <= index.bound_score(terms) + 1e-4


def test_a_text_that_says_everything_is_credited_little_and_a_server_has_one_vote():
    usual = [f"do{at} something{at} with{at} thing{at}" for at in range(99)]
    index, owners = BM25.build([*usual, " ".join(usual)]), np.arange(100)
    credit = index.measure_credit(owners)
    assert credit[:99].tolist() == [1.0] * 99
    assert credit[99] < 0.01
    scores = index.score("something7 thing7") * credit
    assert scores.argmax() == 7
    twice = BM25.build([*usual, " ".join([usual[0]] * 50)])
    assert twice.measure_credit(owners)[99] == 1.0  # saying the same again is no more matter
    usual = [f"do{at} something{at} with{at} thing{at}" for at in range(30)]
    long = [" ".join(f"w{at}x{n}" for n in range(90)) for at in range(60)]
    index = BM25.build([*usual, *long])
    one, many = np.r_[np.arange(30), np.full(60, 30)], np.arange(90)
    assert (index.measure_credit(one)[30:] < 0.01).all()
    assert (index.measure_credit(many) == 1.0).all()
    assert (index.measure_credit(one)[:30] == 1.0).all()


@cases("servers, words, whole", (3, 90, True), (3, 300, False), (20, 90, False), (20, 11, True))
def test_what_is_usual_has_a_floor_which_is_higher_among_few_servers(servers, words, whole):
    texts = [f"do{at}" for at in range(servers - 1)]
    index = BM25.build([*texts, " ".join(f"w{at}" for at in range(words))])
    credit = index.measure_credit(np.arange(servers))
    assert (credit[:-1] == 1.0).all()
    assert (credit[-1] == 1.0) == whole


@given(st.lists(st.tuples(st.text(max_size=40), st.integers(0, 3)), max_size=8))
def test_credit_is_a_share(told):
    texts, owners = [text for text, _ in told], [owner for _, owner in told]
    credit = BM25.build(texts).measure_credit(np.array(owners, np.int32))
    assert credit.shape == (len(texts),)
    assert ((credit > 0) & (credit <= 1)).all()


def summarise(pipeline: Pipeline) -> dict[str, dict[str, Any]]:
    pipeline.run([snapshots, findings, clear_contracts, contract_vectors], MARKET)
    return pipeline.run([server_summaries, confusables])


def test_every_server_is_summed_up_copies_are_twins_and_poison_is_left_out(pipeline):
    # Every tool of one server again on another, one of them poisoned there.
    servers = honest_servers()
    name, (first, *tools) = next(iter(servers.items()))
    servers[f"{name}-copy"] = [poison_tool(first), *tools]
    pipeline.deploy(servers)
    metadata = summarise(pipeline)
    summaries = {row["server_id"]: row for row in pipeline.read_rows(SUMMARIES)}
    assert summaries.keys() == servers.keys()
    assert all(row["summary"] and row["provider"] == "offline" for row in summaries.values())
    rows = pipeline.read_rows(CONFUSABLES)
    copied = {row["tool"] for row in rows if row["kind"] == "twin"}
    assert {row["other_server_id"] for row in rows if row["kind"] == "twin"} == {f"{name}-copy"}
    assert copied == {tool["name"] for tool in tools}
    assert metadata["confusables"]["with_a_twin"] == 2 * len(copied)
    # The poisoned tool is in neither table.
    assert POISON.strip() not in json.dumps([list(summaries.values()), rows])
    assert not [row for row in rows if row["other_server_id"].endswith("-copy")
                and row["other_tool"] == first["name"]]  # fmt: skip
    # The same world again makes no new version.
    tables = pipeline.warehouse.tables
    before = [tables.head(spec.name) for spec in (SUMMARIES, CONFUSABLES)]
    assert all(before)
    summarise(pipeline)
    assert [tables.head(spec.name) for spec in (SUMMARIES, CONFUSABLES)] == before
