"""Tensors of causal training: passes of packed or padded rows."""

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


def pack_batch(rows: Sequence[Lesson], pad: int) -> dict[str, Any]:
    """One sequence of all rows, each at positions of its own: nothing is padded.

    Logits are asked for only where the next token is learned (`logits_to_keep`): with a vocabulary
    of 152k, those of a prompt of 8k tokens would be 5 GB.
    """
    import torch

    ids, places, kept, labels, bounds = [], [], [], [], [0]
    for row in rows:
        at = bounds[-1]
        ids += row.ids
        places += range(len(row.ids))
        kept += range(at + row.start - 1, at + len(row.ids) - 1)
        labels += row.ids[row.start :]
        bounds.append(at + len(row.ids))
    if not rows:  # a pass that teaches nothing
        ids, places, kept, labels, bounds = [pad], [0], [0], [_IGNORED], [0, 1]
    ends = torch.tensor(bounds, dtype=torch.int32)
    longest = int(ends.diff().max())
    targets = torch.tensor([labels])
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


def pad_batch(rows: Sequence[Lesson], pad: int) -> dict[str, Any]:
    """The rows beside one another, padded on the right to the longest."""
    import torch

    rows = rows or [Lesson([pad], 1)]
    longest = max(len(row.ids) for row in rows)
    kept = sorted({at for row in rows for at in range(row.start - 1, len(row.ids) - 1)} or {0})
    labels = [
        [row.ids[at + 1] if row.start - 1 <= at < len(row.ids) - 1 else _IGNORED for at in kept]
        for row in rows
    ]
    targets = torch.tensor(labels)
    return {
        "input_ids": torch.tensor([row.ids + [pad] * (longest - len(row.ids)) for row in rows]),
        "attention_mask": torch.tensor(
            [[1] * len(row.ids) + [0] * (longest - len(row.ids)) for row in rows]
        ),
        "logits_to_keep": torch.tensor(kept),
        "labels": targets,
        "shift_labels": targets,
    }
