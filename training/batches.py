"""Batches and the learning-rate schedule of causal training, for the tiny base and for LoRA alike.

What belongs here: padding with loss on the completion only, warm-up and cosine. What does not:
what the texts are (`render.py`) and the training loops.
"""

import math
from collections.abc import Sequence
from typing import Any

_IGNORED = -100  # the label that torch's cross-entropy leaves out


def collate(tokenizer: Any, texts: Sequence[tuple[str, str]], context: int, device: str) -> dict:
    """Right-padded input_ids, attention_mask and labels; loss on the completions only.

    A pair that exceeds `context` tokens loses the start of its prompt, never the call.
    """
    import torch

    rows = []
    for prompt, completion in texts:
        asked = tokenizer(prompt, add_special_tokens=False)["input_ids"]
        told = tokenizer(completion, add_special_tokens=False)["input_ids"][:context]
        asked = asked[max(0, len(asked) + len(told) - context) :]
        rows.append((asked + told, [_IGNORED] * len(asked) + told))
    longest = max(len(ids) for ids, _ in rows)
    pad = tokenizer.pad_token_id
    ids = [i + [pad] * (longest - len(i)) for i, _ in rows]
    labels = [t + [_IGNORED] * (longest - len(t)) for _, t in rows]
    mask = [[1] * len(i) + [0] * (longest - len(i)) for i, _ in rows]
    fed = {"input_ids": ids, "attention_mask": mask, "labels": labels}
    return {name: torch.tensor(value, device=device) for name, value in fed.items()}


def learning_rate(step: int, steps: int) -> float:
    """Linear warm-up over a tenth of the steps, then a cosine to zero."""
    warm = max(1, round(0.1 * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
