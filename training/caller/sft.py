"""Supervised fine-tuning of a causal model on lessons: transformers' Trainer, fed with our passes.

The Trainer brings mixed precision, gradient checkpointing, the schedule, several processes
(`accelerate launch`, torchrun) and whole optimizer state. Ours are the passes and the seals.
"""

import json
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.caller.packing import (
    PackingPlan,
    TrainingLesson,
    compute_efficiency,
    pack_batch,
    pad_batch,
    plan_passes,
)
from training.caller.settings import CallerSettings
from training.runtime import checkpoints
from training.runtime.checkpoints import INNER, describe_bad_loss, save_trainer_state
from training.runtime.device import (
    TokenMeter,
    count_processes,
    is_main,
    is_out_of_memory,
    measure_peak_mb,
)
from training.runtime.model_store import TrainingFailed
from warehouse.storage.digest import digest, sha256

Report = Callable[[dict[str, Any]], None]
Tell = Callable[[str], None]


@dataclass(frozen=True)
class SftCourse:
    """What is learned and where its checkpoints lie. `plan` names it: rows, order, settings."""

    lessons: Sequence[TrainingLesson]
    settings: CallerSettings
    device: str  # cpu | cuda
    pad: int
    root: Path
    packs: bool

    def plan_passes(self) -> PackingPlan:
        chosen = self.settings
        return plan_passes(
            [len(each.ids) for each in self.lessons],
            per_update=chosen.batch * chosen.accumulate,
            epochs=chosen.epochs,
            seed=chosen.seed,
            pass_tokens=(chosen.pass_tokens or chosen.context) if self.packs else None,
            pass_rows=chosen.batch,
            processes=count_processes(),
        )

    def digest_plan(self) -> str:
        """The digest of all that a checkpoint must agree with. Passes are no part of it: an update
        takes the same rows however they are packed."""
        names = (
            *("epochs", "batch", "accumulate", "seed", "rank"),
            *("alpha", "learning_rate", "warmup", "weight_decay"),
        )
        figures = {name: getattr(self.settings, name) for name in names}
        held_ids = json.dumps([[each.start, *each.ids, *each.gaps] for each in self.lessons])
        return digest({**figures, "lessons": sha256(held_ids.encode())})


def build_trainer(
    model: Any, course: SftCourse, plan: PackingPlan, name: str, report: Report, meter: TokenMeter
) -> Any:
    """The trainer of a model with its adapter, which it trains in place. plan: what is fed when;
    name: of the plan, in its checkpoints."""
    from transformers import PrinterCallback

    trainer = _make_trainer_class(course, plan, name)(
        model=model,
        args=_build_training_arguments(course, plan),
        train_dataset=_make_passes(course, plan),
        data_collator=lambda parts: parts[0],
        callbacks=[_make_live_lines(course, plan, report, meter)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _make_passes(course: SftCourse, plan: PackingPlan) -> Any:
    import torch

    build = pack_batch if course.packs else pad_batch

    class TrainingPasses(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(plan.passes)

        def __getitem__(self, at: int) -> dict[str, Any]:
            return build([course.lessons[row] for row in plan.passes[at]], course.pad)

    return TrainingPasses()


def _make_live_lines(
    course: SftCourse, plan: PackingPlan, report: Report, meter: TokenMeter
) -> Any:
    from transformers import TrainerCallback

    lengths = [len(each.ids) for each in course.lessons]

    class ProgressCallback(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            meter.count_step(sum(lengths[row] for row in plan.get_update_rows(state.global_step)))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs and is_main():
                step = {"step": state.global_step, "steps": plan.updates}
                report({**step, "loss": round(logs["loss"], 4)})

    return ProgressCallback()


def _make_trainer_class(course: SftCourse, plan: PackingPlan, name: str) -> Any:
    import torch
    from transformers import Trainer

    def fail_with_loss(step: int, loss: float) -> TrainingFailed:
        rates = course.settings.learning_rate, course.settings.clip
        return TrainingFailed(f"caller: {describe_bad_loss(course.root, step, loss, *rates)}")

    class CallerTrainer(Trainer):
        def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
            return torch.utils.data.SequentialSampler(range(len(plan.passes)))  # as planned

        def training_step(self, *args: Any, **kwargs: Any) -> Any:
            loss = super().training_step(*args, **kwargs)
            if not torch.isfinite(loss):
                raise fail_with_loss(self.state.global_step + 1, float(loss))
            return loss

        def _save_checkpoint(self, model: Any, trial: Any) -> None:
            save = super()._save_checkpoint
            save_trainer_state(self, save, model, course.root, name, fail_with_loss)

        def _get_output_dir(self, trial: Any) -> str:
            return str(getattr(self, "beside", course.root))

    return CallerTrainer


def _build_training_arguments(course: SftCourse, plan: PackingPlan) -> Any:
    from transformers import TrainingArguments

    chosen, gpu = course.settings, course.device == "cuda"
    checkpointing = gpu if chosen.gradient_checkpointing is None else chosen.gradient_checkpointing
    arguments = TrainingArguments(
        output_dir=str(course.root),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=plan.per_update // count_processes(),
        num_train_epochs=1,  # the plan holds all epochs
        learning_rate=chosen.learning_rate,
        lr_scheduler_type="cosine",
        warmup_steps=chosen.warmup,
        weight_decay=chosen.weight_decay,
        max_grad_norm=chosen.clip,
        optim="adamw_torch",
        bf16=gpu,
        use_cpu=not gpu,
        activation_checkpointing=checkpointing,
        activation_checkpointing_kwargs={"use_reentrant": False} if checkpointing else None,
        logging_steps=1,
        logging_nan_inf_filter=False,
        save_strategy="steps",
        save_steps=chosen.checkpoint_steps,
        seed=chosen.seed,
        report_to="none",
        disable_tqdm=True,
        log_level="error",
        remove_unused_columns=False,
        dataloader_pin_memory=gpu,
        ddp_find_unused_parameters=False if count_processes() > 1 else None,
        ddp_backend=None if gpu or count_processes() == 1 else "gloo",
    )
    if arguments.n_gpu > 1:  # several GPUs in one process would split a pass; use accelerate
        arguments._n_gpu = 1
    return arguments


def run_sft(
    model: Any, course: SftCourse, report: Report, tell: Tell
) -> tuple[list[float], dict[str, Any]]:
    """Trains `model` in place; returns (the loss of every update, figures for the card).

    Goes on from the newest checkpoint that holds. Raises TrainingFailed: a loss that is not a
    number, too little memory, a full disk; checkpoints written before stay.
    """
    plan, name = course.plan_passes(), course.digest_plan()
    newest_checkpoint = checkpoints.find_newest_checkpoint(
        course.root, name, tell if is_main() else None
    )
    resumed = checkpoints.read_checkpoint_step(newest_checkpoint) if newest_checkpoint else None
    if newest_checkpoint and is_main():
        tell(f"goes on after step {resumed} of {plan.updates}")
    meter = TokenMeter(course.device)
    trainer = build_trainer(model, course, plan, name, report, meter)
    meter.began = _read_device_clock(course.device)
    try:
        trainer.train(
            resume_from_checkpoint=str(newest_checkpoint / INNER) if newest_checkpoint else None
        )
    except Exception as error:
        if not isinstance(error, TrainingFailed) and is_out_of_memory(error):
            raise TrainingFailed(
                _describe_out_of_memory(course, plan, trainer.state.global_step)
            ) from error
        raise
    history = trainer.state.log_history
    losses = [round(each["loss"], 4) for each in history if "loss" in each]
    lengths = [len(each.ids) for each in course.lessons]
    return losses, {
        **meter.get_figures(),
        "steps": trainer.state.global_step,
        "passes": sum(1 for part in plan.passes if part),
        "packing": course.packs,
        "packing_efficiency": round(compute_efficiency(plan, lengths, padded=not course.packs), 4),
        "processes": count_processes(),
        "resumed_from": resumed,
    }


def _describe_out_of_memory(course: SftCourse, plan: PackingPlan, step: int) -> str:
    chosen = course.settings
    lengths = [len(each.ids) for each in course.lessons]
    most = max(sum(lengths[row] for row in part) for part in plan.passes)
    rows = max(len(part) for part in plan.passes)
    newest_checkpoint = checkpoints.find_newest_checkpoint(course.root)
    goes_on = (
        f"after step {checkpoints.read_checkpoint_step(newest_checkpoint)}"
        if newest_checkpoint
        else "from the start"
    )
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
