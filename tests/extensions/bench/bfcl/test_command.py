"""`toolmill bfcl` as a person meets it: rows of calls in, BFCL's verdicts out."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.cli.app import app
from tests.extensions.bench.bfcl.test_bfcl_data import question, truth, write


class Files:
    """Writes values to files and runs `toolmill bfcl` over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, value: Any) -> str:
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)

    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["bfcl", *arguments])


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


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
        ({"id": "x"}, "line 1: found {'id': 'x'}; expected"),
        ({"id": 1, "calls": []}, "line 1: found {'id': 1, 'calls': []}; expected"),
        ({"id": "x", "calls": [7]}, "line 1, call 0: found 7; expected a call"),
        ({"id": "x", "calls": []}, "line 1: no item 'x' in"),
    ],
)
def test_a_bad_row_is_one_line_and_usage(files: Files, row, message):
    folder = write(files.folder / "d", "BFCL_v4_irrelevance.json", [question("irrelevance_0")])
    calls = files.put("calls.jsonl", row)
    done = files.run("--data", str(folder), "--calls", calls, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
