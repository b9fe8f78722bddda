"""`toolmill rerank-eval` on files in the released format, with vectors of a fake embedder."""

import hashlib
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from typer.testing import CliRunner

from extensions.recommender import commands
from orchestration.cli.app import app


class WordVectors:
    """A vector a text, from its words."""

    id, dim = "test/8", 8

    def embed(self, texts: Sequence[str], *, on_done: Any = None) -> np.ndarray:
        rows = np.array([self._make_row(text) for text in texts])
        return (rows / np.linalg.norm(rows, axis=1, keepdims=True)).astype(np.float32)

    def _make_row(self, text: str) -> np.ndarray:
        words = text.lower().split()
        seeds = [int(hashlib.sha256(word.encode()).hexdigest()[:8], 16) for word in words]
        return np.sum([np.random.default_rng(seed).normal(size=8) for seed in seeds], 0)


@pytest.fixture
def files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> tuple[Path, Path]:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    monkeypatch.setattr(commands, "_open_embedder", lambda spec: WordVectors())
    rng = np.random.default_rng(0)
    names = [f"tool_{at}" for at in range(6)]
    rows = [
        {
            "query": f"do job {row // 2} now",
            "selected": {"server_id": "s", "tool_name": names[at]},
            "rating": {"success": bool(rng.random() < (0.9 if at % 2 else 0.2))},
            "retriever_candidates": [{"server_id": "s", "tool_name": name} for name in names],
        }
        for row in range(120)
        for at in [int(rng.integers(6))]
    ]
    feedback, tools = tmp_path / "feedback.json", tmp_path / "tools.json"
    feedback.write_text(json.dumps(rows))
    described = [{"name": name, "description": f"Does {name}."} for name in names[:-1]]
    tools.write_text(json.dumps([{"id": "s", "tools": described}]))
    return feedback, tools


def run(files: tuple[Path, Path], *more: str) -> Any:
    paths = ("--feedback", str(files[0]), "--tools", str(files[1]))
    return CliRunner().invoke(app, ["rerank-eval", *paths, *more])


def test_every_fold_and_method_is_told_with_what_was_not_known(files: tuple[Path, Path]) -> None:
    result = run(files, "--method", "ours", "--method", "prior", "--folds", "3", "--json")
    assert result.exit_code == 0, result.output
    found = json.loads(result.stdout)
    assert (found["rows"], found["tasks"], found["unknown_tools"]) == (120, 60, 1)
    assert [one["fold"] for one in found["methods"]["ours"]["folds"]] == [0, 1, 2]
    assert found["methods"]["ours"]["auc"] > max(0.7, found["methods"]["prior"]["auc"])
    assert found["methods"]["ours"]["pair_accuracy"] > 0.6


def test_one_fold_is_enough_and_the_table_is_for_people(files: tuple[Path, Path]) -> None:
    result = run(files, "--method", "prior", "--fold", "1")
    assert result.exit_code == 0
    assert result.stdout.startswith("prior")
    assert "AUC" in result.stdout


@pytest.mark.parametrize(
    ("options", "said"),
    [
        (("--method", "magic"), "--method 'magic' does not exist; known: prior, "),
        (("--fold", "5"), "--fold 5: folds are 0 to 4"),
    ],
)
def test_an_option_that_cannot_be_is_named(
    files: tuple[Path, Path], options: tuple[str, ...], said: str
) -> None:
    result = run(files, *options)
    assert result.exit_code == 2
    assert said in result.stderr


@pytest.mark.parametrize(("worked", "ended"), [(True, "worked"), (False, "failed")])
def test_what_cannot_be_measured_is_said(
    files: tuple[Path, Path], worked: bool, ended: str
) -> None:
    rows = json.loads(files[0].read_text())
    alike = [{**row, "query": "do it", "rating": {"success": worked}} for row in rows]
    files[0].write_text(json.dumps(alike))
    result = run(files, "--method", "ours", "--method", "toolflix")
    assert result.exit_code == 0
    assert f"all 120 rows {ended}: nothing tells tools apart" in result.stderr
    assert "tasks for 1 of 5 folds only" in result.stderr
    assert "1 of 6 tools are in no file of tools" in result.stderr
    assert result.stdout.count("AUC not measured  pairs not measured of 0") == 2


def test_a_file_of_another_shape_ends_it_with_one_line(files: tuple[Path, Path]) -> None:
    files[0].write_text('[{"prompt": "x", "label": 1}]')
    result = run(files)
    assert result.exit_code == 2
    assert "row 1: `query` or `task` is absent" in result.stderr
    assert result.stderr.count("\n") == 1
