"""TRL's GRPOTrainer over our rollouts: the served prompt, the guard, sealed checkpoints.

Three of its ways are left: it tokenises no prompt itself (`tokenise_prompt`); it is given no tools,
so that no tool mask can be longer than a completion (a world is asked by the reward); and it writes
no card.
"""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from extensions.sidecar.prompt import UNTOUCHED, RevisionRow
from extensions.sidecar.rewards import COPIED, HARMFUL, RIGHT, ScoreCall, score_revision
from extensions.sidecar.rollouts import (
    RolloutBatch,
    make_rate,
    prepare_prompts,
    summarise_scores,
    tokenise_prompt,
)
from extensions.sidecar.settings import GrpoSettings
from training.caller.generation import generate_completions
from training.caller.sft import Report, Tell
from training.runtime import checkpoints
from training.runtime.checkpoints import INNER, describe_bad_loss, save_trainer_state
from training.runtime.device import TokenMeter, count_processes, is_main, is_out_of_memory
from training.runtime.model_store import TrainingFailed
from warehouse.storage.digest import digest

_SHOWN = ("reward", "values", "is_right", "is_copied")  # of an update, in the live lines


@dataclass(frozen=True)
class GrpoCourse:
    """Where and how a training runs. root: of its checkpoints. context: most tokens of a prompt
    with its completion."""

    settings: GrpoSettings
    device: str  # cpu | cuda
    root: Path
    context: int
    checkpoint_steps: int = 25
    seed: int = 7


def build_trainer(
    model: Any, rollouts: RolloutBatch, course: GrpoCourse, plan: str, report: Report
) -> Any:
    """The trainer of a PEFT model, which it trains in place."""
    from datasets import Dataset
    from transformers import PrinterCallback

    trainer = _make_trainer_class(rollouts, course, plan)(
        model=model,
        reward_funcs=[_make_reward(rollouts)],
        args=_build_arguments(course),
        train_dataset=Dataset.from_list(
            [{"prompt": text, "row": at} for at, text in enumerate(rollouts.prompts)]
        ),
        processing_class=rollouts.tokenizer,
        callbacks=[_make_live_lines(rollouts, course, report)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _make_live_lines(rollouts: RolloutBatch, course: GrpoCourse, report: Report) -> Any:
    from transformers import TrainerCallback

    class ProgressCallback(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs and is_main():
                report(
                    _write_line(state.global_step, course.settings.steps, logs["loss"], rollouts)
                )

    return ProgressCallback()


def _make_trainer_class(rollouts: RolloutBatch, course: GrpoCourse, plan: str) -> Any:
    from trl import GRPOTrainer

    chosen = course.settings

    def fail_with_loss(step: int, loss: float) -> TrainingFailed:
        rates = chosen.learning_rate, chosen.clip
        return TrainingFailed(f"sidecar: {describe_bad_loss(course.root, step, loss, *rates)}")

    class RevisionEnvironment(GRPOTrainer):
        def create_model_card(self, *_: Any, **__: Any) -> None:
            """Ours is the model's card."""

        def _tokenize_prompts(self, prompts: list[str]) -> Any:
            return [tokenise_prompt(rollouts.tokenizer, prompt) for prompt in prompts], None, {}

        def _generate_and_score_completions(self, inputs: list[dict[str, Any]]) -> dict[str, Any]:
            self.asked = [int(item["row"]) for item in inputs]
            return super()._generate_and_score_completions(inputs)

        def _generate(self, prompts: list[str]) -> Any:
            made = super()._generate(prompts)
            return _replace_failed(self, made, rollouts) if chosen.guard else made

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            if not loss.isfinite():
                raise fail_with_loss(self.state.global_step + 1, float(loss))
            return loss

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            save = super()._save_checkpoint
            save_trainer_state(self, save, model, course.root, plan, fail_with_loss)

        def _get_output_dir(self, trial: Any) -> str:
            return str(getattr(self, "beside", course.root))

    return RevisionEnvironment


def _make_reward(rollouts: RolloutBatch) -> Any:
    def score_revisions(completions: Sequence[str], row: Sequence[int], **_: Any) -> list[float]:
        return rollouts.take_rewards(row, completions)

    return score_revisions


def _replace_failed(trainer: Any, made: Any, rollouts: RolloutBatch) -> Any:
    """What was generated, with the groups that fail written again after a worked example. The
    update is then of that longer prompt: what is learned is what was written there."""
    prompt_ids, completion_ids, mask, texts, logprobs, *rest = made
    failed = rollouts.find_failed(trainer.asked, texts)
    again = {at: text for at in failed if (text := rollouts.write_again(trainer.asked[at]))}
    if not again:
        return made
    places = [at + item for at in again for item in range(rollouts.group)]
    asked, *_ = trainer._tokenize_prompts([text for text in again.values()
                                           for _ in range(rollouts.group)])  # fmt: skip
    ids, probabilities = trainer._generate_single_turn(asked, None, {}, rollouts.group)
    read = rollouts.tokenizer.batch_decode(ids, skip_special_tokens=True)
    for one, at in enumerate(places):
        prompt_ids[at], completion_ids[at], texts[at] = asked[one], ids[one], read[one]
        if logprobs is not None:
            logprobs[at] = probabilities[one]
    rollouts.count_replaced(trainer.asked, texts, list(again))
    return (prompt_ids, completion_ids, mask, texts, logprobs, *rest)


def _write_line(step: int, steps: int, loss: float, rollouts: RolloutBatch) -> dict[str, Any]:
    curve = rollouts.tally.curve
    last: Mapping[str, Any] = curve[-1] if curve else {}
    shown = {name: last[name] for name in _SHOWN if name in last}
    failed = rollouts.tally.counts["failed"]
    return {"step": step, "steps": steps, "loss": round(loss, 4), **shown, "failed_groups": failed}


def _build_arguments(course: GrpoCourse) -> Any:
    """TRL's defaults are for a GPU: a CPU needs `use_cpu` and no bf16."""
    from trl import GRPOConfig

    chosen, gpu = course.settings, course.device == "cuda"
    arguments = GRPOConfig(
        output_dir=str(course.root),
        max_steps=chosen.steps,
        num_generations=chosen.group,
        per_device_train_batch_size=chosen.pass_rows,
        gradient_accumulation_steps=chosen.prompts
        * chosen.group
        // (chosen.pass_rows * count_processes()),
        max_completion_length=chosen.max_new,
        temperature=chosen.temperature,
        beta=chosen.beta,
        epsilon=chosen.epsilon,
        learning_rate=chosen.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=chosen.warmup,
        max_grad_norm=chosen.clip,
        disable_dropout=True,  # else the policy that is trained is not the one that wrote
        use_vllm=chosen.vllm,
        vllm_mode="colocate",
        vllm_max_model_length=course.context,
        bf16=gpu,
        use_cpu=not gpu,
        gradient_checkpointing=gpu,
        logging_steps=1,
        save_strategy="steps",
        save_steps=course.checkpoint_steps,
        seed=course.seed,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        dataloader_pin_memory=gpu,
        ddp_backend=None if gpu or count_processes() == 1 else "gloo",
    )
    if arguments.n_gpu > 1:  # several GPUs in one process would split a pass; use accelerate
        arguments._n_gpu = 1
    return arguments


_REFERENCE = "ref"  # the copy of the adapter that TRL measures the distance to
# What a training took, as `TokenMeter` says it; of the card, not of its part on GRPO.
COST = ("device", "seconds", "steps", "tokens", "tokens_per_s", "step_ms", "peak_mb")
_POINTS = 100  # of the curve on the card


def run_grpo(
    model: Any,
    tokenizer: Any,
    rows: Sequence[RevisionRow],
    course: GrpoCourse,
    report: Report,
    tell: Tell,
    world: ScoreCall | None = None,
) -> tuple[list[float], dict[str, Any]]:
    """Trains a PEFT model in place on training rows; returns (the loss of every update, figures
    for the card). Goes on from the newest checkpoint that holds, with the curve from there on.

    Raises TrainingFailed: too few rows that fit, a number of processes that splits groups, a loss
    that is not a number, too little memory, a full disk. Raises BadTemplate.
    """
    chosen = course.settings
    limit = course.context - chosen.max_new
    kept, prompts, counts = prepare_prompts(tokenizer, rows, limit)
    _check_course(course, len(kept), counts)
    rollouts = RolloutBatch(
        tokenizer, kept, prompts, chosen.weights, limit, chosen.group, chosen.max_new, world
    )
    model.get_base_model().set_attn_implementation("sdpa")  # SFT's takes packed rows alone
    plan = digest({"rows": [item.row_id for item in kept], **asdict(chosen), "seed": course.seed})
    newest_checkpoint = checkpoints.find_newest_checkpoint(
        course.root, plan, tell if is_main() else None
    )
    before = measure_policy(model, rollouts, chosen.probe)
    trainer = build_trainer(model, rollouts, course, plan, report)
    meter = TokenMeter(course.device)
    try:
        trainer.train(
            resume_from_checkpoint=str(newest_checkpoint / INNER) if newest_checkpoint else None
        )
    except Exception as error:
        if not isinstance(error, TrainingFailed) and is_out_of_memory(error):
            raise TrainingFailed(_describe_out_of_memory(course)) from error
        raise
    if _REFERENCE in model.peft_config:
        model.delete_adapter(_REFERENCE)
    model.set_adapter("default")
    losses = [round(item["loss"], 4) for item in trainer.state.log_history if "loss" in item]
    meter.steps = trainer.state.global_step
    meter.tokens = int(trainer.state.num_input_tokens_seen)
    cost, figures = meter.get_figures(), rollouts.tally.get_figures()
    return losses, {
        **figures,
        "curve": _sample_curve(figures["curve"]),
        **counts,
        **cost,
        "resumed_from": checkpoints.read_checkpoint_step(newest_checkpoint)
        if newest_checkpoint
        else None,
        "before": before,
        "after": measure_policy(model, rollouts, chosen.probe),
    }


def measure_policy(model: Any, rollouts: RolloutBatch, most: int) -> dict[str, Any]:
    """Greedy answers to the first `most` rows (by their id: none is chosen), scored: means of
    reward and parts; corrected and copied of flawed rows, harmed of untouched ones."""
    order = sorted(range(len(rollouts.rows)), key=lambda at: rollouts.rows[at].row_id)[:most]
    was_training = model.training
    texts = generate_completions(
        model.eval(),
        rollouts.tokenizer,
        [rollouts.prompts[at] for at in order],
        max_new=rollouts.max_new,
    )
    model.train(was_training)
    rows = [rollouts.rows[at] for at in order]
    scores = [
        score_revision(row, text, rollouts.weights, rollouts.world)
        for row, text in zip(rows, texts, strict=True)
    ]
    pairs = list(zip(rows, scores, strict=True))
    flawed = [score for row, score in pairs if row.kind != UNTOUCHED]
    untouched = [score for row, score in pairs if row.kind == UNTOUCHED]
    return {
        **summarise_scores(scores),
        "corrected": make_rate(sum(item.verdict == RIGHT for item in flawed), len(flawed)),
        "copied": make_rate(sum(item.verdict == COPIED for item in flawed), len(flawed)),
        "harmed": make_rate(sum(item.verdict == HARMFUL for item in untouched), len(untouched)),
    }


def _check_course(course: GrpoCourse, kept: int, counts: Mapping[str, int]) -> None:
    chosen, processes = course.settings, count_processes()
    if kept < chosen.prompts:
        raise TrainingFailed(
            f"sidecar: {kept} of {counts['rows']} rows have a prompt of at most"
            f" {course.context - chosen.max_new} tokens, expected at least {chosen.prompts}, the"
            " prompts of an update: raise context, or lower max_new or prompts"
        )
    whole = chosen.prompts % processes == 0 and (
        chosen.prompts * chosen.group % (chosen.pass_rows * processes) == 0
    )
    if not whole:
        raise TrainingFailed(
            f"sidecar: {chosen.prompts} prompts of {chosen.group} completions, {chosen.pass_rows} a"
            f" pass, cannot be dealt to {processes} processes as whole groups; raise prompts"
        )
    if chosen.vllm and chosen.guard and processes > 1:
        raise TrainingFailed(
            "sidecar: vllm in several processes writes all completions together, so that no group"
            " can be written again; set guard or vllm to false, or use one process"
        )


def _describe_out_of_memory(course: GrpoCourse) -> str:
    chosen = course.settings
    return (
        f"sidecar: out of memory with {chosen.prompts * chosen.group} completions of at most"
        f" {chosen.max_new} tokens after prompts of at most {course.context - chosen.max_new},"
        f" {chosen.pass_rows} a pass; lower pass_rows, group, max_new or context"
    )


def _sample_curve(curve: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """At most _POINTS of the curve, each the mean of the updates since the one before."""
    size = -(-len(curve) // _POINTS) or 1
    parts = [curve[at : at + size] for at in range(0, len(curve), size)]
    return [_average_points(part) for part in parts]


def _average_points(points: list[dict[str, Any]]) -> dict[str, Any]:
    names = dict.fromkeys(name for point in points for name in point)
    means = {
        name: round(fmean(point[name] for point in points if name in point), 4) for name in names
    }
    return {**means, "update": points[-1]["update"]}
