"""transformers' Trainer, fed with our passes: arguments, live loss, sealed checkpoints."""

from typing import Any

from training.caller.batches import pack_batch, pad_batch
from training.caller.course import Course, Report
from training.caller.packing import Plan
from training.runtime.device import (
    Meter,
    count_processes,
    is_main,
)
from training.runtime.model_store import TrainingFailed
from training.runtime.trainer_state import describe_bad_loss, save_trainer_state


def build_trainer(
    model: Any, course: Course, made: Plan, name: str, report: Report, meter: Meter
) -> Any:
    """The trainer of a model with its adapter, which it trains in place. made: what is fed when;
    name: of the plan, in its checkpoints."""
    from transformers import PrinterCallback

    trainer = _make_trainer_class(course, made, name)(
        model=model,
        args=_build_training_arguments(course, made),
        train_dataset=_make_passes(course, made),
        data_collator=lambda parts: parts[0],
        callbacks=[_make_live_lines(course, made, report, meter)],
    )
    trainer.remove_callback(PrinterCallback)
    return trainer


def _make_passes(course: Course, made: Plan) -> Any:
    import torch

    build = pack_batch if course.packs else pad_batch

    class Passes(torch.utils.data.Dataset):
        def __len__(self) -> int:
            return len(made.passes)

        def __getitem__(self, at: int) -> dict[str, Any]:
            return build([course.lessons[row] for row in made.passes[at]], course.pad)

    return Passes()


def _make_live_lines(course: Course, made: Plan, report: Report, meter: Meter) -> Any:
    from transformers import TrainerCallback

    lengths = [len(each.ids) for each in course.lessons]

    class Live(TrainerCallback):
        def on_step_end(self, args: Any, state: Any, control: Any, **_: Any) -> None:
            meter.count_step(sum(lengths[row] for row in made.get_update_rows(state.global_step)))

        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs and is_main():
                step = {"step": state.global_step, "steps": made.updates}
                report({**step, "loss": round(logs["loss"], 4)})

    return Live()


def _make_trainer_class(course: Course, made: Plan, name: str) -> Any:
    import torch
    from transformers import Trainer

    def fail_with_loss(step: int, loss: float) -> TrainingFailed:
        rates = course.settings.learning_rate, course.settings.clip
        return TrainingFailed(f"caller: {describe_bad_loss(course.root, step, loss, *rates)}")

    class Fitting(Trainer):
        def _get_train_sampler(self, *_: Any, **__: Any) -> Any:
            return torch.utils.data.SequentialSampler(range(len(made.passes)))  # as planned

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

    return Fitting


def _build_training_arguments(course: Course, made: Plan) -> Any:
    from transformers import TrainingArguments

    chosen, gpu = course.settings, course.device == "cuda"
    checkpointing = gpu if chosen.gradient_checkpointing is None else chosen.gradient_checkpointing
    arguments = TrainingArguments(
        output_dir=str(course.root),
        per_device_train_batch_size=1,
        gradient_accumulation_steps=made.per_update // count_processes(),
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
