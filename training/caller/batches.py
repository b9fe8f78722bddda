"""Tensors of causal training: passes of packed or padded rows."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

_IGNORED = -100  # the label that torch's cross-entropy leaves out


@dataclass(frozen=True)
class Lesson:
    """A row as tokens; what is learned begins at `start`. `gaps`: (first, end) of what stands
    between two turns of the model's and is not: what the user said, what a tool answered."""

    ids: list[int]
    start: int
    gaps: tuple[tuple[int, int], ...] = ()

    @property
    def places(self) -> list[int]:
        """Places of the tokens that are learned."""
        bounds = [self.start, *(at for gap in self.gaps for at in gap), len(self.ids)]
        spans = zip(bounds[::2], bounds[1::2], strict=True)
        return [at for first, end in spans for at in range(first, end)]

    @property
    def learned(self) -> int:
        return len(self.places)


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
        learned = row.places
        kept += [at + place - 1 for place in learned]
        labels += [row.ids[place] for place in learned]
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
    learned = [set(row.places) for row in rows]
    kept = sorted({place - 1 for places in learned for place in places} or {0})
    labels = [
        [row.ids[at + 1] if at + 1 in places else _IGNORED for at in kept]
        for row, places in zip(rows, learned, strict=True)
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
