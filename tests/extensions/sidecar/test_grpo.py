"""GRPO over a small base by TRL's own trainer: settings, rollouts and rewards."""

import json
from dataclasses import asdict, replace
from functools import cache
from pathlib import Path
from typing import Any

import pytest

import extensions.sidecar.grpo_training
from extensions.sidecar.grpo_training import (
    GrpoCourse,
    RolloutBatch,
    build_trainer,
    prepare_prompts,
    run_grpo,
    summarise_scores,
    tokenise_prompt,
)
from extensions.sidecar.prompt import RevisionRow, make_revision_request, render_revision_prompt
from extensions.sidecar.rewards import COPIED, UNREAD, RevisionScore
from extensions.sidecar.rewards import RIGHT as IS_RIGHT
from extensions.sidecar.settings import SMALL_GRPO, GrpoSettings
from tests.extensions.sidecar.examples import DRAFTS, RIGHT, make_row, write_call
from tests.support.cases import cases
from tests.support.small_caller import make_small_tokenizer
from training.caller.bases import load_base
from training.caller.settings import PROFILES
from training.caller.train import add_adapter
from training.runtime import checkpoints
from training.runtime.model_store import TrainingFailed, read_hyper_parameters

ROWS = [make_row(kind, server_id=f"npm:{kind}") for kind in (*DRAFTS, "untouched", "ask")]
COPY = write_call({"name": "book_room", "arguments": DRAFTS["wrong_type"][1]})


@cache
def load_tokenizer() -> Any:
    return make_small_tokenizer()


def make_rollouts() -> RolloutBatch:
    return prepare_prompts(load_tokenizer(), ROWS, 2000)[0]


def test_a_rollout_is_asked_as_it_is_taught_and_served_token_by_token():
    tokenizer, made = load_tokenizer(), make_rollouts()
    for row, prompt in zip(made.rows, made.prompts, strict=True):
        served = render_revision_prompt(tokenizer, make_revision_request(row))
        taught = tokenizer(served, add_special_tokens=False)["input_ids"]
        assert tokenise_prompt(tokenizer, prompt) == taught


def test_no_second_first_token_is_put_before_what_the_template_writes():
    class Doubling:
        def __call__(self, text: str, add_special_tokens: bool = True) -> dict[str, list[int]]:
            return {"input_ids": [1] * add_special_tokens + [ord(sign) for sign in text]}

    assert tokenise_prompt(Doubling(), "ab") == [97, 98]


def test_a_prompt_that_is_too_long_is_left_out_and_counted():
    long = make_row("missing", conversation=({"role": "user", "content": "so " * 900},))
    made, counts = prepare_prompts(load_tokenizer(), [*ROWS, long], 900)
    assert (made.rows, len(made.prompts)) == (ROWS, len(ROWS))
    assert counts == {"rows": len(ROWS) + 1, "too_long": 1}


def test_an_update_is_a_point_of_the_curve():
    made = make_rollouts()
    places = [at for at, row in enumerate(made.rows) if row.kind in ("wrong_type", "missing")]
    copied, right = made.take_rewards(places, [COPY, write_call(RIGHT)])
    assert copied < right == 1.0
    assert (made.curve[0]["update"], made.curve[0]["is_right"]) == (1, 0.5)


def test_parts_that_were_not_measured_are_not_averaged():
    scores = [RevisionScore(1.0, IS_RIGHT, {"kept": 1.0}), RevisionScore(0.0, COPIED, {})]
    found = summarise_scores(scores)
    assert (found["kept"], found["reward"], found["is_copied"]) == (1.0, 0.5, 0.5)
    assert summarise_scores([]) == {}


SMALL = replace(SMALL_GRPO, steps=2, group=2, prompts=2, pass_rows=4, max_new=6, probe=4)


def load_model(base: Path) -> tuple[Any, Any]:
    pytest.importorskip("trl")
    model, tokenizer = load_base(str(base), "cpu")
    return add_adapter(model, PROFILES["smollm2"], None), tokenizer


def make_course(root: Path, settings: GrpoSettings = SMALL, **changed: Any) -> GrpoCourse:
    return GrpoCourse(settings, "cpu", root, 2000, checkpoint_steps=1, **changed)


@cases(
    "changed, named",
    ({"settings": replace(SMALL, prompts=20, pass_rows=4)}, "at least 20"),
    ({"context": 80}, "raise context"),
)
def test_too_few_rows_are_refused_with_what_to_change(tmp_path, changed, named):
    course = replace(make_course(tmp_path), **changed)
    tokenizer = make_rollouts().tokenizer
    with pytest.raises(TrainingFailed, match=named):
        run_grpo(None, tokenizer, ROWS, course, print, print)


def test_several_processes_are_refused(tmp_path, monkeypatch):
    monkeypatch.setenv("WORLD_SIZE", "4")
    tokenizer = make_rollouts().tokenizer
    with pytest.raises(TrainingFailed, match=r"set training\.place\.processes to 1"):
        run_grpo(None, tokenizer, ROWS, make_course(tmp_path), print, print)


@pytest.mark.slow
def test_a_rollout_has_the_served_prompt_and_no_tool_mask(small_caller, tmp_path):
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
    small_caller, tmp_path, monkeypatch
):
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


def test_settings_of_a_job_are_read_back():
    held = json.loads(json.dumps(asdict(SMALL_GRPO)))
    assert read_hyper_parameters("sidecar", GrpoSettings, held) == SMALL_GRPO


@cases(
    "changed, named",
    ({"pass_rows": 5}, "divisor of prompts"),
    ({"group": 1}, "group"),
    ({"beta": -1}, "beta"),
    ({"temperature": 0}, "temperature"),
    ({"colour": 1}, "colour"),
)
def test_what_cannot_be_trained_with_is_refused(changed, named):
    with pytest.raises(TrainingFailed, match=named):
        read_hyper_parameters("sidecar", GrpoSettings, changed)
