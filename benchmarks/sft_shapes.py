"""Shapes of real base models with weights drawn here, rows of their lengths, and what they cost."""

import random
import time
from collections.abc import Sequence
from typing import Any

from training.caller.batches import Lesson

LEARNED = 60  # tokens of a call
SHAPES: dict[str, dict[str, int]] = {  # from the models' published config.json
    "qwen3-4b": {
        "hidden_size": 2560,
        "intermediate_size": 9728,
        "num_hidden_layers": 36,
        "num_attention_heads": 32,
        "num_key_value_heads": 8,
        "head_dim": 128,
        "vocab_size": 151_936,
    },
    "tiny": {
        "hidden_size": 128,
        "intermediate_size": 384,
        "num_hidden_layers": 4,
        "num_attention_heads": 4,
        "num_key_value_heads": 4,
        "head_dim": 32,
        "vocab_size": 1024,
    },
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


def make_lessons(shape: str, length: int, rows: int, seed: int = 0) -> list[Lesson]:
    """Rows between an eighth of `length` and all of it, each with a call to learn at its end."""
    rng = random.Random(seed)
    top = min(SHAPES[shape]["vocab_size"], 30_000)
    lengths = [rng.randint(length // 8, length) for _ in range(rows)]
    return [
        Lesson([rng.randrange(10, top) for _ in range(n)], max(1, n - LEARNED)) for n in lengths
    ]


def count_useful_flops(shape: str, lessons: Sequence[Lesson]) -> float:
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
