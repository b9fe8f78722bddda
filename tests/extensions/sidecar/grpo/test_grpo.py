"""GRPO over a small base, by TRL's own trainer."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import extensions.sidecar.grpo_training
from extensions.sidecar.grpo_training import (
    GrpoCourse,
    build_trainer,
    run_grpo,
    tokenise_prompt,
)
from extensions.sidecar.prompt import (
    RevisionRow,
    make_revision_request,
    render_revision_prompt,
)
from extensions.sidecar.rewards import UNREAD, RevisionScore
from extensions.sidecar.settings import SMALL_GRPO, GrpoSettings
from tests.extensions.sidecar.grpo.test_rollouts import ROWS, make_rollouts
from training.caller.bases import load_base
from training.caller.settings import PROFILES
from training.caller.train import add_adapter
from training.runtime import checkpoints
from training.runtime.model_store import TrainingFailed

SMALL = replace(SMALL_GRPO, steps=2, group=2, prompts=2, pass_rows=4, max_new=6, probe=4)


def load_model(base: Path) -> tuple[Any, Any]:
    pytest.importorskip("trl")
    model, tokenizer = load_base(str(base), "cpu")
    return add_adapter(model, PROFILES["smollm2"], None), tokenizer


def make_course(root: Path, settings: GrpoSettings = SMALL, **changed: Any) -> GrpoCourse:
    return GrpoCourse(settings, "cpu", root, 2000, checkpoint_steps=1, **changed)


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"settings": replace(SMALL, prompts=20, pass_rows=4)}, "at least 20"),
        ({"context": 80}, "raise context"),
    ],
)
def test_too_few_rows_are_refused_with_what_to_change(
    tmp_path: Path, changed: dict[str, Any], named: str
) -> None:
    course = replace(make_course(tmp_path), **changed)
    tokenizer = make_rollouts().tokenizer
    with pytest.raises(TrainingFailed, match=named):
        run_grpo(None, tokenizer, ROWS, course, print, print)


def test_several_processes_are_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("WORLD_SIZE", "4")
    tokenizer = make_rollouts().tokenizer
    with pytest.raises(TrainingFailed, match=r"set training\.place\.processes to 1"):
        run_grpo(None, tokenizer, ROWS, make_course(tmp_path), print, print)


@pytest.mark.slow
def test_a_rollout_has_the_served_prompt_and_no_tool_mask(
    small_caller: Path, tmp_path: Path
) -> None:
    model, tokenizer = load_model(small_caller)
    rollouts = make_rollouts()
    trainer = build_trainer(model, rollouts, make_course(tmp_path), "plan", print)
    assert not trainer.tools
    batch = [{"prompt": rollouts.prompts[at], "row": at} for at in (0, 0, 3, 3)]
    made = trainer._generate_and_score_completions(batch)
    assert "tool_mask" not in made
    assert made["completion_mask"].shape == made["completion_ids"].shape
    for ids, mask, one in zip(made["prompt_ids"], made["prompt_mask"], batch, strict=True):
        request = make_revision_request(rollouts.rows[one["row"]])
        served = tokenise_prompt(tokenizer, render_revision_prompt(tokenizer, request))
        assert ids[mask.bool()].tolist() == served
    assert (made["prompt_ids"][:, -1] == made["prompt_ids"][0, -1]).all()  # padded on the left


@pytest.mark.slow
def test_a_training_ends_with_a_curve_and_goes_on_from_its_checkpoint(
    small_caller: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def score_letters(_row: RevisionRow, text: str) -> RevisionScore:
        """Six tokens of an untaught model are no call: its letters tell them apart."""
        return RevisionScore(sum(map(ord, text)) % 97 / 97, UNREAD)

    monkeypatch.setattr(extensions.sidecar.grpo_training, "score_revision", score_letters)
    model, tokenizer = load_model(small_caller)
    lines: list[dict[str, Any]] = []
    course = make_course(tmp_path, replace(SMALL, beta=0.1))
    before = {name: one.clone() for name, one in model.named_parameters() if "lora_B" in name}
    losses, figures = run_grpo(model, tokenizer, ROWS, course, lines.append, print)
    assert len(losses) == figures["steps"] == len(figures["curve"]) == 2
    assert set(model.peft_config) == {"default"}  # TRL's reference is not saved with it
    assert any(not one.equal(before[name]) for name, one in model.named_parameters()
               if name in before)  # fmt: skip
    assert [line["step"] for line in lines] == [1, 2]
    assert {"loss", "reward"} <= lines[0].keys()
    assert figures["before"]["corrected"]["n"] + figures["before"]["harmed"]["n"] <= 4
    newest = checkpoints.find_newest_checkpoint(tmp_path)
    assert newest is not None
    checkpoints.remove_checkpoints(newest)
    again, _ = load_model(small_caller)
    _, resumed = run_grpo(again, tokenizer, ROWS, course, lines.append, print)
    assert (resumed["resumed_from"], resumed["steps"]) == (1, 2)
