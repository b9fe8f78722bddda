"""`toolmill match` as a person meets it: files in, JSON or a table out, an exit code."""

import json
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from orchestration.cli.app import app
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
    """Writes values to files and runs a command over them."""

    def __init__(self, folder: Path, command: str = "match") -> None:
        self.folder = folder
        self.command = command

    def put(self, name: str, value: Any) -> str:
        path = self.folder / name
        path.write_text(value if isinstance(value, str) else json.dumps(value))
        return str(path)

    def run(self, *arguments: str) -> Any:
        return CliRunner().invoke(app, [self.command, *arguments])

    def match(self, schema: Any, expected: Any, called: Any, *more: str) -> Any:
        inputs = zip(("schema", "expected", "called"), (schema, expected, called), strict=True)
        options = [
            part for name, item in inputs for part in (f"--{name}", self.put(f"{name}.json", item))
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
    kinds = [(item["name"], item["called"], item["error_kind"]) for item in report["calls"]]
    assert kinds == [("t", 0, "missing_parameter"), ("u", None, "too_few_calls")]


def test_without_json_a_table_is_printed(files: Files):
    match = files.match(CONTRACT, CALL, OTHER)
    assert match.stdout.splitlines() == [
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


def test_the_command_is_one_of_toolmills(files: Files):
    paths = [files.put(f"{i}.json", item) for i, item in enumerate((CONTRACT, CALL, SAME))]
    options = ["--schema", paths[0], "--expected", paths[1], "--called", paths[2], "--json"]
    done = run_python("-m", "orchestration", "match", *options, cwd=ROOT)
    assert (done.returncode, json.loads(done.stdout)["match"]) == (0, True)
