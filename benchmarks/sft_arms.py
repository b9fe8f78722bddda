"""One arm of the benchmark of fine-tuning: train some rows in a way, time the updates.

The first update is left out: kernels are chosen and memory is taken in it.
"""

import tempfile
import time
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.sft_shapes import count_useful_flops, make_lessons, make_model, measure_matmul_rate
from training.caller.batches import Lesson
from training.caller.settings import CallerSettings, resolve_caller_settings
from training.runtime.device import measure_peak_mb

ARMS = ("packed", "padded", "trl")


def run_arm(arm: str, shape: str, device: str, length: int, rows: int) -> dict[str, Any]:
    """{tokens_per_s, step_ms, peak_mb, mfu, …} of one arm, or {error} where memory ran out."""
    import torch

    if device == "cpu":
        torch.set_num_threads(1)
    model = make_model(shape, device)
    lessons = make_lessons(shape, length, rows)
    try:
        if arm == "trl":
            updates = _train_trl(model, lessons, device, length)
        else:
            updates = _train_ours(model, lessons, device, length, packing=arm == "packed")
    except (torch.OutOfMemoryError, MemoryError, RuntimeError) as error:
        if "out of memory" not in str(error).lower():
            raise
        return {"error": "out of memory"}
    return _summarise_updates(updates, lessons, shape, device)


def _summarise_updates(
    updates: list[tuple[float, int]], lessons: list[Lesson], shape: str, device: str
) -> dict[str, Any]:
    """`updates`: (when it ended, tokens up to then)."""
    (began, before), (ended, after) = updates[0], updates[-1]
    took, tokens = ended - began, after - before
    every = sum(len(each.ids) for each in lessons)
    flops = count_useful_flops(shape, lessons) * tokens / every
    rate = measure_matmul_rate(device)
    return {
        "updates": len(updates) - 1,
        "tokens": tokens,
        "tokens_per_s": round(tokens / took),
        "step_ms": round(1000 * took / (len(updates) - 1)),
        "peak_mb": round(measure_peak_mb(device)),
        "matmul_tflops": round(rate / 1e12, 3),
        "mfu": round(flops / took / rate, 4),
    }


def _train_ours(
    model: Any, lessons: list[Lesson], device: str, length: int, *, packing: bool
) -> list[tuple[float, int]]:
    from training.caller.course import Course
    from training.caller.sft import run_sft
    from training.caller.train import _enable_packing, add_adapter

    chosen: CallerSettings = replace(
        resolve_caller_settings("local"), context=length, packing=packing, checkpoint_steps=10_000
    )
    packs = packing and _enable_packing(model, lessons, chosen, device, print)
    updates: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as root:
        course = Course(lessons, chosen, device, 0, Path(root) / "run", packs)
        made = course.plan_passes()

        def report(figures: dict[str, Any]) -> None:
            rows = made.get_update_rows(figures["step"])
            done = (updates[-1][1] if updates else 0) + sum(len(lessons[r].ids) for r in rows)
            updates.append((_read_clock(device), done))

        run_sft(add_adapter(model, chosen, None), course, report, print)
    return updates


def _train_trl(
    model: Any, lessons: list[Lesson], device: str, length: int
) -> list[tuple[float, int]]:
    """SFTTrainer with SFTConfig's own defaults (batch 8, no packing, gradient checkpointing), the
    length and the LoRA of ours; on a CPU in float32 as ours."""
    from datasets import Dataset
    from transformers import TrainerCallback
    from trl import SFTConfig, SFTTrainer

    updates: list[tuple[float, int]] = []

    class Clock(TrainerCallback):
        def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **_: Any) -> None:
            if logs and "loss" in logs:
                updates.append((_read_clock(device), int(logs["num_tokens"])))

    columns = [
        {
            "input_ids": each.ids,
            "labels": [-100] * each.start + each.ids[each.start :],
        }
        for each in lessons
    ]
    cpu = {} if device == "cuda" else {"use_cpu": True, "bf16": False}
    with tempfile.TemporaryDirectory() as root:
        config = SFTConfig(
            output_dir=root,
            max_length=length,
            num_train_epochs=1,
            logging_steps=1,
            save_strategy="no",
            report_to="none",
            disable_tqdm=True,
            **cpu,
        )
        trainer = SFTTrainer(
            model=model,
            args=config,
            train_dataset=Dataset.from_list(columns),
            processing_class=_make_tokenizer(),
            peft_config=_make_lora(),
            callbacks=[Clock()],
        )
        trainer.train()
    return updates


def _make_lora() -> Any:
    from peft import LoraConfig

    held = resolve_caller_settings("local")
    return LoraConfig(
        r=held.rank,
        lora_alpha=held.alpha,
        lora_dropout=held.dropout,
        target_modules=list(held.targets),
        task_type="CAUSAL_LM",
    )


def _make_tokenizer() -> Any:
    """Words by number, so that any vocabulary is large enough for it."""
    from tokenizers import Tokenizer, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    words = {"<pad>": 0, "<end>": 1, "<unk>": 2, "a": 3, **{f"w{i}": 4 + i for i in range(900)}}
    raw = Tokenizer(models.WordLevel(words, unk_token="<unk>"))
    raw.pre_tokenizer = pre_tokenizers.Whitespace()
    return PreTrainedTokenizerFast(
        tokenizer_object=raw, pad_token="<pad>", eos_token="<end>", unk_token="<unk>"
    )


def _read_clock(device: str) -> float:
    """Wall time on a GPU; on a CPU the seconds of this process, whatever else runs beside it."""
    if device != "cuda":
        return time.process_time()
    import torch

    torch.cuda.synchronize()
    return time.perf_counter()
