"""Look-alike tools: clusters that no chain swallows, twins that are no negatives."""

import json
import random
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract, contract_digest, tool_text
from assets.vectors import confusable_table, defs
from tests.synthesis.contracts import make_tool
from tests.vectors.conftest import WordEmbedder

Json = Any


def tool(name: str, about: str = "", required: tuple[str, ...] = (), **extra: Json) -> Json:
    properties = {item: {"type": "string"} for item in required} | extra.pop("properties", {})
    return canonicalize_contract({**make_tool(name, about, properties, *required), **extra})


def row(server: str, made: Json, market: str = "registry") -> Json:
    return {
        "marketplace": market, "server_id": server, "tool": made["name"],
        "contract_digest": contract_digest(made), "contract": json.dumps(made),
    }  # fmt: skip


def found_in(rows: list[Json]) -> list[Json]:
    matrix = WordEmbedder().embed([tool_text(json.loads(item["contract"])) for item in rows])
    confusables = confusable_table.find_confusables(rows, matrix)
    confusable_table.CONFUSABLES.frame(confusables)
    return confusables


READ = tool("read_file", "Read one text file from the disk", ("path",))
GITHUB = tool("create_issue", "Open an issue in a GitHub repository", ("owner", "repo"))
LINEAR = tool("createIssue", "Open an issue in a Linear team", ("teamId",))
CLOCK = tool("get_time", "Tell the time in a city", ("city",))
LISTED = [
    row("npm:a/files", READ),
    row("npm:b/files", tool("readFile", "read one text  file from the disk.", ("path",))),
    row("npm:x/github-mcp", GITHUB),
    row("npm:y/linear-mcp", LINEAR),
    row("npm:z/clock", CLOCK),
]


def test_twins_and_confusables_are_told_apart_and_one_server_or_tool_makes_no_pair():
    rows = [*LISTED, row("npm:c/files", READ)]
    made = found_in(rows)
    kinds = {(item["server_id"], item["other_server_id"]): item["kind"] for item in made}
    assert kinds[("npm:x/github-mcp", "npm:y/linear-mcp")] == "confusable"
    assert kinds[("npm:a/files", "npm:c/files")] == "twin"
    assert not any("npm:z/clock" in pair for pair in kinds)
    (issue,) = [item for item in made if item["server_id"] == "npm:x/github-mcp"]
    assert issue["same_name"]
    assert found_in([row("npm:a", READ), row("npm:a", READ, "glama")]) == []
    beside = tool("read_files", READ["description"])
    assert found_in([row("npm:a", READ), row("npm:a", beside)]) == []
    with pytest.raises(ValueError, match="1 rows but 0 vectors"):
        confusable_table.find_confusables([row("npm:a", READ)], np.zeros((0, 4), np.float32))
    assert confusable_table.find_confusables([], np.zeros((0, 4), np.float32)) == []


def test_copies_and_chains_of_likeness_make_clusters_of_bounded_size():
    made = found_in([row(f"npm:s{i:03}", READ) for i in range(200)])
    assert len(made) == 199
    assert {(item["cluster_tools"], item["server_id"], item["kind"]) for item in made} == {
        (200, "npm:s000", "twin")
    }
    angles = np.arange(60) * 0.3  # neighbours at 17 degrees (0.955), those after at 34 (0.825)
    matrix = np.stack([np.cos(angles), np.sin(angles)], 1).astype(np.float32)
    clusters = confusable_table.build_clusters(matrix, [f"n{i}" for i in range(60)])
    assert clusters
    for places in clusters:
        alike = confusable_table.compute_cosines(matrix[places], matrix[places])
        assert alike.min() >= confusable_table.ALIKE
    matrix = draw_matrix(3, 90, 16)
    clusters = confusable_table.build_clusters(matrix, ["search"] * 90)
    assert max(map(len, clusters)) == confusable_table.CAP
    assert len({place for places in clusters for place in places}) >= 80


def test_a_description_that_everybody_has_makes_nobody_alike():
    names = ["alpha", "beta", "gamma", "delta", "eta", "theta", "iota", "kappa", "mu", "nu"]
    description = "Description not available here at all, please look it up in the manual pages"
    rows = [
        row(f"npm:s{i}", tool(names[i % 10] + "er" * (i // 10), description)) for i in range(40)
    ]
    assert all(item["cosine"] >= confusable_table.TWIN for item in found_in(rows))
    # The same words of ten servers only are a description like any other.
    assert any(item["cosine"] < confusable_table.TWIN for item in found_in(rows[:10]))


def draw_matrix(seed: int, *size: int) -> np.ndarray:
    matrix = np.random.default_rng(seed).normal(size=size).astype(np.float32)
    return matrix / np.linalg.norm(matrix, axis=1, keepdims=True)


def test_blocks_give_what_one_product_gives(monkeypatch):
    matrix = draw_matrix(5, 300, 6)
    names = [f"n{i % 120}" for i in range(300)]
    whole = confusable_table.build_clusters(matrix, names)
    monkeypatch.setattr("assets.vectors.confusable_table._ROWS", 7)
    monkeypatch.setattr("assets.vectors.confusable_table._COLUMNS", 11)
    assert confusable_table.build_clusters(matrix, names) == whole


@given(st.integers(0, 99))
@settings(max_examples=15, deadline=None)
def test_the_order_of_the_rows_decides_nothing(seed):
    rows = [*LISTED, *(row(f"npm:m{i}", READ, "glama") for i in range(4))]
    random.Random(seed).shuffle(rows)
    assert found_in(rows) == found_in(sorted(rows, key=lambda item: item["server_id"]))


def pair(one: str, other: str, kind: str, cosine: float) -> Json:
    return {"contract_digest": one, "other_digest": other, "kind": kind, "cosine": cosine}


def test_hard_negatives_are_near_and_never_twins_of_twins():
    rows = [
        pair("a", "a2", "twin", 1.0),
        pair("a2", "a3", "twin", 0.98),
        pair("a", "b", "confusable", 0.9),
        pair("a", "c", "confusable", 0.95),
        pair("a", "a3", "confusable", 0.9),
    ]
    assert confusable_table.list_hard_negatives(rows) == {
        "a": ["c", "b"], "a2": ["c", "b"], "a3": ["c", "b"], "b": ["a"], "c": ["a"],
    }  # fmt: skip
    assert confusable_table.list_hard_negatives(rows, most=1)["a"] == ["c"]
    assert confusable_table.list_hard_negatives([]) == {}


@given(st.lists(st.tuples(*[st.sampled_from("abcdefgh")] * 2, st.booleans(), st.floats(0, 1))))
def test_no_negative_is_a_twin_whatever_the_rows(drawn):
    rows = [
        pair(a, b, "twin" if same else "confusable", near) for a, b, same, near in drawn if a != b
    ]
    twins = {(r["contract_digest"], r["other_digest"]) for r in rows if r["kind"] == "twin"}
    for one, negatives in confusable_table.list_hard_negatives(rows).items():
        assert one not in negatives
        assert not any((one, other) in twins or (other, one) in twins for other in negatives)


def test_the_figures_count_tools_clusters_and_pairs():
    made = found_in(LISTED)
    figures = defs.compute_figures(made, LISTED)
    assert (figures["tools"], figures["clusters"]) == (5, len({item["cluster"] for item in made}))
    assert (figures["with_a_twin"], figures["with_a_confusable"]) == (2, 2)
    assert defs.compute_figures([], [])["largest_cluster"] == 0
