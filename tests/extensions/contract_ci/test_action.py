"""The GitHub Action: its script as the action runs it, in a repository of two commits."""

import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import yaml

from tests.support.cases import cases
from tests.support.paths import ROOT
from tests.support.untrusted_server import PREAMBLE, require_sandbox

ACTION = ROOT / "deploy" / "contract-ci"
FORK = {"FORK": "true", "HAS_SECRETS": "true", "SECRETS": ""}  # as action.yml gives it there
JOB = {"OUR_KEY": "hunter2-of-the-job", "GITHUB_TOKEN": "hunter2-of-the-run"}
RECORDING = """#!/bin/bash
here=$(dirname "$0")
printf '%s\\n' "$@" > "$here/arguments"
pwd > "$here/folder"
while [ $# -gt 0 ]; do
  case $1 in
    --markdown) echo "## Tool contracts" > "$2" ;;
    --annotations) echo "::error title=Tool contracts::breaking: b" > "$2" ;;
  esac
  shift
done
echo "::set-output name=x::printed by a server"
cat "$here/said" >&2
exit $(cat "$here/status")
"""
Action = Callable[..., "subprocess.CompletedProcess[str]"]


def git(repository: Path, *words: str) -> str:
    who = ["-c", "user.name=a", "-c", "user.email=a@example.org"]
    command = ["git", "-C", str(repository), *who, *words]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout.strip()


@pytest.fixture
def action(tmp_path: Path) -> Action:
    """Runs the script; the environment of a job is given by name. `summary.md` is its summary."""
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "-q")
    for line in ("serve([tool('a'), tool('b')])", "serve([tool('a'), *map(tool, os.environ)])"):
        (repository / "server.py").write_text(f"{PREAMBLE}\n{line}\n")
        git(repository, "add", "server.py")
        git(repository, "commit", "-qm", "one")
    environment = {
        "PATH": os.environ["PATH"],
        **dict.fromkeys(("HOME", "RUNNER_TEMP"), str(tmp_path)),
    }
    environment |= {"BASE": git(repository, "rev-parse", "HEAD~1")}
    environment |= {"COMMAND": f"{sys.executable} server.py", "GITHUB_EVENT_NAME": "pull_request"}
    environment |= {"GITHUB_STEP_SUMMARY": str(tmp_path / "summary.md")}
    environment |= {"TOOLMILL": str(Path(sys.executable).with_name("toolmill"))}
    environment |= {"TOOLMILL_HOME": str(tmp_path / "home")}

    def run(**more: str) -> "subprocess.CompletedProcess[str]":
        command = ["bash", str(ACTION / "compare.sh")]
        given = {"env": environment | more, "cwd": repository, "timeout": 300}
        done = subprocess.run(command, capture_output=True, text=True, check=False, **given)
        assert git(repository, "worktree", "list").count("\n") == 0
        return done

    return run


@pytest.fixture
def recording(tmp_path: Path) -> Callable[..., dict[str, str]]:
    """Stands in for the program: keeps what it was given, says something, and ends with a status;
    below 2 there is a page unless there is to be none."""

    def make(status: int, said: str = "", *, page: bool = True) -> dict[str, str]:
        writes = page and status < 2
        (tmp_path / "toolmill").write_text(RECORDING if writes else RECORDING.replace(" --", " -"))
        (tmp_path / "said").write_text(said)
        (tmp_path / "toolmill").chmod(0o755)
        (tmp_path / "status").write_text(str(status))
        return {"TOOLMILL": str(tmp_path / "toolmill")}

    return make


def test_an_action_run_on_a_fork_without_secrets_does_its_whole_job(action, tmp_path):
    """Both sides are started, summary, annotations and exit code are those of any other pull
    request, one line says what was left out, and nothing of the job reaches the fork's code: its
    server lists the names of its environment as tools, and its own settings are not read."""
    require_sandbox()
    (tmp_path / "repository" / "toolmill.toml").write_text('[sandbox]\nbackend = "none"\n')
    seen = tmp_path / "seen"
    done = action(**FORK, **JOB, PREPARE=f"env >> {seen}; echo ::error::mine")
    summary = (tmp_path / "summary.md").read_text()
    assert done.returncode == 1, done.stdout + done.stderr
    assert "calls of b find no tool" in summary
    assert "1 breaking" in summary
    assert "::error title=Tool contracts::breaking: b: " in done.stdout
    (notice,) = (line for line in done.stdout.splitlines() if line.startswith("::notice"))
    assert "Left out: `secrets`, which a pull request from a fork is not given" in notice
    assert notice.partition("contracts::")[2] in summary
    assert "HOME" in summary  # what the server has of an environment was listed
    everything = seen.read_text() + done.stdout + done.stderr + summary
    for name, value in JOB.items():
        assert name not in everything
        assert value not in everything


def test_secrets_reach_the_same_repository_and_prints_are_no_command(action, recording, tmp_path):
    """The command is split, and not expanded."""
    given = {"FORK": "false", "HAS_SECRETS": "true", "SECRETS": "KEY=a b\nNONE=\n"}
    done = action(**recording(0), **given, COMMAND="python \"my server.py\"\n'' a\\ b $HOME *")
    arguments = (tmp_path / "arguments").read_text().splitlines()
    assert done.returncode == 0, done.stderr
    assert arguments[arguments.index("--env") + 1] == "KEY=a b"
    assert "NONE=" not in arguments  # a secret that is not set
    after = arguments[arguments.index("--") + 1 :]
    assert after == ["python", "my server.py", "", "a b", "$HOME", "*"]
    assert "Left out" not in done.stdout
    done = action(**recording(1), **FORK, PREPARE="echo ::add-mask::x", INDEX="index")
    obeyed, token = [], None
    for line in done.stdout.splitlines():
        if token is None and line.startswith("::stop-commands::"):
            token = line.removeprefix("::stop-commands::")
        elif token is not None:
            token = None if line == f"::{token}::" else token
        elif line.startswith("::"):
            obeyed.append(line.partition(" ")[0])
    assert token is None
    assert obeyed == ["::notice", "::error"]
    assert "printed by a server" in done.stdout
    assert (tmp_path / "folder").read_text().strip() != str(tmp_path / "repository")
    assert str(tmp_path / "repository" / "index") in (tmp_path / "arguments").read_text()


@cases(
    "fork, secrets, code, level",
    ("true", "true", 0, "warning"),
    ("false", "true", 2, "error"),
    pytest.param("true", "false", 2, "error", marks=pytest.mark.slow),
)
def test_a_base_with_secrets_fails_no_fork(action, recording, tmp_path, fork, secrets, code, level):
    given = {"FORK": fork, "HAS_SECRETS": secrets}
    no_tools = action(**recording(3, "crashed: no KEY\n"), **given)
    unprepared = action(**recording(0), **given, PREPARE="exit 9")
    assert "crashed: no KEY" in no_tools.stdout
    for done, what in ((no_tools, "The server gave no tools"), (unprepared, "`prepare` failed")):
        assert done.returncode == code
        assert f"::{level} title=Tool contracts::{what} on the base" in done.stdout
        assert f"{what} on the base" in (tmp_path / "summary.md").read_text()


def test_a_change_that_does_not_start_fails_also_on_a_fork(action, recording):
    """Nor does one for lack of secrets of which nothing starts anywhere."""
    for answer, prepare, said in (
        ((2, "no program 'nodee' in /usr/bin\n"), "", "no program 'nodee'"),
        ((0,), "! grep -q environ server.py", "`prepare` failed on the change"),
        ((0,), "npm-of-nobody ci", "`prepare` names a program"),
    ):
        done = action(**recording(*answer), **FORK, PREPARE=prepare)
        assert done.returncode == 2
        assert said in done.stdout
        assert "::error title=Tool contracts::" in done.stdout


@pytest.mark.slow
@cases("status", 0, 1, 2, 4)
def test_the_reason_is_quoted_and_obeys_nobody(action, recording, tmp_path, status):
    said = "progress\nno `<b>index</b>` 100%0A::add-mask::x\u202e \x1b[2J\r::error::y\n\n"
    done = action(**recording(status, said, page=False))
    (line,) = (one for one in done.stdout.split("\n") if one.startswith("::error title"))
    assert done.returncode == max(status, 2)
    assert line.startswith("::error title=Tool contracts::Nothing was compared: no `<b>index</b>`")
    assert "100%250A::add-mask::x??? ?[2J?::error::y" in line
    quoted = "`no '<b>index</b>' 100%0A::add-mask::x??? ?[2J?::error::y`"
    assert (tmp_path / "summary.md").read_text() == f"Nothing was compared: {quoted}\n\n"


@pytest.mark.slow
@cases(
    "given, code, said",
    *(({"COMMAND": words}, 2, "`command` is empty") for words in ("", " \n")),
    ({"COMMAND": 'python "a'}, 2, "No closing quotation"),
    ({"BASE": ""}, 2, "no commit to compare with"),
    ({"BASE": "0" * 40}, 2, "`fetch-depth: 0`"),
    ({"SECRETS": "A=b\nhunter2"}, 2, "Line 2 of `secrets` is no `NAME=VALUE`"),
    ({"SECRETS": "=hunter2"}, 2, "Line 1 of `secrets`"),
    ({"TOOLMILL": "/nowhere/toolmill"}, 127, "/nowhere/toolmill: No such file"),
)
def test_what_is_given_wrong_is_told_in_annotation_and_summary(action, tmp_path, given, code, said):
    done = action(**given)
    told = (tmp_path / "summary.md").read_text()
    assert done.returncode == code
    assert f"{said}" in told
    assert done.stdout.rstrip().splitlines()[-1].startswith("::error title=Tool contracts::")
    assert "hunter2" not in done.stdout + done.stderr + told


@cases("event", "pull_request_target", "workflow_run", "issue_comment", "push")
def test_events_with_the_repositorys_secrets_are_refused_first(action, tmp_path, event):
    done = action(GITHUB_EVENT_NAME=event, PREPARE=f"touch {tmp_path}/ran")
    assert done.returncode == 2
    assert done.stdout.startswith("::error title=Tool contracts::Run this on pull_request: ")
    assert done.stdout.partition("contracts::")[2].strip() in (tmp_path / "summary.md").read_text()
    assert not (tmp_path / "ran").exists()


def test_the_action_gives_secrets_to_no_fork_and_puts_no_expression_into_a_script():
    steps = yaml.safe_load((ACTION / "action.yml").read_text())["runs"]["steps"]
    assert not any("${{" in step["run"] for step in steps)
    environment = steps[-1]["env"]
    same = "github.event.pull_request.head.repo.full_name == github.repository && "
    assert environment["SECRETS"].removeprefix("${{ ").startswith(same)
    assert not any("secrets." in str(value) for value in environment.values())
    assert all(name in (ACTION / "compare.sh").read_text() for name in environment)
