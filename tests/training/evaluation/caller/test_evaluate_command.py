"""`toolmill evaluate` as a person meets it: figures, files, exit codes, one line where it fails."""

import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path

import pytest

from orchestration.cli.app import main
from tests.support.cases import cases
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.training.evaluation.test_predictors import obedient
from tests.training.small_base import make_base
from training.evaluation import adapter_predictor, caller_run
from training.role import BASELINE

Run = Callable[..., tuple[int, str, str]]
SMALL = ("--limit", "4")


@pytest.fixture
def toolmill(
    home: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> Run:
    monkeypatch.chdir(home)
    monkeypatch.setenv("TOOLMILL_HOME", str(home))
    monkeypatch.setenv("TOOLMILL_TRAINING__DEVICE", "cpu")
    short = partial(adapter_predictor.AdapterPredictor, max_new=4)
    monkeypatch.setattr(adapter_predictor, "AdapterPredictor", short)
    monkeypatch.setattr(caller_run, "LARGE", replace(caller_run.LARGE, candidates=(3, 6)))

    def run(*arguments: str) -> tuple[int, str, str]:
        monkeypatch.setattr("sys.argv", ["toolmill", *arguments])
        with pytest.raises(SystemExit) as ended:
            main()
        printed = capsys.readouterr()
        return int(ended.value.code or 0), printed.out, printed.err

    return run


def test_a_folder_with_a_model_is_set_beside_the_baseline(toolmill, tmp_path):
    base = make_base(tmp_path / "base")
    out = tmp_path / "out"
    code, printed, err = toolmill(
        "evaluate", "--model", str(base), *SMALL, "--json", "--out", str(out)
    )
    assert code == 0, err
    report = json.loads(printed)
    assert [(one["candidate"], one["incumbent"]) for one in report["summaries"]] == [
        (f"folder:{base}", BASELINE)
    ]
    rows = [json.loads(line) for line in (out / "items.jsonl").read_text().splitlines()]
    assert len(rows) == report["rows"]
    assert {row["model"] for row in rows} == {f"folder:{base}", BASELINE}
    assert "| AST |" in (out / "report.md").read_text()
    assert json.loads((out / "summary.json").read_text()) == report


def test_an_endpoint_is_asked_once_and_its_faults_are_told(toolmill, monkeypatch):
    broken = {"now": True}

    def say(body: dict, number: int) -> Say:
        return Say("refused", status=400) if broken["now"] and number % 2 else obedient(body, 1)

    with openai_endpoint(say) as endpoint:
        monkeypatch.setenv("OPENAI_BASE_URL", endpoint.url)
        words = ("evaluate", "--model", "endpoint:m", "--split", "unseen_server", *SMALL)
        code, printed, err = toolmill(*words)
        assert code == 1
        assert "questions got no answer (bad_request" in err.splitlines()[-1]
        assert "Without an answer, in no figure" in printed
        broken["now"] = False
        assert toolmill(*words)[0] == 0
        sent = len(endpoint.requests)
        code, printed, _ = toolmill(*words, "--json")
        assert code == 0
        assert len(endpoint.requests) == sent
    assert json.loads(printed)["summaries"][0]["failures"] == {}


def test_splits_are_those_that_were_asked_for(toolmill, tmp_path):
    base = make_base(tmp_path / "base")
    code, printed, err = toolmill(
        "evaluate", "--model", "baseline", "--model", str(base), "--split", "unseen_tool",
        "--limit", "4",
        "--json",
    )  # fmt: skip
    assert code == 0, err
    summary = json.loads(printed)["summaries"][0]
    assert summary["candidate"] == BASELINE
    cells = {(cell["split"], cell["candidates"], cell["distractors"]) for cell in summary["cells"]}
    assert cells == {("unseen_tool", n, kind) for n in (3, 6) for kind in ("random", "hard")}
    assert {cell["n"] for cell in summary["cells"]} == {4}
    assert summary["gate"]["gain"]["n"] == 0


@cases(
    "words, code, message",
    (("--model", "baseline"), 2, "expected another model"),
    (("--model", "baseline", "--split", "test"), 2, "--split 'test' does not exist; known: seen"),
    (("--model", "gpt-9"), 2, "endpoint:ROLE_or_MODEL"),
    (("--model", "endpoint:caller"), 2, "set roles.caller.model"),
    (("--model", "endpoint:gpt-9"), 2, "set OPENAI_BASE_URL"),
    (("--model", "baseline", "--model", "endpoint:"), 2, "has no model"),
)
def test_what_cannot_be_meant_is_one_line(toolmill, words, code, message):
    found, printed, err = toolmill("evaluate", *words)
    assert (found, printed) == (code, "")
    assert message in err
    assert len(err.strip().splitlines()) == 1


def test_a_home_without_a_training_set_says_what_to_do(toolmill, tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "empty"))
    base = make_base(tmp_path / "base")
    code, _, err = toolmill("evaluate", "--model", str(base))
    assert code == 1
    assert "materialize training_set" in err
