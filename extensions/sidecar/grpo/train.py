"""GRPO of a sidecar: from the adapter that SFT left, or from a new one."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict
from statistics import fmean
from typing import Any

from extensions.sidecar.grpo.rollouts import Rollouts, prepare_prompts
from extensions.sidecar.grpo.tally import make_rate, summarise_scores
from extensions.sidecar.grpo.trainer import GrpoCourse, build_trainer
from extensions.sidecar.rewards.score import COPIED, HARMFUL, RIGHT, score_revision
from extensions.sidecar.rewards.world import ScoreCall
from extensions.sidecar.rows import UNTOUCHED, RevisionRow
from training.caller.course import Report, Tell
from training.caller.generation import generate_completions
from training.runtime import checkpoints
from training.runtime.device import Meter, count_processes, is_main, is_out_of_memory
from training.runtime.model_store import TrainingFailed
from training.runtime.trainer_state import INNER
from warehouse.storage.digest import digest

_REFERENCE = "ref"  # the copy of the adapter that TRL measures the distance to
# What a training took, as `Meter` says it; of the card, not of its part on GRPO.
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
    rollouts = Rollouts(
        tokenizer, kept, prompts, chosen.weights, limit, chosen.group, chosen.max_new, world
    )
    model.get_base_model().set_attn_implementation("sdpa")  # SFT's takes packed rows alone
    plan = digest({"rows": [one.row_id for one in kept], **asdict(chosen), "seed": course.seed})
    found = checkpoints.find_newest_checkpoint(course.root, plan, tell if is_main() else None)
    before = measure_policy(model, rollouts, chosen.probe)
    trainer = build_trainer(model, rollouts, course, plan, report)
    meter = Meter(course.device)
    try:
        trainer.train(resume_from_checkpoint=str(found / INNER) if found else None)
    except Exception as error:
        if not isinstance(error, TrainingFailed) and is_out_of_memory(error):
            raise TrainingFailed(_describe_out_of_memory(course)) from error
        raise
    if _REFERENCE in model.peft_config:
        model.delete_adapter(_REFERENCE)
    model.set_adapter("default")
    losses = [round(one["loss"], 4) for one in trainer.state.log_history if "loss" in one]
    meter.steps = trainer.state.global_step
    meter.tokens = int(trainer.state.num_input_tokens_seen)
    cost, figures = meter.get_figures(), rollouts.tally.get_figures()
    return losses, {
        **figures,
        "curve": _sample_curve(figures["curve"]),
        **counts,
        **cost,
        "resumed_from": checkpoints.read_checkpoint_step(found) if found else None,
        "before": before,
        "after": measure_policy(model, rollouts, chosen.probe),
    }


def measure_policy(model: Any, rollouts: Rollouts, most: int) -> dict[str, Any]:
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
        "corrected": make_rate(sum(one.verdict == RIGHT for one in flawed), len(flawed)),
        "copied": make_rate(sum(one.verdict == COPIED for one in flawed), len(flawed)),
        "harmed": make_rate(sum(one.verdict == HARMFUL for one in untouched), len(untouched)),
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
