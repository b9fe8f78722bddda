"""`toolmill match` as a person meets it: files in, JSON or a table out, an exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.cli.app import app
from tests.extensions.bench.bfcl.test_bfcl_data import question, truth, write
from tests.support.paths import ROOT
from tests.support.python_process import run_python

SCHEMA = {
    "type": "object",
    "properties": {"a": {"type": "number"}, "note": {"type": "string"}},
    "required": ["a"],
}
CONTRACT = {"name": "t", "inputSchema": SCHEMA}
FUNCTION = {"type": "function", "function": {"name": "t", "parameters": SCHEMA}}
CALL = {"name": "t", "arguments": {"a": 5, "note": "Hello there"}}
SAME = {"name": "t", "arguments": {"note": "hello there.", "a": 5.0}}
OTHER = {"name": "t", "arguments": {"a": "5", "z": 1}}


class Files:
    """Writes values to files and runs the command over them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def put(self, name: str, value: Any) -> str:
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)

    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, ["match", *arguments])

    def match(self, schema: Any, expected: Any, called: Any, *more: str) -> Any:
        given = zip(("schema", "expected", "called"), (schema, expected, called), strict=True)
        options = [
            part for name, one in given for part in (f"--{name}", self.put(f"{name}.json", one))
        ]
        return self.run(*options, *more)


@pytest.fixture
def files(tmp_path: Path) -> Files:
    return Files(tmp_path)


@pytest.mark.parametrize(
    "schema",
    [SCHEMA, CONTRACT, FUNCTION, FUNCTION["function"], [CONTRACT], [FUNCTION], {"t": SCHEMA},
     {"t": CONTRACT}, {"tools": [CONTRACT]}, [{"name": "t"}], {"name": "t", "inputSchema": None}],
)  # fmt: skip
def test_a_schema_is_read_in_every_form_it_comes_in(files: Files, schema):
    done = files.match(schema, CALL, SAME, "--json")
    assert (done.exit_code, done.stderr) == (0, "")
    report = json.loads(done.stdout)
    assert report == {
        "match": True,
        "error_kind": None,
        "per_parameter": {"a": "match", "note": "match"},
        "tool": True,
        "name_f1": 1.0,
        "value_f1": 1.0,
    }


def test_a_call_that_differs_exits_1_and_says_how(files: Files):
    done = files.match(CONTRACT, CALL, OTHER, "--json")
    assert done.exit_code == 1
    report = json.loads(done.stdout)
    assert (report["match"], report["error_kind"]) == (False, "missing_parameter")
    assert report["per_parameter"] == {"a": "wrong_type", "note": "missing", "z": "extra"}


def test_parallel_calls_have_a_verdict_each(files: Files):
    schemas = [CONTRACT, {"name": "u", "inputSchema": {}}]
    expected = [CALL, {"name": "u", "arguments": {}}]
    done = files.match(schemas, expected, [expected[1], SAME], "--json")
    assert done.exit_code == 0
    done = files.match(schemas, expected, [OTHER], "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["match"], report["error_kind"]) == (1, False, "too_few_calls")
    kinds = [(one["name"], one["called"], one["error_kind"]) for one in report["calls"]]
    assert kinds == [("t", 0, "missing_parameter"), ("u", None, "too_few_calls")]


def test_without_json_a_table_is_printed(files: Files):
    one = files.match(CONTRACT, CALL, OTHER)
    assert one.stdout.splitlines() == [
        "a     wrong_type",
        "note  missing",
        "z     extra",
        "no match: missing_parameter (names F1 0.50, values F1 0.00)",
    ]
    several = files.match(CONTRACT, CALL, [SAME, {"name": "\x1b[31m", "arguments": {"\n": 1}}])
    assert several.stdout.splitlines() == [
        "t (expected 0, by call 0): match",
        "  a     match",
        "  note  match",
        "\\u{1b}[31m (called too much, by call 1): too_many_calls",
        "  \\u{a}  extra",
        "no match: too_many_calls (names F1 0.80, values F1 0.80)",
    ]


BFCL_DOC = {"name": "t", "parameters": {"properties": {"a": {"type": "integer"}}, "required": []}}


def test_bfcls_verdict_takes_its_truth_or_an_expected_call(files: Files):
    same = {"name": "t", "arguments": {"a": 5}}
    for expected in (
        same,
        [same],
        {"t": {"a": [5, 6]}},
        [{"t": {"a": [5]}}],
        {"id": "x", "ground_truth": [{"t": {"a": [5]}}]},
    ):
        done = files.match(BFCL_DOC, expected, same, "--bfcl", "--json")
        assert (done.exit_code, json.loads(done.stdout)["match"]) == (0, True)
    done = files.match(BFCL_DOC, same, {"name": "t", "arguments": {"a": 5.0}}, "--bfcl", "--json")
    report = json.loads(done.stdout)
    assert (done.exit_code, report["error_kind"]) == (1, "wrong_type")
    assert report["checker_error"] == "type_error:simple"


def test_where_bfcl_crashes_it_is_told(files: Files):
    done = files.match(CONTRACT, CALL, CALL, "--bfcl", "--json")
    assert (done.exit_code, json.loads(done.stdout)["error_kind"]) == (1, "checker_crash")


def test_values_of_java_are_texts(files: Files):
    long = {"name": "t", "parameters": {"properties": {"a": {"type": "long"}}, "required": []}}
    called = {"name": "t", "arguments": {"a": "5L"}}
    more = ("--bfcl", "--language", "java", "--json")
    assert files.match(long, {"t": {"a": [5]}}, called, *more).exit_code == 0
    done = files.match(long, {"t": {"a": [5]}}, called, "--bfcl", "--language", "cobol")
    assert (done.exit_code, done.stderr) == (
        2,
        "--language cobol: expected python, java, javascript\n",
    )


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
    done = files.run("--bfcl", "--data", str(folder), "--calls", calls, "--json")
    assert done.exit_code == 0
    assert list(map(json.loads, done.stdout.splitlines())) == [
        {"id": "simple_python_1", "match": False, "error_kind": "wrong_value"},
        {"id": "irrelevance_0", "match": True, "error_kind": None},
        {"id": "simple_python_0", "match": True, "error_kind": None},
        {"id": "simple_python_0", "match": False, "error_kind": "not_an_object"},
        {"id": "irrelevance_0", "match": False, "error_kind": "unwanted_call"},
    ]
    assert done.stderr.splitlines() == [
        "left out: BFCL_v4_memory.json: memory is not judged by AST match",
        "2 of 5 rows match",
    ]
    table = files.run("--bfcl", "--data", str(folder), "--calls", calls)
    assert table.stdout.splitlines()[:2] == ["simple_python_1  wrong_value", "irrelevance_0  match"]


@pytest.mark.parametrize(
    ("schema", "expected", "called", "message"),
    [
        ("{", CALL, CALL, "schema.json: not JSON"),
        ("", CALL, CALL, "schema.json: empty; give one JSON value"),
        ([7], CALL, CALL, "schema.json, entry 0: found a number without name and input schema"),
        ("7", CALL, CALL, "schema.json: found a number; expected a tool contract"),
        ([CONTRACT, {"name": "t", "inputSchema": {}}], CALL, CALL,
         "entry 1: a second, other schema of 't'; leave one of them"),
        ([CONTRACT], {"name": "u"}, CALL, "schema.json: no tool 'u', which a call is expected of"),
        (CONTRACT, {"nome": "t"}, CALL, "expected.json: found ['nome'], no name; expected a call"),
        (CONTRACT, [CALL, 7], CALL, "expected.json, entry 1: found a number; expected a call"),
        (CONTRACT, {"name": "t", "arguments": "{}"}, CALL, "expected.json: arguments are a text"),
        (CONTRACT, CALL, "[" * 5_000, "called.json: not JSON (nested too deep to be read)"),
        (CONTRACT, CALL, {"name": 7}, "called.json: found name a number; expected a call"),
        (CONTRACT, CALL, '{"name": "t", "name": "u"}', "not JSON ('name' stands twice"),
    ],
)  # fmt: skip
def test_a_bad_file_is_one_line_and_usage(files: Files, schema, expected, called, message):
    done = files.match(schema, expected, called, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_files_that_cannot_be_opened_or_read_as_text(files: Files):
    done = files.run("--schema", "none.json", "--expected", "e", "--called", "c")
    assert (done.exit_code, done.stderr) == (
        *(2, "none.json: No such file or directory; expected a file that can be read\n"),
    )
    (files.folder / "latin.json").write_bytes(b'"\xe9"')
    path = str(files.folder / "latin.json")
    done = files.run("--schema", path, "--expected", "e", "--called", "c")
    assert "not UTF-8 at byte 1; save it as UTF-8" in done.stderr


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
    done = files.run("--bfcl", "--data", str(folder), "--calls", calls, "--json")
    assert (done.exit_code, done.stdout) == (2, "")
    assert message in done.stderr


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "found no --schema and no --expected and no --called"),
        (["--schema", "s"], "found no --expected and no --called"),
        (["--data", "d", "--calls", "c"], "found --data without --bfcl"),
        (["--bfcl", "--data", "d"], "found no --calls"),
        (["--schema", "s", "--data", "d"], "found options of both forms"),
    ],
)
def test_options_that_do_not_go_together_are_usage(files: Files, arguments, message):
    done = files.run(*arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(f"{message}; usage: toolmill match --schema S")


def test_the_command_is_one_of_toolmills(files: Files):
    paths = [files.put(f"{i}.json", one) for i, one in enumerate((CONTRACT, CALL, SAME))]
    options = ["--schema", paths[0], "--expected", paths[1], "--called", paths[2], "--json"]
    done = run_python("-m", "orchestration", "match", *options, cwd=ROOT)
    assert (done.returncode, json.loads(done.stdout)["match"]) == (0, True)
