"""An index of a file of servers, questions to it, and a release as a folder of its own."""

import json
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from typer.testing import CliRunner

from assets.vectors.encoders.minilm import GENERAL_WEIGHTS, read_recipe
from orchestration.cli.app import app, one_line_errors
from serving.adhoc import read_source
from serving.export import BadExport, NoExport, check_export, export_release
from serving.index.folder import load_index, read_served_version
from tests.support.cases import cases
from warehouse.errors import UnusableInput
from warehouse.llm.chat import write_wire_name

CLOCK = {
    "qualified_name": "@clock/world",
    "display_name": "World clock",
    "overview": "Times and zones of cities",
    "tags": ["time"],
    "tools": [
        {
            "name": "get_time",
            "description": "Tell the time in a city",
            "inputSchema": {"type": "object", "properties": {"city": {"type": "string"}}},
        },
        {"name": "list_zones", "description": "List all time zones"},
    ],
}
MAIL = {
    "server_id": "npm:mail",
    "description": "Mail",
    "tools": [{"name": "send_email", "description": "Send an email to somebody"}],
}
HEAVY = ("dagster", "torch", "polars", "lancedb", "pandas", "pyarrow", "onnx", "openai")


def written(path: Path, *servers: object) -> Path:
    path.write_text("".join(json.dumps(server) + "\n" for server in servers))
    return path


def run(*arguments: object) -> tuple[int, str, str]:
    """Exit code, stdout, stderr of the command, errors told as `toolmill` tells them."""
    done = CliRunner().invoke(app, [str(part) for part in arguments])
    if done.exception is not None and not isinstance(done.exception, SystemExit):
        with pytest.raises(SystemExit) as ended, one_line_errors():
            raise done.exception
        return int(str(ended.value.code)), done.stdout, str(done.exception)
    return done.exit_code, done.stdout, done.stderr


def test_the_shipped_retriever_is_the_default_and_embeds_only_what_is_new(adhoc, index, tmp_path):
    weights = read_recipe()["files"][GENERAL_WEIGHTS]
    held = load_index(index, read_served_version(index))
    assert held.embedder == f"minilm-l6-v2/128+{weights[:16]}"
    out = run("index", adhoc[0], "--out", tmp_path / "plain", "--embedder", "minilm")[1]
    assert json.loads(out)["embedder"] == "minilm-l6-v2/128"
    before = read_served_version(index)
    report = json.loads(run("index", adhoc[0], "--out", index)[1])
    assert (report["version"], report["embedded"]) == (before, 0)
    held = load_index(index, before)
    clock, mail = held.servers
    assert (clock.name, mail.name) == ("World clock", "mail")
    assert "zones of cities" in clock.description
    assert "time" in clock.description.splitlines()
    weather = {"name": "weather", "tools": [{"name": "forecast", "description": "Tell the rain"}]}
    servers = written(tmp_path / "more.jsonl", CLOCK, MAIL, weather)
    report = json.loads(run("index", servers, "--out", index)[1])
    assert 0 < report["embedded"] <= len(held.views)
    assert report["version"] == read_served_version(index) != before


def test_an_answer_has_hits_with_reasons_or_is_given_as_an_api_takes_it(index):
    code, out, _ = run("search", "--index", index, "which hour is it in Paris?", "--json", "-k", 2)
    answer = json.loads(out)
    assert (code, len(answer["hits"])) == (0, 2)
    assert answer["hits"][0]["tool_id"] == "@clock/world::get_time"
    assert answer["hits"][0]["why"]["scores"]
    assert answer["index"] == read_served_version(index)
    assert answer["ms"] > 0
    asked = ("--server", "mailing", "--tool", "sends a letter", "--json")
    answer = json.loads(run("search", "--index", index, *asked)[1])
    assert answer["hits"][0]["tool_id"] == "npm:mail::send_email"
    asked = ("search", "--index", index, "--tool", "sends a letter", "-k", 1)
    answer = json.loads(run(*asked, "--native", "anthropic", "--call-id", "toolu_1")[1])
    assert answer["item"]["tool_use_id"] == "toolu_1"
    assert answer["tool_ids"] == {write_wire_name("npm:mail::send_email"): "npm:mail::send_email"}
    assert "known: anthropic, openai, openai-strict, gemini" in run(*asked, "--native", "x")[2]
    code, _, err = run("search", "--index", index, "--queries", index, "--native", "openai")
    assert (code, "leave out --queries" in err) == (2, True)


@cases("strategy", "ours", "mcp-zero", "dense", "bm25", "rrf")
def test_queries_of_a_file_are_answered_in_order(index, tmp_path, strategy):
    rows = [{"instruction": "send an email"}, {"instruction": "time zones list"}]
    asked = written(tmp_path / "q.jsonl", *rows)
    chosen = ("--strategy", strategy, "-k", 1, "--json")
    code, out, _ = run("search", "--index", index, "--queries", asked, *chosen)
    rows = [json.loads(line) for line in out.splitlines()]
    first = [row["hits"][0]["tool_id"] for row in rows]
    assert (code, first) == (0, ["npm:mail::send_email", "@clock/world::list_zones"])
    assert all(len(row["hits"]) == 1 and row["ms"] > 0 for row in rows)


@cases("strategy", "ours", "mcp-zero")
def test_a_row_may_say_what_server_and_tool_it_wants(index, tmp_path, strategy):
    expected = {"server": "a mailing service", "tool": "sends a letter"}
    rows = [expected, {"tool": "sends a letter"}, {"instruction": "x"}]
    asked = written(tmp_path / "q.jsonl", *rows)
    chosen = ("--index", index, "--strategy", strategy, "--json")
    code, out, _ = run("search", *chosen, "--queries", asked)
    both, tool, _ = [json.loads(line) for line in out.splitlines()]
    alone = json.loads(run("search", *chosen, *(f"--{k}={v}" for k, v in expected.items()))[1])
    assert code == 0
    assert [hit["score"] for hit in both["hits"]] == [hit["score"] for hit in alone["hits"]]
    if strategy == "mcp-zero":  # of two servers, `ours` knows only which of them is nearer
        assert [hit["score"] for hit in both["hits"]] != [hit["score"] for hit in tool["hits"]]


@cases("row", {}, {"tool": 3}, {"instruction": None, "server": None})
def test_a_row_that_asks_nothing_is_named_by_its_line(index, tmp_path, row):
    asked = written(tmp_path / "q.jsonl", {"instruction": "time"}, row)
    code, out, err = run("search", "--index", index, "--queries", asked)
    assert (code, out) == (2, "")
    assert "line 2" in err
    assert "`instruction`, `server` or `tool`" in err


def test_a_query_without_words_is_told_in_its_place(index, tmp_path):
    rows = [{"instruction": text} for text in ("time", " ", "mail")]
    asked = written(tmp_path / "q.jsonl", *rows)
    code, out, err = run("search", "--index", index, "--queries", asked, "--json")
    rows = [json.loads(line) for line in out.splitlines()]
    assert code == 1
    assert "1 of 3 queries" in err
    assert [bool(row["hits"]) for row in rows] == [True, False, True]
    assert "the query is empty" in rows[1]["error"]


@cases(
    "arguments, code, message",
    (("search", "--index", "{at}", "x", "-k", "0"), 2, "k is 0; expected 1 to 1,000"),
    (("search", "--index", "{at}", "x", "-k", "10000"), 2, "expected 1 to 1,000"),
    (("search", "--index", "{at}", " "), 2, "the query is empty"),
    (("search", "--index", "{at}"), 2, "give one of"),
    (("search", "--index", "{at}", "x", "--strategy", "best"), 2, "known: ours"),
    (("search", "--index", "{at}/none", "x"), 2, "toolmill index SERVERS.jsonl --out DIR"),
    (("search", "--index", "{at}/q", "x"), 2, "q: is a file; give the folder"),
    (("search", "--index", "{at}", "--queries", "{at}/none"), 2, "No such file"),
    (("search", "--index", "{at}", "--queries", "{at}/empty"), 2, "no row in it"),
    (("serve", "--place", "{at}", "--port", "8931"), 2, "--port goes with --http"),
    (("index", "{at}/q", "--out", "{at}/new", "--retriever", "{at}"), 2, "no LoRA adapter"),
    (("serve", "--place", "{at}", "--http", "--port", "99999"), 2, "equal to 65535"),
    (("index", "{at}/none", "--out", "{at}/new"), 2, "No such file"),
    (("index", "{at}/ok", "--out", "{at}/q"), 2, "q: File exists; name a folder that"),
    (("index", "{at}/q", "--out", "{at}/new"), 2, "no tools found; expected a server a line"),
    (("index", "{at}/q", "--out", "{at}/new", "--embedder", "foo"), 2, "'foo'"),
)
def test_bad_input_is_one_error_that_names_the_mend(index, arguments, code, message):
    (index / "q").write_text('{"name": "nobody"}\n')
    written(index / "ok", MAIL)
    (index / "empty").write_text("\n")
    result = run(*(part.replace("{at}", str(index)) for part in arguments))
    assert result[0] == code, result
    assert message in result[2], result
    assert result[1] == ""
    assert not (index / "new" / "router").exists()


def test_an_export_goes_to_an_empty_folder_alone_and_a_changed_file_is_named(index, tmp_path):
    with pytest.raises(UnusableInput, match="not empty"):
        export_release(index, index)
    export_release(index, tmp_path / "release")
    [tools] = (tmp_path / "release").rglob("tools.jsonl")
    tools.write_text("{}\n")
    with pytest.raises(BadExport, match=r"1 of \d+ files are not as exported, first router"):
        check_export(tmp_path / "release")
    with pytest.raises(NoExport, match="release export"):
        check_export(index)
    (tmp_path / "file").write_text("")
    with pytest.raises(NoExport, match="file: is not a folder"):
        check_export(tmp_path / "file")


def test_an_exported_release_is_searched_and_served_without_the_platform(index, tmp_path):
    manifest = export_release(index, tmp_path / "release")
    assert (manifest["tools"], manifest["servers"]) == (3, 2)
    shutil.rmtree(index)
    source = f"""
import sys
class Absent:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {HEAVY!r}:
            raise ModuleNotFoundError(name, name=name.partition(".")[0])
sys.meta_path.insert(0, Absent())
import orchestration.cli.app, orchestration.settings.deploy_policy, assets.servers.calls.caller
import serving.meta.transports, serving.meta.http_limits
place = {str(tmp_path / "release")!r}
sys.argv = ["toolmill", "search", "--index", place, "send an email", "--json"]
orchestration.cli.app.main()
"""
    done = subprocess.run([sys.executable, "-c", source], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["hits"][0]["tool_id"] == "npm:mail::send_email"


def test_a_command_of_the_platform_says_what_it_lacks(tmp_path):
    source = (
        "import sys; sys.modules['polars'] = None\n"
        "import orchestration.cli.app as cli; sys.argv = ['toolmill', 'export', '--format=hf']\n"
        "cli.main()"
    )
    environment = {"TOOLMILL_HOME": str(tmp_path), "PATH": "/usr/bin:/bin"}
    command = [sys.executable, "-c", source]
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert (done.returncode, done.stdout) == (2, "")
    assert "pip install 'toolmill[platform]'" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_an_index_that_cannot_be_read_is_made_again(adhoc, index):
    version = read_served_version(index)
    (index / "router" / version / "tools.jsonl").write_text("{}\n")
    assert "toolmill index" in run("search", "--index", index, "send an email")[2]
    report = json.loads(run("index", adhoc[0], "--out", index)[1])
    assert (report["version"], report["embedded"]) == (version, 0)
    assert run("search", "--index", index, "send an email")[0] == 0


def test_a_server_without_a_name_and_a_tool_that_stands_twice_are_told(tmp_path):
    nameless, unverified = {"tools": MAIL["tools"]}, {**CLOCK, "unverified": True}
    path = written(tmp_path / "s.jsonl", nameless, MAIL, unverified, MAIL)
    source, skipped = read_source(path)
    marked = ("unverified",)
    marks = [("send_email", None), ("get_time", marked), ("list_zones", marked)]
    assert [(row["tool"], row.get("flags")) for row in source.rows] == marks
    assert skipped == [
        f"{path}, line 1: a server without qualified_name, server_id and name",
        "npm:mail::send_email stands more than once; the last is kept",
    ]
