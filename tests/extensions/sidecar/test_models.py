"""A sidecar is trained from a job, by examples and by rewards, and revises drafts."""

import json
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import pytest

import extensions.sidecar.grpo_training
from extensions.sidecar import grpo_training
from extensions.sidecar.predictor import EndpointReviser, LocalReviser
from extensions.sidecar.prompt import RevisionRow, make_revision_request, render_revision_prompt
from extensions.sidecar.revision_data import KnownContracts, build_rows, choose_rows
from extensions.sidecar.rewards import COPIED, UNREAD, RevisionScore
from extensions.sidecar.rewards import RIGHT as IS_RIGHT
from extensions.sidecar.settings import (
    SMALL_GRPO,
    GrpoOptions,
    GrpoSettings,
    SidecarOptions,
    get_sidecar_profile,
)
from extensions.sidecar.train import train_sidecar
from serving.repair.ladder import repair_draft
from serving.repair.tools import ProposedCall
from tests.extensions.sidecar.examples import DRAFTS, RIGHT, place, write_call
from tests.extensions.sidecar.examples import make_row as make_example
from tests.extensions.sidecar.test_prompt import FIND, MAKE, TOOLS, TURNS, ask, make_row
from tests.support.cases import cases
from tests.support.openai_endpoint import Say, openai_endpoint
from tests.support.small_caller import make_small_tokenizer
from tests.training.evaluation.test_predictors import called, predictor
from tests.training.small_base import make_base
from training.adapter_table import check_adapter_rules, make_adapter_row
from training.caller.bases import load_base
from training.caller.settings import PROFILES
from training.caller.smollm2 import SMOLLM2
from training.caller.train import add_adapter
from training.evaluation.predictor import CannotPredict
from training.runtime import checkpoints, model_store
from warehouse.store import Warehouse

SETTINGS = asdict(replace(get_sidecar_profile(SMOLLM2), threads=1, batch=4))


def train(home: Path, base: Path, rows: list, settings: dict = SETTINGS) -> dict[str, Any]:
    _, path = model_store.write_job(home, "sidecar", str(base), "set-1", settings, rows)
    return train_sidecar(model_store.read_job(path), lambda _: None)


def test_the_loss_falls_and_the_card_says_how(tmp_path, train_rows, pool):
    rows = choose_rows(build_rows(place(train_rows, pool, 24), KnownContracts()), 24)
    base, settings = make_base(tmp_path / "base"), {**SETTINGS, "learning_rate": 5e-3}
    made = train(tmp_path, base, list(map(vars, rows)), settings)
    assert made["loss_last"] < made["loss_first"]
    assert (made["role"], made["base"], made["algorithm"]) == ("sidecar", str(base), "sft")
    assert made["pairs"] == len(rows) == made["lessons"]["rows"]


@pytest.mark.slow
@cases("algorithm", "sft+grpo", "grpo")
def test_rewards_come_after_examples_or_alone(algorithm, small_caller, tmp_path, train_rows, pool):
    pytest.importorskip("trl")
    few = GrpoOptions(steps=2, group=2, prompts=2, pass_rows=4, max_new=8)
    settings = asdict(SidecarOptions(algorithm=algorithm, grpo=few).resolve(threads=1, batch=4))
    rows = choose_rows(build_rows(place(train_rows, pool, 12), KnownContracts()), 12)
    made = train(tmp_path, small_caller, list(map(vars, rows)), settings)
    assert made["algorithm"] == algorithm
    assert make_adapter_row(made)["steps"] == (2 if algorithm == "grpo" else 3)
    rewarded = made["grpo"]
    assert len(rewarded["curve"]) == 2
    assert {"corrected", "copied", "harmed"} <= rewarded["before"].keys()
    assert check_adapter_rules(tmp_path, made)[2].passed
    assert not (model_store.get_model_folder(tmp_path, made["name"]) / "ref").exists()


def test_a_base_has_a_profile_and_what_is_not_used_names_no_model():
    assert SidecarOptions(grpo=GrpoOptions(steps=3)).resolve().grpo is None
    small = SidecarOptions(algorithm="sft+grpo", grpo=GrpoOptions(steps=3)).resolve().grpo
    assert small == replace(SMALL_GRPO, steps=3)
    real = SidecarOptions(base="Qwen/Qwen3-4B@" + "0" * 40, algorithm="grpo").resolve(seed=3)
    assert real.grpo == GrpoSettings()
    assert (real.profile, real.rows, real.context, real.seed) == ("mcp-flow", 20_000, 8192, 3)
    few = SidecarOptions(rows=10).resolve()
    assert (few.profile, few.rows, few.algorithm) == ("smollm2", 10, "sft")


def test_what_a_job_cannot_be_trained_from_is_named(small_caller, tmp_path, monkeypatch):
    with pytest.raises(model_store.TrainingFailed, match="make the data again"):
        train(tmp_path, small_caller, [{"pair_id": "a"}])
    monkeypatch.setenv("WORLD_SIZE", "4")
    tokenizer = make_rollouts().tokenizer
    with pytest.raises(model_store.TrainingFailed, match=r"set training\.place\.processes to 1"):
        grpo_training.run_grpo(None, tokenizer, ROWS, make_course(tmp_path), print, print)


WANTED = {"title": "Blue Sky", "count": 2}


def test_a_local_model_answers_many_as_one_or_is_named_as_missing(small_caller, tmp_path):
    model = LocalReviser(tmp_path, small_caller, device="cpu", constrained=True)
    requests = [make_revision_request(make_row()), ask(), ask("drop_song", TOOLS[:3])]
    together = model.revise_requests(requests)
    assert together == [model(request) for request in requests]
    assert any(isinstance(one, ProposedCall) for one in together)
    model = LocalReviser(tmp_path, small_caller, device="cpu")
    long = make_row(draft_arguments={"title": "word " * 20_000})
    assert model.revise_requests([make_revision_request(long)]) == [None]
    model = LocalReviser(tmp_path, "no-such-model", device="cpu")
    with pytest.raises(CannotPredict, match="no finished model"):
        model.load()
    draft = {"name": "find_file", "arguments": {"title": "Blue Sky"}}
    report = repair_draft(draft, [FIND, MAKE], conversation="Find 'Blue Sky'.", revise=model)
    assert report.outcome == "abstained"
    [rung] = [one for one in report.rungs if one.rung == "revise"]
    assert "CannotPredict" in rung.why


def test_an_endpoint_revises_with_the_words_turns_and_candidates_of_a_sidecar(tmp_path):
    def answer(body: dict[str, Any], number: int) -> Say:
        assert "What is wrong with it" in body["messages"][-1]["content"]
        assert {tool["function"]["name"] for tool in body["tools"]} >= {"find_file"}
        if number == 1:
            return called(("find_file", json.dumps(WANTED)))
        return Say("How many of them?") if number == 2 else Say("", status=400)

    warehouse = Warehouse(home=tmp_path, state=tmp_path / "state", budget_usd=1.0)
    draft = {"name": "find_file", "arguments": {"title": "Blue Sky"}}
    talks = ("Find 2 or 3 of 'Blue Sky', or 2.", "Find 'Blue Sky'.", "Look for 'Blue Sky'.")
    with openai_endpoint(answer) as endpoint:
        model = EndpointReviser(predictor(endpoint, warehouse, attempts=1))
        reports = [
            repair_draft(draft, [FIND, MAKE], conversation=talk, revise=model) for talk in talks
        ]
    assert (reports[0].outcome, reports[0].arguments) == ("repaired", WANTED)
    assert reports[1].reason is not None
    assert (reports[1].reason.question, reports[2].outcome) == ("How many of them?", "abstained")
    with openai_endpoint([called(("find_invoice", json.dumps(WANTED)))]) as endpoint:
        model = EndpointReviser(predictor(endpoint, warehouse))
        assert model.revise_requests([ask()]) == [ProposedCall("find_invoice", WANTED)]
    [body] = endpoint.requests
    assert len(body["tools"]) == len(TOOLS)
    assert all(one["content"] in body["messages"][-1]["content"] for one in TURNS)


# --- gRPO over a small base by TRL's own trainer: settings, rollouts and rewards
ROWS = [make_example(kind, server_id=f"npm:{kind}") for kind in (*DRAFTS, "untouched", "ask")]
COPY = write_call({"name": "book_room", "arguments": DRAFTS["wrong_type"][1]})


def make_rollouts() -> grpo_training.RolloutBatch:
    return grpo_training.prepare_prompts(make_small_tokenizer(), ROWS, 2000)[0]


def test_a_rollout_is_asked_as_it_is_taught_and_an_update_is_a_point_of_the_curve():
    tokenizer, made = make_small_tokenizer(), make_rollouts()
    for row, prompt in zip(made.rows, made.prompts, strict=True):
        served = render_revision_prompt(tokenizer, make_revision_request(row))
        taught = tokenizer(served, add_special_tokens=False)["input_ids"]
        assert grpo_training.tokenise_prompt(tokenizer, prompt) == taught
    long = make_example("missing", conversation=({"role": "user", "content": "so " * 900},))
    made, counts = grpo_training.prepare_prompts(make_small_tokenizer(), [*ROWS, long], 900)
    assert (made.rows, len(made.prompts)) == (ROWS, len(ROWS))
    assert counts == {"rows": len(ROWS) + 1, "too_long": 1}
    made = make_rollouts()
    places = [at for at, row in enumerate(made.rows) if row.kind in ("wrong_type", "missing")]
    copied, right = made.take_rewards(places, [COPY, write_call(RIGHT)])
    assert copied < right == 1.0
    assert (made.curve[0]["update"], made.curve[0]["is_right"]) == (1, 0.5)
    scores = [RevisionScore(1.0, IS_RIGHT, {"kept": 1.0}), RevisionScore(0.0, COPIED, {})]
    found = grpo_training.summarise_scores(scores)
    assert (found["kept"], found["reward"], found["is_copied"]) == (1.0, 0.5, 0.5)
    assert grpo_training.summarise_scores([]) == {}


SMALL = replace(SMALL_GRPO, steps=2, group=2, prompts=2, pass_rows=4, max_new=6, probe=4)


def load_model(base: Path) -> tuple[Any, Any]:
    pytest.importorskip("trl")
    model, tokenizer = load_base(str(base), "cpu")
    return add_adapter(model, PROFILES["smollm2"], None), tokenizer


def make_course(
    root: Path, settings: GrpoSettings = SMALL, **changed: Any
) -> grpo_training.GrpoCourse:
    return grpo_training.GrpoCourse(settings, "cpu", root, 2000, checkpoint_steps=1, **changed)


@cases(
    "changed, named",
    ({"settings": replace(SMALL, prompts=20, pass_rows=4)}, "at least 20"),
    ({"context": 80}, "raise context"),
)
def test_too_few_rows_are_refused_with_what_to_change(tmp_path, changed, named):
    course = replace(make_course(tmp_path), **changed)
    tokenizer = make_rollouts().tokenizer
    with pytest.raises(model_store.TrainingFailed, match=named):
        grpo_training.run_grpo(None, tokenizer, ROWS, course, print, print)


@pytest.mark.slow
def test_a_rollout_has_the_served_prompt_and_no_tool_mask(small_caller, tmp_path):
    model, tokenizer = load_model(small_caller)
    rollouts = make_rollouts()
    trainer = grpo_training.build_trainer(model, rollouts, make_course(tmp_path), "plan", print)
    assert not trainer.tools
    batch = [{"prompt": rollouts.prompts[at], "row": at} for at in (0, 0, 3, 3)]
    made = trainer._generate_and_score_completions(batch)
    assert "tool_mask" not in made
    assert made["completion_mask"].shape == made["completion_ids"].shape
    for ids, mask, one in zip(made["prompt_ids"], made["prompt_mask"], batch, strict=True):
        request = make_revision_request(rollouts.rows[one["row"]])
        served = grpo_training.tokenise_prompt(
            tokenizer, render_revision_prompt(tokenizer, request)
        )
        assert ids[mask.bool()].tolist() == served
    assert (made["prompt_ids"][:, -1] == made["prompt_ids"][0, -1]).all()  # padded on the left


@pytest.mark.slow
def test_a_training_has_a_curve_and_goes_on_where_it_was(small_caller, tmp_path, monkeypatch):
    def score_letters(_row: RevisionRow, text: str) -> RevisionScore:
        """Six tokens of an untaught model are no call: its letters tell them apart."""
        return RevisionScore(sum(map(ord, text)) % 97 / 97, UNREAD)

    monkeypatch.setattr(extensions.sidecar.grpo_training, "score_revision", score_letters)
    model, tokenizer = load_model(small_caller)
    lines: list[dict[str, Any]] = []
    course = make_course(tmp_path, replace(SMALL, beta=0.1))
    before = {name: one.clone() for name, one in model.named_parameters() if "lora_B" in name}
    losses, figures = grpo_training.run_grpo(model, tokenizer, ROWS, course, lines.append, print)
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
    _, resumed = grpo_training.run_grpo(again, tokenizer, ROWS, course, lines.append, print)
    assert (resumed["resumed_from"], resumed["steps"]) == (1, 2)


@cases(
    "changed, named",
    ({"pass_rows": 5}, "divisor of prompts"),
    ({"group": 1}, "group"),
    ({"beta": -1}, "beta"),
    ({"temperature": 0}, "temperature"),
    ({"colour": 1}, "colour"),
)
def test_settings_of_a_job_are_read_back_or_refused(changed, named):
    written = json.loads(json.dumps(asdict(SMALL_GRPO)))
    assert model_store.read_hyper_parameters("sidecar", GrpoSettings, written) == SMALL_GRPO
    with pytest.raises(model_store.TrainingFailed, match=named):
        model_store.read_hyper_parameters("sidecar", GrpoSettings, changed)
