"""The command as a person meets it: JSON on stdout, one line on stderr, an exit code."""

import json
import os
import shutil
import subprocess
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest
import typer
from rich.markup import render
from typer.testing import CliRunner

from orchestration.cli.app import app, one_line_errors
from orchestration.runs.nightly import hold_run_lock
from tests.support.cases import cases
from tests.support.command import invoke_toolmill
from tests.support.paths import ROOT
from tests.support.python_process import run_python
from tests.support.untrusted_server import require_sandbox
from warehouse.home import LAYOUT, MARKER, claim_home
from warehouse.ledger.attempts import EffectOutcome
from warehouse.store import Warehouse

# Run before the command: no workers but itself, whose imports are 4 core-seconds.
ALONE = """
from orchestration.runs import processes, workers
processes.warm_up, workers.CORES = processes.silence_warnings, 1
"""
# Run before the command, as who has no thread yet: a namespace of its own, and {mount} in it.
INSIDE = """
import ctypes, os, pathlib, subprocess
users = {"uid_map": f"0 {os.getuid()} 1", "setgroups": "deny", "gid_map": f"0 {os.getgid()} 1"}
libc = ctypes.CDLL(None, use_errno=True)
assert libc.unshare(0x10000000 | 0x20000) == 0, os.strerror(ctypes.get_errno())  # user and mount
for name, text in users.items():
    pathlib.Path("/proc/self", name).write_text(text)
subprocess.run(["sh", "-ec", %r], check=True)
"""


def toolmill(
    *arguments: str, home: Path, before: str = "", **settings: str
) -> subprocess.CompletedProcess[str]:
    environment = {**os.environ, "TOOLMILL_HOME": str(home), **settings}
    run = "import runpy; runpy.run_module('orchestration', run_name='__main__', alter_sys=True)"
    command = ["-c", before + run] if before else ["-m", "orchestration"]
    return run_python(*command, *arguments, env=environment, cwd=ROOT, timeout=120)


def test_settings_are_json_without_secrets_and_a_misspelt_one_or_the_version_is_one_line(tmp_path):
    done = toolmill("settings", home=tmp_path, OPENAI_API_KEY="very-secret")
    assert done.returncode == 0
    assert json.loads(done.stdout)["home"] == str(tmp_path)
    assert "very-secret" not in done.stdout + done.stderr
    done = invoke_toolmill("settings", home=tmp_path, TOOLMILL_BUGDET_USD="1")
    told = "TOOLMILL_BUGDET_USD: no such setting; did you mean TOOLMILL_BUDGET_USD?"
    assert (done.returncode, done.stderr.strip()) == (2, told)
    assert invoke_toolmill("--version", home=tmp_path).stdout == f"{version('toolmill')}\n"


KNOWN = "registry, smithery, glama, pulsemcp, mcpso, mcphub, deepnlp, pipedream, docker, private"


@cases(
    "words, told",
    (("serve", "--new-token", ""), "token name '': expected 1 to 60"),
    (("serve", "--new-token", "a b"), "token name 'a b': expected 1 to 60"),
    (("worlds", "--play", "--check"), "--play does not go with --check"),
    (("run", "--plan", "--server", "x"), "--plan estimates a whole run"),
    (("run", "-m", "nowhere"), f"unknown marketplace 'nowhere'; known: {KNOWN}"),
    (("search", "what time is it", "--json"), "make run"),
)
def test_what_could_not_be_used_later_is_refused_at_once(words, told, tmp_path):
    done = invoke_toolmill(*words, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.strip().splitlines()
    assert told in line


def test_what_is_far_too_long_is_one_line_with_its_beginning(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    for words in (("crawl",), ("evaluate", "--model"), ("search", "x", "--index")):
        done = CliRunner().invoke(app, [*words, "y" * 9_000])
        assert (done.exit_code, done.stdout) == (2, "")
        [line] = done.stderr.splitlines()
        assert ("yyyy" in line, len(line) < 1_000) == (True, True)


@cases(
    "words, named",
    (("search", "x", "--nope"), "--nope"),
    (("search", "x", "--index"), "--index"),
    (("search", "x", "-k", "many"), "-k"),
    (("execute",), "tool_id"),
    (("nope",), "nope"),
    (("serch",), "Did you mean 'search', 'serve', 'bench'? `"),
)
def test_a_usage_error_is_one_line_that_names_the_thing_and_the_help(words, named, tmp_path):
    done = invoke_toolmill(*words, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.strip().splitlines()
    assert named in line
    assert "--help` lists" in line


def test_two_runs_at_once_do_not_share_a_home(tmp_path):
    with hold_run_lock(tmp_path / "state"):
        done = toolmill("run", home=tmp_path, before=ALONE, TOOLMILL_DEMO__BASE_PORT="0")
    assert done.returncode == 1
    assert f"a run is going on (process {os.getpid()})" in done.stderr
    assert not (tmp_path / "tables").exists()


@cases(
    "remount, words, of_sqlite",
    ("", "No space left", "disk is full"),
    pytest.param(
        " && mount -o remount,ro {home}", "Read-only", "Read-only", marks=pytest.mark.slow
    ),
    ids=["full", "read-only"],
)
def test_a_disk_that_cannot_be_written_is_named_with_the_fix(tmp_path, remount, words, of_sqlite):
    home = tmp_path / "home"
    home.mkdir()
    mount = (
        f"mount -t tmpfs -o size=4k,mode=777 none {home}"
        f" && echo '{{\"layout\": {LAYOUT}}}' > {home / MARKER}" + remount.format(home=home)
    )
    shell = ("unshare", "-rm", "sh", "-ec", mount)
    if shutil.which("unshare") is None or subprocess.run(shell).returncode:
        pytest.skip("this host lets nobody mount in a namespace of their own")
    inside = INSIDE % mount + ALONE
    spend = toolmill("spend", home=home, before=inside)
    assert spend.returncode == 1
    assert of_sqlite in spend.stderr
    run = toolmill("run", home=home, before=inside, TOOLMILL_DEMO__BASE_PORT="0")
    assert run.returncode == 1
    assert words in run.stderr
    assert "TOOLMILL_HOME" in run.stderr


@cases("command", ("run",), ("dev",), ("search", "x"), ("serve",), ("spend",))
def test_a_home_of_the_version_before_is_one_line(tmp_path, command):
    (tmp_path / "tables").mkdir()
    done = invoke_toolmill(*command, home=tmp_path)
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.strip().splitlines()
    assert line.startswith(f"{tmp_path}: holds tables, and no home.json")
    assert [path.name for path in tmp_path.rglob("*")] == ["tables"]


SAID = ("--by", "ann", "--why", "it is so")
LOOKS = (
    ("spend",), ("quarantine",), ("release", "list"), ("contract", "history", "npm:x"),
    ("export", "--format", "hf"), ("review",), ("doctor",), ("gc",),
    ("run", "--plan"), ("batch",), ("takedown",), ("reliability",), ("doctor", "--fix"),
    ("release", "list", "served"), ("release", "rollback"), ("champion",),
    ("champion", "retriever", "--approve", *SAID),
    ("execute", "npm:x::y"), ("bench", "needle"),
)  # fmt: skip


@pytest.mark.parametrize("command", LOOKS)
def test_without_a_home_nothing_is_asked_or_made(command, tmp_path):
    done = invoke_toolmill(*command, home=tmp_path / "typo")
    assert (done.returncode, done.stdout) == (2, "")
    [line] = done.stderr.strip().splitlines()
    assert line.startswith(f"{tmp_path / 'typo'}: nothing was made there yet")
    assert list(tmp_path.iterdir()) == []


UNUSABLE = (
    ("probe", "BADTARGET"), ("probe",), ("probe", "--dir", "{none}", "--", "true"),
    ("probe", "npm:x", "--env", "NO_VALUE"), ("probe", "npm:x", "--network", "some"),
    *(("release", "verify", given) for given in ("{none}", "{empty}", "{file}")),
    ("release", "verify", "{empty}", "--sign", "{file}"),
)  # fmt: skip


@pytest.mark.parametrize("command", UNUSABLE)
def test_what_was_given_and_cannot_be_used_is_2_and_leaves_nothing(command, tmp_path):
    given = {name: str(tmp_path / name) for name in ("none", "empty", "file")}
    (tmp_path / "empty").mkdir()
    (tmp_path / "file").write_text("{}")
    words = [word.format_map(given) for word in command]
    done = invoke_toolmill(*words, home=tmp_path / "home")
    assert (done.returncode, done.stdout) == (2, ""), done.stderr
    assert len(done.stderr.strip().splitlines()) == 1
    assert sorted(path.name for path in tmp_path.rglob("*")) == ["empty", "file"]


def test_what_was_spent_is_a_line_a_stage_or_json(tmp_path):
    claim_home(tmp_path)
    ledger = Warehouse(home=tmp_path, state=tmp_path / "state").ledger
    for market in ("glama", "mcpso"):
        paid = EffectOutcome(b"x", "m", 1000, 5, 0.25)
        ledger.once("llm:judge", market, lambda paid=paid: paid, partition=market)
    done = invoke_toolmill("spend", home=tmp_path)
    assert done.returncode == 0
    first, stage = done.stdout.splitlines()
    assert first == "0.5000 USD spent, of 5.00; 0 accepted pairs"
    assert stage.split() == ["llm:judge", "2", "calls", "2,010", "tokens", "0.5000", "USD"]
    done = invoke_toolmill("spend", "--json", home=tmp_path)
    assert json.loads(done.stdout)["spent_usd"] == 0.5


def test_probe_answers_in_json_whatever_the_outcome(tmp_path):
    done = invoke_toolmill("probe", "--dir", str(tmp_path / "none"), "--", "true", home=tmp_path)
    assert done.returncode == 2
    assert "no such folder" in done.stderr
    require_sandbox()
    folder = tmp_path / "mine"
    folder.mkdir(mode=0o755)
    (folder / "server.py").write_text("import sys; sys.exit('Error: API_KEY is required')")
    for command in (
        ["--json", "--", "python", "server.py"],
        ["--", "python", "server.py", "--json"],
    ):
        done = invoke_toolmill("probe", "--dir", str(folder), *command, home=tmp_path)
        assert done.returncode == 0, done.stderr
        answer = json.loads(done.stdout)
        assert (answer["status"], answer["certificate"]["passed"]) == ("needs_secret", True)
        expected = {"hint", "tools", "contract_digests", "seconds", "peak_mb", "placeholders"}
        assert expected | {"stderr_tail", "findings", "behaviour"} <= answer.keys()


def test_verify_reads_rows_in_the_corpus_form(tmp_path):
    schema = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
    tool = {"name": "get_weather", "description": "Weather of a city.", "inputSchema": schema}
    servers, pairs = tmp_path / "servers.jsonl", tmp_path / "pairs.jsonl"
    servers.write_text(json.dumps({"qualified_name": "w", "tools": [tool]}) + "\n")
    asked = "Will I need an umbrella in Lisbon this evening?"
    rows = [
        {"tool_id": "w::get_weather", "instruction": asked, "arguments": {name: "Lisbon"}}
        for name in ("city", "town")
    ]
    pairs.write_text("".join(json.dumps(row) + "\n" for row in rows))
    words = ("judge", str(pairs), "--tools", str(servers), "--rules-only")
    done = invoke_toolmill(*words, home=tmp_path)
    verdicts = [json.loads(line)["verdict"] for line in done.stdout.splitlines()]
    assert verdicts == ["accept", "reject"]


def list_helps(command: Any, path: str = "toolmill") -> Iterator[tuple[str, str]]:
    """(where, text) of a command's help and its parameters', and of all commands below it."""
    yield path, command.help or ""
    for param in command.params:
        yield f"{path} {param.name}", getattr(param, "help", None) or ""
    for name, below in getattr(command, "commands", {}).items():
        yield from list_helps(below, f"{path} {name}")


def test_no_help_loses_a_word_in_brackets_that_reads_as_markup_or_breaks_a_line_in_a_sentence():
    texts = list_helps(typer.main.get_command(app))
    helps = {place: text.replace("\n\n", " ") for place, text in texts}
    lost = [place for place, text in helps.items() if render(text).plain != text or "\n" in text]
    assert len(helps) > 200
    assert lost == []


@cases("options", ("--tokens", "{file}"), ("--place", "{home}"))
def test_deep_json_is_said_in_words(options, tmp_path):
    deep = "[" * 100_000
    paths = {name: tmp_path / name for name in ("file", "home")}
    paths["file"].write_text(deep)
    (paths["home"] / "router").mkdir(parents=True)
    (paths["home"] / "router" / "HEAD.json").write_text(deep)
    words = [word.format_map(paths) for word in options]
    done = invoke_toolmill("serve", "--http", *words, home=tmp_path / "none")
    assert done.returncode != 0
    [line] = done.stderr.strip().splitlines()
    assert "recursion" not in line


def be_interrupted(how: str) -> None:
    if how == "plain":
        raise KeyboardInterrupt
    if how == "group":
        raise BaseExceptionGroup("tasks", [KeyboardInterrupt(), ValueError("closed")])
    try:
        raise KeyboardInterrupt
    finally:
        raise RuntimeError("cancel scope in another task")


@cases("how", "plain", "group", "while it was put away")
def test_an_interrupt_is_one_line_and_130(how, capsys):
    with pytest.raises(SystemExit) as ended, one_line_errors():
        be_interrupted(how)
    assert ended.value.code == 130
    assert capsys.readouterr().err == "interrupted; run again to go on where it stopped\n"
