"""`toolmill bfcl` as a person meets it: rows of calls in, BFCL's verdicts out."""

import json
from pathlib import Path

import pytest

from tests.contracts.match.test_match_files import Files
from tests.extensions.bench.bfcl.test_bfcl_data import question, truth, write


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path, "bfcl")


def test_rows_of_calls_get_bfcls_verdicts_in_order(files: Files):
    folder = write(
        files.folder / "data",
        "BFCL_v4_simple_python.json",
        [question("simple_python_0"), question("simple_python_1")],
        [truth("simple_python_0"), truth("simple_python_1", 6)],
    )
    write(folder, "BFCL_v4_irrelevance.json", [question("irrelevance_0")])
    write(folder, "BFCL_v4_memory.json", [])
    right = [{"name": "add", "arguments": {"a": 5}}]
    rows = [
        {"id": "simple_python_1", "calls": right},
        {"id": "irrelevance_0", "calls": []},
        {"id": "simple_python_0", "calls": right},
        {"id": "simple_python_0", "calls": [{"name": "add", "arguments": "x"}]},
        {"id": "irrelevance_0", "calls": right},
    ]
    calls = files.put("calls.jsonl", "\n".join(map(json.dumps, rows)))
    done = files.run("--data", str(folder), "--calls", calls, "--json")
    assert done.exit_code == 0
    assert list(map(json.loads, done.stdout.splitlines())) == [
        {"id": "simple_python_1", "match": False, "error_kind": "wrong_value"},
        {"id": "irrelevance_0", "match": True, "error_kind": None},
        {"id": "simple_python_0", "match": True, "error_kind": None},
        {"id": "simple_python_0", "match": False, "error_kind": "not_an_object"},
        {"id": "irrelevance_0", "match": False, "error_kind": "unwanted_call"},
    ]
    assert done.stderr.splitlines() == [
        "left out: BFCL_v4_memory.json: memory is not judged by AST match of Python calls",
        "2 of 5 rows match",
    ]
    table = files.run("--data", str(folder), "--calls", calls)
    assert table.stdout.splitlines()[:2] == ["simple_python_1  wrong_value", "irrelevance_0  match"]


@pytest.mark.parametrize(
    ("row", "message"),
    [
        ("{", "calls.jsonl, line 1: not JSON"),
        ("\n", "calls.jsonl: empty; expected"),
        ({"id": "x"}, "line 1: found id a text; expected"),
        ({"id": 1, "calls": []}, "line 1: found id a number, calls a list; expected"),
        ({"id": "x", "calls": [7]}, "line 1, call 0: found a number; expected a call"),
        ({"id": "x", "calls": []}, "line 1: no item 'x' in"),
    ],
)
def test_a_bad_row_is_one_line_and_usage(files: Files, row, message):
    folder = write(files.folder / "d", "BFCL_v4_irrelevance.json", [question("irrelevance_0")])
    calls = files.put("calls.jsonl", row)
    done = files.run("--data", str(folder), "--calls", calls, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
