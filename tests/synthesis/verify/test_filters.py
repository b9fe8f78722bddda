"""Filters over a partition: echoes are rejected, near-copies point to the row that stays."""

import json
from dataclasses import replace
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.verify import filters as module
from assets.synthesis.verify.filters import SiblingTools, compute_cosines, filter_rows, find_twins
from tests.support.cases import cases
from tests.support.examples import examples
from tests.vectors.conftest import WordEmbedder

Json = Any
POLICY = SynthesisPolicy(copies_above=0.8, twins_above=0.9)
CONTRACTS = {
    "time": {"name": "t", "description": "get the current time of a city"},
    "file": {"name": "f", "description": "read a file"},
    "mute": {"name": "m"},
}


embed = WordEmbedder().embed  # equal bags of words have cosine 1


def row(number: int, text: str, base: str = "time", **more: Json) -> dict[str, Json]:
    messages = json.dumps([{"role": "user", "content": text}])
    return {
        "pair_id": f"p1:{number}", "server_id": "npm:a", "tool": base, "task": "single",
        "index": number, "contract_digest": base, "instruction": text, "messages": messages,
        "calls": "[]", "offered": "[]", "status": "ok", "flaws": "[]", "verdict": "accept",
        "cosine": None, "twin_of": None, **more,
    }  # fmt: skip


def test_a_description_handed_back_is_rejected_beside_other_flaws_and_odd_rows_stop_nothing():
    rows = [row(0, "get the current time of a city"), row(1, "how late is it in Oslo")]
    echo, base = filter_rows(rows, CONTRACTS, embed, POLICY)
    assert (echo["verdict"], echo["cosine"]) == ("reject", 1.0)
    assert [f["kind"] for f in json.loads(echo["flaws"])] == ["copies_description"]
    assert base["verdict"] == "accept"
    assert 0 <= base["cosine"] < 0.8
    doubt = {"kind": "ungrounded_value", "path": "x", "reason": "absent", "certain": False}
    lexical = {"kind": "copies_description", "path": "", "reason": "90%", "certain": True}
    for flaw, verdict in ((doubt, "unsure"), (lexical, "reject")):
        rows = [row(0, "hi there", flaws=json.dumps([flaw]))]
        [result] = filter_rows(rows, CONTRACTS, embed, POLICY)
        assert (result["verdict"], json.loads(result["flaws"])) == (verdict, [flaw])
    rows = [row(0, "", "mute"), row(1, "hello there", "mute"), row(2, "x", calls="{")]
    result = filter_rows([*rows, row(3, "y", contract_digest="gone")], CONTRACTS, embed, POLICY)
    assert [r["cosine"] for r in result][:2] == [None, None]
    assert result[3]["cosine"] is None
    failed = row(0, "", status="failed", verdict=None, flaws=None, instruction=None)
    assert filter_rows([failed], CONTRACTS, embed, POLICY) == [failed]


def test_a_request_for_another_tool_of_its_server_is_rejected():
    call = {"server_id": "npm:a", "tool": "t", "contract_digest": "time", "arguments": {}}
    calls = json.dumps([call])
    texts = ("read this file", "the current time in Oslo please")
    asked = [row(at, text, calls=calls) for at, text in enumerate(texts)]
    servers = {"npm:a": ["time", "file"], "npm:b": ["mute"]}
    beside = SiblingTools(servers, lambda texts, _: embed(texts))

    def find_kinds(siblings: SiblingTools | None) -> list[list[str]]:
        rows = filter_rows(asked, CONTRACTS, embed, POLICY, siblings)
        return [[flaw["kind"] for flaw in json.loads(each["flaws"])] for each in rows]

    assert find_kinds(beside) == [["nearer_sibling"], []]
    [flaw] = json.loads(filter_rows(asked, CONTRACTS, embed, POLICY, beside)[0]["flaws"])
    assert flaw["reason"].endswith(f"more than {POLICY.sibling_above} (sibling_above) apart")
    assert find_kinds(None) == find_kinds(replace(beside, servers={"npm:a": ["time"]})) == [[], []]
    once = filter_rows(asked, CONTRACTS, embed, POLICY, beside)
    again = filter_rows(once, CONTRACTS, embed, POLICY)
    assert [each["flaws"] for each in again] == ["[]", "[]"]  # forgotten where it no longer holds


def test_a_copy_points_to_the_first_in_order_that_is_not_rejected():
    rows = [
        row(3, "read the log of today", "file"),
        row(0, "how late is it in Oslo now"),
        row(1, "is it how late in Oslo now"),
        row(2, "how late in Oslo is it now", "file"),
        row(4, "read the log of today", "file", task="recovery"),
    ]
    result = {r["pair_id"]: r["twin_of"] for r in filter_rows(rows, CONTRACTS, embed, POLICY)}
    # `file` comes before `time` in the order of tools.
    assert result == {
        "p1:0": "p1:2", "p1:1": "p1:2", "p1:2": None, "p1:3": None, "p1:4": None,
    }  # fmt: skip
    flaw = {"kind": "wrong_type", "path": "x", "reason": "no", "certain": True}
    rows = [row(0, "how late is it", flaws=json.dumps([flaw])), row(1, "how late is it")]
    first, second = filter_rows(rows, CONTRACTS, embed, POLICY)
    assert (first["verdict"], first["twin_of"]) == ("reject", None)
    assert (second["verdict"], second["twin_of"]) == ("accept", None)


WORDS = ["get", "the", "current", "time", "of", "a", "city", "read", "file", "now"]
TEXTS = st.lists(st.lists(st.sampled_from(WORDS), min_size=1).map(" ".join), max_size=12)


@examples(60)
@given(TEXTS, st.randoms(use_true_random=False))
def test_filtering_again_changes_nothing_and_order_decides_nothing(texts, shuffle):
    rows = [row(n, text, "time" if n % 2 else "file") for n, text in enumerate(texts)]
    once = filter_rows(rows, CONTRACTS, embed, POLICY)
    assert filter_rows(once, CONTRACTS, embed, POLICY) == once
    mixed = list(rows)
    shuffle.shuffle(mixed)
    again = filter_rows(mixed, CONTRACTS, embed, POLICY)
    assert sorted(again, key=lambda r: r["index"]) == once


# usearch builds its graph with threads, whose order decides what it reaches: one of 50 was missed
# once on a busy machine.
@cases("exact, most_missed", (10_000, 0), (0, 3), ids=["exact", "usearch"])
def test_planted_copies_point_to_the_text_that_they_copy(exact, most_missed, monkeypatch):
    monkeypatch.setattr(module, "EXACT", exact)
    rng = np.random.default_rng(3)
    first = rng.normal(size=(300, 64))
    copies = first[:50] + 0.01 * rng.normal(size=(50, 64))
    vectors = np.vstack([first, copies]).astype(np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    twins = find_twins(["x"] * len(vectors), vectors, 0.95)
    assert twins[:300] == [None] * 300
    assert all(first in (None, at) for at, first in enumerate(twins[300:]))
    assert twins[300:].count(None) <= most_missed


def test_every_copy_points_to_a_row_that_stays_and_cosines_of_a_file_come_in_batches():
    rng = np.random.default_rng(5)
    walk = np.cumsum(rng.normal(size=(200, 8)), axis=0)  # neighbours alike, ends not
    vectors = (walk / np.linalg.norm(walk, axis=1, keepdims=True)).astype(np.float32)
    twins = find_twins(["x"] * 200, vectors, 0.9)
    for place, first in enumerate(twins):
        if first is not None:
            assert first < place
            assert twins[first] is None
            assert vectors[place] @ vectors[first] >= 0.9 - 1e-6
    pairs = [("read a file", "a file read"), ("", "x"), ("x", " "), ("read", "city")]
    item, *none, last = compute_cosines(pairs, embed, batch=1)
    assert item == 1.0
    assert none == [None, None]
    assert last == compute_cosines([pairs[-1]], embed)[0]
