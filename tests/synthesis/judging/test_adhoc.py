"""`toolmill judge`: files in, one verdict per row, in order; and the corpus."""

import json
import os
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.synthesis.judging.adhoc import (
    CandidatePair,
    judge_rows,
    read_rows,
    read_tools,
    verify_rows,
)
from assets.synthesis.policy import SynthesisPolicy
from tests.support.cases import cases
from tests.support.command import run_python
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.support.paths import ROOT
from tests.synthesis.contracts import CITY_TIME, READ_FILE
from tests.synthesis.judging.test_judge import a_model, opinion
from tests.vectors.conftest import WordEmbedder
from warehouse.errors import UnusableInput

Json = Any
SHARED = ROOT.parent / "shared" / "data"
POLICY = SynthesisPolicy()
ROWS = [
    {"tool_id": "@a/time::get_current_time", "instruction": "What time is it in Tokyo?",
     "arguments": {"timezone": "Asia/Tokyo"}, "flaw": "wrong_type", "judge_score": 1},
    {"tool_id": "@a/files::read_text_file", "instruction": "Open my notes.",
     "arguments": {"path": "/home/me/notes.md"}},
    {"tool_id": "@a/time::get_current_time", "instruction": "What time is it in Tokyo?",
     "arguments": {"timezone": 9}},
    {"tool_id": "@a/none::nothing", "instruction": "Hello?", "arguments": {}},
    {"tool_id": "@a/odd::broken", "instruction": "Hello?", "arguments": {}},
]  # fmt: skip


WORDS = WordEmbedder()
WORDS.dim = 512
bag_of_words = WORDS.embed


def write(path: Path, rows: list) -> Path:
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    servers = [
        {"qualified_name": "@a/time", "tools": [CITY_TIME, {"name": None}, "odd"]},
        {"qualified_name": "@a/files", "tools": [READ_FILE]},
        {"qualified_name": "@a/odd", "tools": [{"name": "broken", "inputSchema": 7}]},
        {"qualified_name": "@a/none", "tools": None},
    ]
    return write(tmp_path / "servers.jsonl", servers)


@pytest.fixture
def pairs(tmp_path: Path) -> Path:
    return write(tmp_path / "p.jsonl", ROWS)


def test_one_verdict_per_row_in_order_and_labels_are_not_read(tools, pairs):
    rows, contracts = read_rows(pairs), read_tools(tools)
    assert vars(rows[0]).keys() == {"tool_id", "instruction", "arguments"}
    result = verify_rows(rows, contracts, bag_of_words, POLICY)
    assert [item["tool_id"] for item in result] == [row["tool_id"] for row in ROWS]
    assert [o["verdict"] for o in result] == ["accept", "unsure", "reject", "reject", "reject"]
    assert result[3]["flaws"] == ["unknown_tool"]
    assert result[4]["flaws"] == ["unusable_tool"]
    assert {item["score"] for item in result} == {None}
    assert all(bool(item["reasons"]) == bool(item["flaws"]) for item in result)


def alike(texts: Any) -> np.ndarray:
    return np.ones((len(texts), 1), np.float32)


def test_a_request_as_near_to_the_description_as_can_be_is_refused(tools):
    timezone = {"timezone": "Asia/Tokyo"}
    candidate = CandidatePair("@a/time::get_current_time", "Is it late in Tokyo?", timezone)
    lenient = SynthesisPolicy(copies_above=1.0)
    unlike, result, permitted = (
        verify_rows([candidate], read_tools(tools), embed, policy)[0]
        for embed, policy in ((bag_of_words, POLICY), (alike, POLICY), (alike, lenient))
    )
    assert (unlike["verdict"], permitted["verdict"]) == ("accept", "accept")
    assert (result["verdict"], result["flaws"]) == ("reject", ["copies_description"])
    assert "cosine" in result["reasons"][0]


def test_rules_come_first_and_the_offline_judge_says_what_it_is(tools, pairs, offline):
    result = judge_rows(read_rows(pairs), read_tools(tools), bag_of_words, offline, POLICY)
    assert [o["verdict"] for o in result] == ["accept", "reject", "reject", "reject", "reject"]
    assert result[0]["score"] >= 6 > result[1]["score"]
    assert [item.get("judge") for item in result] == ["offline:rules"] * 2 + [None] * 3


def test_a_model_judges_what_the_rules_left_and_sees_the_tools_beside(tools, pairs, ledger):
    with openai_endpoint(lambda *_: Say(opinion(7))) as served:
        llm = a_model(served.url, ledger)
        result = judge_rows(read_rows(pairs), read_tools(tools), bag_of_words, llm, POLICY)
        assert len(served.requests) == 2
    assert [o["verdict"] for o in result] == ["accept", "accept", "reject", "reject", "reject"]
    assert result[1]["judge"] == "model:m"
    assert result[1]["reasons"][-1] == "because"
    assert "wrong_type" not in json.dumps(served.requests)


def test_a_judge_without_an_answer_leaves_the_row_unsure_and_says_why(tools, pairs, ledger):
    with openai_endpoint(lambda *_: Say("no", status=400)) as served:
        llm = a_model(served.url, ledger)
        result = judge_rows(read_rows(pairs), read_tools(tools), bag_of_words, llm, POLICY)
    assert result[0]["verdict"] == "unsure"
    assert "not judged: bad_request" in result[0]["reasons"][-1]
    assert result[0]["reasons"][-1].count("bad_request") == 1


@cases(
    "line, says",
("{oops", "line 1: not JSON"), ("[1]", "line 1: list, expected a JSON object"),
     ("{}", "no tool_id, instruction, arguments"), ("[" * 100_000, "line 1: not JSON"),
     ('{"tool_id": "a::b", "instruction": "x"}', "line 1: no arguments"),
     ('{"tool_id": "a::b", "instruction": 7, "arguments": {}}', "instruction is int"),
     ('{"tool_id": "a::b", "instruction": "x", "arguments": {"n": NaN}}', "NaN is no JSON number"),
     ('{"tool_id": "a::b", "instruction": "x", "arguments": {"n": -Infinity}}', "-Infinity"),
     ("", "no rows"), ("\n\n", "no rows"),
)  # fmt: skip
def test_a_file_of_another_kind_is_named_with_its_line(tmp_path, line, says):
    with pytest.raises(UnusableInput, match=says):
        read_rows(write(tmp_path / "p.jsonl", [line]))


def test_a_file_that_is_not_there_no_text_or_a_folder_is_named(tmp_path):
    for read in (read_rows, read_tools):
        with pytest.raises(UnusableInput, match=r"absent\.jsonl: No such file"):
            read(tmp_path / "absent.jsonl")
        with pytest.raises(UnusableInput, match="directory"):
            read(tmp_path)
        (tmp_path / "bin").write_bytes(b'{"tool_id": "\xff"}')
        with pytest.raises(UnusableInput, match="not UTF-8 at byte 13"):
            read(tmp_path / "bin")
    with pytest.raises(UnusableInput, match="no tools found"):
        read_tools(write(tmp_path / "s.jsonl", [{"qualified_name": "a", "tools": []}]))


def test_a_byte_order_mark_and_line_separators_in_texts_are_no_fault(tmp_path):
    row = {**ROWS[0], "instruction": "What time is it\u2028in Tokyo?"}
    path = tmp_path / "p.jsonl"
    path.write_bytes(b"\xef\xbb\xbf" + json.dumps(row, ensure_ascii=False).encode() + b"\r\n")
    assert read_rows(path)[0].instruction == row["instruction"]


def _toolmill(*arguments: str, cwd: Path) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "PYTHONPATH": str(ROOT), "TOOLMILL_HOME": str(cwd / "home")}
    return run_python("-m", "orchestration", *arguments, cwd=cwd, env=environment)


def test_the_commands_print_a_line_a_row_and_one_line_of_error(tools, pairs, tmp_path):
    done = _toolmill("judge", str(pairs), "--tools", str(tools), cwd=tmp_path)
    assert (done.returncode, done.stderr) == (0, "")
    printed = [json.loads(line) for line in done.stdout.splitlines()]
    assert [item["tool_id"] for item in printed] == [row["tool_id"] for row in ROWS]
    assert list(printed[0]) == ["tool_id", "verdict", "flaws", "score", "reasons", "judge"]
    assert not (tmp_path / "home").exists()
    by_rules, verified = (
        _toolmill(*words, str(pairs), "--tools", str(tools), cwd=tmp_path)
        for words in (("judge", "--rules-only"), ("verify",))
    )
    assert verified.stdout == by_rules.stdout
    pairs.write_text("{oops")
    failed = _toolmill("judge", str(pairs), "--tools", str(tools), "--rules-only", cwd=tmp_path)
    assert (failed.returncode, failed.stdout) == (2, "")
    assert len(failed.stderr.splitlines()) == 1
    assert "line 1: not JSON" in failed.stderr


@pytest.mark.shared
def test_the_labelled_corpus_is_sorted_as_its_labels_say(tmp_path):
    corpus, servers = SHARED / "corpus", SHARED / "smithery" / "servers.jsonl"
    if not corpus.is_dir():
        pytest.skip(f"no development data at {corpus}")
    rows = [json.loads(x) for p in sorted(corpus.glob("*.jsonl")) for x in p.open()]
    value = read_rows(write(tmp_path / "p.jsonl", rows))
    verdicts = verify_rows(value, read_tools(servers), bag_of_words, POLICY)
    counts: dict[str, Counter] = {}
    for row, verdict in zip(rows, verdicts, strict=True):
        counts.setdefault(row["flaw"] or row["kind"], Counter())[verdict["verdict"]] += 1
    for kind in ("wrong_type", "unknown_argument", "missing_required_argument"):
        assert set(counts[kind]) == {"reject"}, kind
    assert counts["names_the_tool"]["reject"] >= 0.95 * counts["names_the_tool"].total()
    for kind in ("missing_required_value", "ungrounded_value"):
        assert counts[kind]["accept"] <= 0.2 * counts[kind].total(), kind
    for kind in ("direct", "detailed"):
        assert counts[kind]["accept"] >= 0.85 * counts[kind].total(), kind
    assert counts["implicit"]["reject"] <= 0.05 * counts["implicit"].total()
