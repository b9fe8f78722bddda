"""Fine-tuning: tokens/s, memory and FLOPs utilisation of ours against TRL's defaults.

    python -m benchmarks.sft --shape qwen3-4b --device cuda        the shape with weights made here
    python -m benchmarks.sft --shape tiny --device cpu --rows 32

All arms learn the same rows. Tokens are those of rows, never padding. TRL is asked for its defaults
but for the length, which would otherwise cut rows at 1,024. On a CPU one thread is used and its own
seconds are counted, so that what runs beside it does not.
"""

import argparse
import json
import os
import random
import sys
import tempfile
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from benchmarks.shared_data import run_alone
from training.caller.packing import TrainingLesson
from training.caller.settings import CallerSettings, resolve_caller_settings
from training.runtime.device import measure_peak_mb

LEARNED = 60  # tokens of a call
_SIZES = (
    *("hidden_size", "intermediate_size", "num_hidden_layers", "num_attention_heads"),
    *("num_key_value_heads", "head_dim", "vocab_size"),
)
SHAPES = {  # from the models' published config.json
    "qwen3-4b": dict(zip(_SIZES, (2560, 9728, 36, 32, 8, 128, 151_936), strict=True)),
    "tiny": dict(zip(_SIZES, (128, 384, 4, 4, 4, 32, 1024), strict=True)),
}


def make_model(shape: str, device: str) -> Any:
    """The shape with random weights: bf16 on a GPU, float32 on a CPU."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    held: dict[str, Any] = dict(SHAPES[shape])
    config = Qwen3Config(**held, max_position_embeddings=16_384, tie_word_embeddings=True)
    kind = torch.bfloat16 if device == "cuda" else torch.float32
    torch.manual_seed(0)
    torch.set_default_dtype(kind)
    try:
        with torch.device(device):
            return Qwen3ForCausalLM(config)
    finally:
        torch.set_default_dtype(torch.float32)


def make_lessons(shape: str, length: int, rows: int, seed: int = 0) -> list[TrainingLesson]:
    """Rows between an eighth of `length` and all of it, each with a call to learn at its end."""
    rng = random.Random(seed)
    top = min(SHAPES[shape]["vocab_size"], 30_000)
    lengths = [rng.randint(length // 8, length) for _ in range(rows)]
    return [
        TrainingLesson([rng.randrange(10, top) for _ in range(n)], max(1, n - LEARNED))
        for n in lengths
    ]


def count_useful_flops(shape: str, lessons: Sequence[TrainingLesson]) -> float:
    """What LoRA training of these rows needs: forward and the gradients of activations.

    Frozen weights have no gradient of their own, so a weight costs 4 FLOPs a token and not 6; a row
    attends to itself only; logits are needed where a token is learned. Work done twice (gradient
    checkpointing) and work on padding are not useful.
    """
    held = SHAPES[shape]
    width, layers = held["hidden_size"], held["num_hidden_layers"]
    heads, size = held["num_attention_heads"], held["head_dim"]
    attention = width * size * (2 * heads + 2 * held["num_key_value_heads"])
    body = layers * (attention + 3 * width * held["intermediate_size"])
    tokens = sum(len(each.ids) for each in lessons)
    squares = sum(len(each.ids) ** 2 for each in lessons)
    learned = sum(each.learned for each in lessons)
    return (
        4.0 * body * tokens
        + 6.0 * squares * heads * size * layers
        + 4.0 * width * held["vocab_size"] * learned
    )


def measure_matmul_rate(device: str) -> float:
    """FLOPs a second of the best of ten large products: bf16 on a GPU, float32 on a CPU."""
    import torch

    size, kind = (8192, torch.bfloat16) if device == "cuda" else (1024, torch.float32)
    now = time.perf_counter if device == "cuda" else time.process_time
    left = torch.randn(size, size, device=device, dtype=kind)
    best = float("inf")
    for _ in range(10):
        began = now()
        product = left @ left
        if device == "cuda":
            torch.cuda.synchronize()
        best = min(best, now() - began)
    del product
    return 2.0 * size**3 / best


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
    updates: list[tuple[float, int]], lessons: list[TrainingLesson], shape: str, device: str
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
    model: Any, lessons: list[TrainingLesson], device: str, length: int, *, packing: bool
) -> list[tuple[float, int]]:
    from training.caller.sft import SftCourse, run_sft
    from training.caller.train import _enable_packing, add_adapter

    chosen: CallerSettings = replace(
        resolve_caller_settings("local"), context=length, packing=packing, checkpoint_steps=10_000
    )
    packs = packing and _enable_packing(model, lessons, chosen, device, print)
    updates: list[tuple[float, int]] = []
    with tempfile.TemporaryDirectory() as root:
        course = SftCourse(lessons, chosen, device, 0, Path(root) / "run", packs)
        made = course.plan_passes()

        def report(figures: dict[str, Any]) -> None:
            rows = made.get_update_rows(figures["step"])
            done = (updates[-1][1] if updates else 0) + sum(len(lessons[r].ids) for r in rows)
            updates.append((_read_clock(device), done))

        run_sft(add_adapter(model, chosen, None), course, report, print)
    return updates


def _train_trl(
    model: Any, lessons: list[TrainingLesson], device: str, length: int
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
        {"input_ids": each.ids, "labels": [-100] * each.start + each.ids[each.start :]}
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

    caller_settings = resolve_caller_settings("local")
    return LoraConfig(
        r=caller_settings.rank,
        lora_alpha=caller_settings.alpha,
        lora_dropout=caller_settings.dropout,
        target_modules=list(caller_settings.targets),
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


NAMES = {
    "packed": "ours, packed",
    "padded": "ours, packing off (2 x 8)",
    "trl": "TRL's defaults (8 x 1)",
}
LENGTHS = {"cuda": "2048,8192", "cpu": "512,1024"}


def main() -> int:
    args = _make_parser().parse_args()
    lengths = [int(n) for n in (args.lengths or LENGTHS[args.device]).split(",")]
    quiet = {"TQDM_DISABLE": "1", "PYTHONWARNINGS": "ignore", "TRANSFORMERS_VERBOSITY": "error"}
    os.environ |= quiet
    rows = []
    for length in lengths:
        for arm in ARMS:
            found = _measure_arm(arm, length, args)
            rows.append({"length": length, "arm": arm, **found})
            print(json.dumps(rows[-1]), file=sys.stderr, flush=True)
    print(render_table(rows, args.shape, args.device))
    return 0


def render_table(rows: list[dict[str, Any]], shape: str, device: str) -> str:
    """The figures as Markdown; what did not run says why."""
    names = ("updates", "tokens_per_s", "step_ms", "peak_mb", "mfu")
    lines = [
        f"Shape {shape}, {device}:",
        "",
        "| length | arm | updates | tokens/s | ms an update | peak MB | FLOPs utilisation |",
        "| --- | --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        cells = [_render_cell(name, row) for name in names]
        lines.append(f"| {row['length']} | {NAMES[row['arm']]} | {' | '.join(cells)} |")
    return "\n".join(lines)


def _render_cell(name: str, row: dict[str, Any]) -> str:
    if "error" in row:
        return row["error"] if name == "updates" else ""
    held = row.get(name)
    if held is None:
        return "-"
    return f"{100 * held:.1f}%" if name == "mfu" else f"{held:,}"


def _measure_arm(arm: str, length: int, given: argparse.Namespace) -> dict[str, Any]:
    """An arm's figures, or why it has none."""
    try:
        return run_alone(run_arm, arm, given.shape, given.device, length, given.rows)
    except Exception as error:
        return {"error": f"failed: {type(error).__name__}: {str(error)[:80]}"}


def _make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--shape", choices=sorted(SHAPES), default="tiny")
    parser.add_argument("--device", choices=("cpu", "cuda"), default="cpu")
    parser.add_argument("--lengths", help="most tokens of a row, by commas")
    parser.add_argument("--rows", type=int, default=96)
    return parser


if __name__ == "__main__":
    sys.exit(main())
