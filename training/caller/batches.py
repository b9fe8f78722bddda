"""Tensors of causal training: passes of packed or padded rows, and the tiny base's batches."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_IGNORED = -100  # the label that torch's cross-entropy leaves out


@dataclass(frozen=True)
class Lesson:
    """A row as tokens; what is learned begins at `start`."""

    ids: list[int]
    start: int

    @property
    def learned(self) -> int:
        return len(self.ids) - self.start


def packed(rows: Sequence[Lesson], pad: int) -> dict[str, Any]:
    """One sequence of all rows, each at positions of its own: nothing is padded.

    Logits are asked for only where the next token is learned (`logits_to_keep`): with a vocabulary
    of 152k, those of a prompt of 8k tokens would be 5 GB.
    """
    import torch

    ids, places, kept, told, bounds = [], [], [], [], [0]
    for row in rows:
        at = bounds[-1]
        ids += row.ids
        places += range(len(row.ids))
        kept += range(at + row.start - 1, at + len(row.ids) - 1)
        told += row.ids[row.start :]
        bounds.append(at + len(row.ids))
    if not rows:  # a pass that teaches nothing
        ids, places, kept, told, bounds = [pad], [0], [0], [_IGNORED], [0, 1]
    ends = torch.tensor(bounds, dtype=torch.int32)
    longest = int(ends.diff().max())
    targets = torch.tensor([told])
    return {
        "input_ids": torch.tensor([ids]),
        "position_ids": torch.tensor([places]),
        "cu_seq_lens_q": ends,
        "cu_seq_lens_k": ends,
        "max_length_q": longest,
        "max_length_k": longest,
        "segments": tuple(bounds),
        "logits_to_keep": torch.tensor(kept),
        "labels": targets,
        "shift_labels": targets,
    }


def padded(rows: Sequence[Lesson], pad: int) -> dict[str, Any]:
    """The rows beside one another, padded on the right to the longest."""
    import torch

    rows = rows or [Lesson([pad], 1)]
    longest = max(len(row.ids) for row in rows)
    kept = sorted({at for row in rows for at in range(row.start - 1, len(row.ids) - 1)} or {0})
    told = [
        [row.ids[at + 1] if row.start - 1 <= at < len(row.ids) - 1 else _IGNORED for at in kept]
        for row in rows
    ]
    targets = torch.tensor(told)
    return {
        "input_ids": torch.tensor([row.ids + [pad] * (longest - len(row.ids)) for row in rows]),
        "attention_mask": torch.tensor(
            [[1] * len(row.ids) + [0] * (longest - len(row.ids)) for row in rows]
        ),
        "logits_to_keep": torch.tensor(kept),
        "labels": targets,
        "shift_labels": targets,
    }


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


def learning_rate(step: int, steps: int, warmup: float = 0.1) -> float:
    """Linear warm-up over a share of the steps, then a cosine to zero."""
    warm = max(1, round(warmup * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))
