"""What the shipped retriever may learn from: fit sides of servers that are asked, within caps."""

import json
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import pytest

from assets.contracts.canonical import tool_text
from assets.contracts.tool_id import ToolId
from assets.synthesis.verify.pair_checks import find_form_flaws
from benchmarks.retriever_fit.__main__ import collect_data, digest_data, train_recipe
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
from benchmarks.router_fit.sets import FIT, HELD, QuerySet, Request
from tests.support.paths import ROOT
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
    asked = [
        Request(f"please do {of} of {at}, {n}", (f"s{at}::t{of}",), HELD if at % 2 else FIT)
        for at in range(servers)
        for of in range(tools)
        for n in range(each)
    ]
    return QuerySet("sealtools", tuple(listed), tuple(asked))


def test_nothing_of_a_test_side_is_learnt_not_even_as_a_negative():
    rows, pool = make_rows(make_set(), Recipe())
    seen = {row["positive"] for row in rows}
    seen |= {tool_text(held["contract"]) for held in pool.values()}
    assert len(select_teachable_rows(rows)[0]) == len(rows) == 4 * 3 * 3
    assert all(int(text.split(" of ")[1].split()[0]) % 2 == 0 for text in seen)
    assert not any(" of 8" in text for text in seen)


def test_both_views_of_a_tool_are_right_and_its_negatives_are_others():
    rows, pool = make_rows(make_set(), Recipe())
    tools = collect_tools(rows, pool)
    assert {row["contract_digest"].rpartition(":")[2] for row in rows} == {"full", "brief"}
    for row, right in zip(rows, list_right_texts(rows, {}, tools), strict=True):
        near = {tools[name].text for name in json.loads(row["negatives"])}
        assert 0 < len(near) <= Recipe().near
        assert row["positive"] in right
        assert not near & right


def test_caps_hold_and_the_draw_is_the_same_every_time():
    recipe = replace(Recipe(), cap=10, pairs_a_tool=1)
    rows, _ = make_rows(make_set(), recipe)
    assert 0 < len(rows) <= 10
    assert len({row["contract"]["description"] for row in rows}) == len(rows)
    requests = make_set().requests
    drawn = draw_requests(requests, recipe, "sealtools")
    assert drawn == draw_requests(requests[::-1], recipe, "sealtools")
    assert not draw_requests([Request("x" * 601, ("s0::t0",))], recipe, "sealtools")


def test_folds_leave_every_learnt_set_out_once_and_families_whole():
    assert sorted([*FOLDS[0], *FOLDS[1]]) == sorted(LEARNT)
    families = [{name.partition("-")[0] for name in fold} for fold in FOLDS]
    assert not families[0] & families[1]


@pytest.fixture
def data(tmp_path: Path) -> Path:
    """A folder of one small set, as `make retriever` takes it."""
    made, folder = make_set(), tmp_path / "data" / "retrieval" / "sealtools"
    folder.mkdir(parents=True)
    (folder / "servers.jsonl").write_text("".join(json.dumps(s) + "\n" for s in made.servers))
    asked = [
        {"instruction": r.text, "tool_ids": list(r.gold), "split": r.side} for r in made.requests
    ]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in asked))
    return tmp_path / "data"


@pytest.mark.slow
def test_a_small_build_is_repeatable(data, tmp_path):
    settings = replace(Recipe().settings, tools=6, epochs=1)
    recipe = replace(Recipe(), sets=("sealtools",), listed=(), settings=settings)
    assert digest_data(*collect_data(recipe, data)) == digest_data(*collect_data(recipe, data))
    folders = [train_recipe(recipe, data, tmp_path / one, 1)[0] for one in "ab"]
    first, again = ((at / "adapter_model.safetensors").read_bytes() for at in folders)
    assert first == again


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
    asked = {"tool_id": "s0::read_invoice", "kind": "direct"}
    (tmp_path / "corpus" / "pairs_A0.jsonl").write_text(json.dumps(asked) + "\n")
    return tmp_path


def test_listed_pairs_are_of_servers_that_nothing_is_tested_on(listed):
    rows, pool = make_listed_rows(DESCRIPTIONS, listed, Recipe())
    texts = " ".join(f"{row['instruction']} {row['contract']['description']}" for row in rows)
    seen = {at for at in range(20) if f"group {at}" in texts or f"depot {at}" in texts}
    learnt = {at for at in range(1, 20) if split_of(f"s{at}") != TEST}
    assert seen == learnt
    assert not any("Deploy" in row["instruction"] for row in rows)
    copies = [row for row in rows if row["contract"]["name"] == "read_copy"]
    assert len(copies) == 1
    assert select_teachable_rows(rows)[1] == {}
    tools = collect_tools(rows, pool)
    for row, right in zip(rows, list_right_texts(rows, {}, tools), strict=True):
        near = {tools[key].text for key in json.loads(row["negatives"])}
        assert row["positive"] in right
        # What is near a copied tool are its copies, which are no negatives.
        assert near - right or row["contract"]["name"] == "read_copy"
    assert make_listed_rows(DESCRIPTIONS, listed, Recipe())[0] == rows


def test_a_described_tool_is_found_without_its_description(listed):
    rows, pool = make_listed_rows(DESCRIPTIONS, listed, Recipe())
    for row in rows:
        assert row["instruction"] not in row["positive"]
        assert "Needs a key" not in row["instruction"]
        assert row["positive"].splitlines()[1:], "its parameters are left"
    assert all(not held["contract"]["description"] for held in pool.values())


def test_written_requests_pass_the_form_checks_and_none_asks_a_test_server():
    written = read_written()
    texts = [text.casefold() for row in written for text in row["requests"].values()]
    assert len(texts) == len(set(texts)) > 4_000
    styles = {style for row in written for style in row["requests"]}
    assert styles == {"ask", "question", "goal", "detailed", "step", "terse"}
    servers = {ToolId.parse(row["tool_id"]).server_id for row in written}
    assert not [server for server in servers if split_of(server) == TEST]
    for row in written[::10]:  # all of them pass, which takes two seconds
        tool = ToolId.parse(row["tool_id"])
        for text in row["requests"].values():
            assert not [*find_form_flaws({"name": tool.tool}, text, tool.server_id)], text


def test_requests_of_the_grammar_are_kept_and_none_asks_a_test_server(listed):
    made = read_written(GRAMMAR)
    tools = [ToolId.parse(row["tool_id"]) for row in made]
    assert len(made) == len(set(tools)) > 1_300
    assert not [tool for tool in tools if split_of(tool.server_id) == TEST]
    servers = [json.loads(line) for line in (listed / "smithery" / "servers.jsonl").open()][1:3]
    asked = [
        {"tool_id": f"s{at}::{name}", "requests": {"offline": f"{name} of {at}"}}
        for at, name in ((1, "read_invoice"), (2, "read_parcel"), (9, "read_parcel"))
    ]
    rows, pool = join_offline(servers, asked, Recipe())
    assert {row["instruction"] for row in rows} == {"read_invoice of 1", "read_parcel of 2"}
    near = {
        pool[key]["contract"]["description"] for row in rows for key in json.loads(row["negatives"])
    }
    assert any("group 2" in one or "depot 1" in one for one in near)


def test_a_written_request_is_told_apart_from_siblings_alone(listed):
    servers = [json.loads(line) for line in (listed / "smithery" / "servers.jsonl").open()][1:3]
    written = [
        {"tool_id": "s1::read_invoice", "requests": {"ask": "What did group 1 pay?"}},
        {"tool_id": "s1::read_gone", "requests": {"ask": "A tool that is listed no more"}},
        {"tool_id": "s9::read_parcel", "requests": {"ask": "A server that is left out"}},
    ]
    rows, pool = join_written(servers, written, Recipe())
    assert [row["instruction"] for row in rows] == ["What did group 1 pay?"]
    near = [pool[key]["contract"] for key in json.loads(rows[0]["negatives"])]
    names = {tool["name"] for tool in servers[0]["tools"]} - {"read_invoice"}
    assert near
    assert {one["name"] for one in near} <= names
    assert not any("group 2" in one["description"] for one in near)


def test_without_the_sets_one_error_names_the_folder_and_the_variable(tmp_path):
    done = subprocess.run(
        [sys.executable, "-m", "benchmarks.retriever_fit", "--data", str(tmp_path / "none")],
        capture_output=True,
        text=True,
        cwd=ROOT,
    )
    assert (done.returncode, done.stdout) == (1, "")
    assert len(done.stderr.splitlines()) == 1
    assert f"{tmp_path / 'none'} has no folder retrieval" in done.stderr
    assert "make retriever SETS=DIR" in done.stderr
