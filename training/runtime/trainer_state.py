"""The state of transformers' Trainer as a sealed checkpoint of ours."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

from training.runtime import checkpoints
from training.runtime.device import is_main
from training.runtime.model_store import TrainingFailed

INNER = "state"  # the Trainer's own folder within a checkpoint of ours


def save_trainer_state(
    trainer: Any,
    save: Callable[[Any, Any], None],
    model: Any,
    root: Path,
    plan: str,
    fail: Callable[[int, float], TrainingFailed],
) -> None:
    """A sealed checkpoint as the Trainer writes it; all processes write their part of it. The
    trainer writes into its attribute `beside` while it is set. fail: what is raised for weights
    that are no numbers, of the step and the loss."""
    import torch

    weights = (weight for weight in model.parameters() if weight.requires_grad)
    if not all(bool(torch.isfinite(weight).all()) for weight in weights):
        raise fail(trainer.state.global_step, float("nan"))

    def fill(folder: Path) -> None:
        trainer.beside = folder
        try:
            save(model, None)
        finally:
            del trainer.beside
        trainer.accelerator.wait_for_everyone()
        if is_main():
            (folder / f"checkpoint-{trainer.state.global_step}").rename(folder / INNER)

    checkpoints.save_checkpoint(
        root,
        trainer.state.global_step,
        fill,
        plan,
        main=is_main(),
        wait=trainer.accelerator.wait_for_everyone,
    )


def describe_bad_loss(root: Path, step: int, loss: float, rate: float, clip: float) -> str:
    """What went wrong, what to lower, and which checkpoint under `root` is kept."""
    kept = checkpoints.find_newest_checkpoint(root)
    held = (
        f"the checkpoint of step {checkpoints.read_checkpoint_step(kept)} is kept"
        if kept
        else "none is kept"
    )
    return (
        f"loss is {loss} at step {step}, expected a number; lower learning_rate (it is"
        f" {rate:g}) or clip (it is {clip:g}); {held}"
    )
