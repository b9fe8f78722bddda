"""Supervised fine-tuning of a causal model on lessons: transformers' Trainer, fed with our passes.

The Trainer brings mixed precision, gradient checkpointing, the schedule, several processes
(`accelerate launch`, torchrun) and whole optimizer state. Ours are the passes and the seals.
"""

from typing import Any

from training.caller.course import Course, Report, Tell
from training.caller.packing import Plan, compute_efficiency
from training.caller.trainer import build_trainer
from training.runtime import checkpoints
from training.runtime.device import (
    Meter,
    count_processes,
    is_main,
    is_out_of_memory,
    measure_peak_mb,
)
from training.runtime.model_store import TrainingFailed
from training.runtime.trainer_state import INNER


def run_sft(
    model: Any, course: Course, report: Report, tell: Tell
) -> tuple[list[float], dict[str, Any]]:
    """Trains `model` in place; returns (the loss of every update, figures for the card).

    Goes on from the newest checkpoint that holds. Raises TrainingFailed: a loss that is not a
    number, too little memory, a full disk; checkpoints written before stay.
    """
    made, name = course.plan_passes(), course.digest_plan()
    found = checkpoints.find_newest_checkpoint(course.root, name, tell if is_main() else None)
    resumed = checkpoints.read_checkpoint_step(found) if found else None
    if found and is_main():
        tell(f"goes on after step {resumed} of {made.updates}")
    meter = Meter(course.device)
    trainer = build_trainer(model, course, made, name, report, meter)
    meter.began = _read_device_clock(course.device)
    try:
        trainer.train(resume_from_checkpoint=str(found / INNER) if found else None)
    except Exception as error:
        if not isinstance(error, TrainingFailed) and is_out_of_memory(error):
            raise TrainingFailed(
                _describe_out_of_memory(course, made, trainer.state.global_step)
            ) from error
        raise
    history = trainer.state.log_history
    losses = [round(each["loss"], 4) for each in history if "loss" in each]
    lengths = [len(each.ids) for each in course.lessons]
    return losses, {
        **meter.get_figures(),
        "steps": trainer.state.global_step,
        "passes": sum(1 for part in made.passes if part),
        "packing": course.packs,
        "packing_efficiency": round(compute_efficiency(made, lengths, padded=not course.packs), 4),
        "processes": count_processes(),
        "resumed_from": resumed,
    }


def _describe_out_of_memory(course: Course, made: Plan, step: int) -> str:
    chosen = course.settings
    lengths = [len(each.ids) for each in course.lessons]
    most = max(sum(lengths[row] for row in part) for part in made.passes)
    rows = max(len(part) for part in made.passes)
    kept = checkpoints.find_newest_checkpoint(course.root)
    goes_on = f"after step {checkpoints.read_checkpoint_step(kept)}" if kept else "from the start"
    lower = f"pass_tokens (below {most})" if course.packs else f"batch (below {chosen.batch})"
    return (
        f"caller: out of memory on {course.device} at step {step + 1}: a pass held up to {rows}"
        f" rows of {most} tokens, peak {measure_peak_mb(course.device):.0f} MB. Lower {lower},"
        f" then context"
        f" (it is {chosen.context}) or candidates (it is {chosen.candidates}), or set"
        f" gradient_checkpointing to true; the next run goes on {goes_on}"
    )


def _read_device_clock(device: str) -> float:
    import time

    if device == "cuda":
        import torch

        torch.cuda.reset_peak_memory_stats()
    return time.perf_counter()
