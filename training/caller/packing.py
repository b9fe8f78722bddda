"""Which rows share an update, and which of them share a pass through the model.

An update always takes the same rows, packed or not, on one process or on eight: packing and the
number of processes change the speed and the rounding, never what is learned.
"""

import heapq
import importlib.util
import random
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any


@dataclass(frozen=True)
class PackingPlan:
    """The passes of a whole training in order, `per_update` of them in each update.

    A pass lists rows by number; an empty one keeps the processes in step and teaches nothing.
    """

    passes: list[list[int]]
    per_update: int

    @property
    def updates(self) -> int:
        return len(self.passes) // self.per_update

    def get_update_rows(self, update: int) -> list[int]:
        """The rows of an update, counted from 1."""
        first = (update - 1) * self.per_update
        return [row for part in self.passes[first : first + self.per_update] for row in part]


def plan_passes(
    lengths: Sequence[int],
    *,
    per_update: int,
    epochs: int,
    seed: int,
    pass_tokens: int | None,
    pass_rows: int,
    processes: int = 1,
) -> PackingPlan:
    """The passes over rows of these lengths, reshuffled in every epoch.

    `pass_tokens`: rows are packed into passes of at most so many tokens (a longer row has a pass of
    its own); None: up to `pass_rows` rows of like length are padded to the longest.
    """
    groups = _shuffle_updates(len(lengths), per_update, epochs, seed)
    if pass_tokens is None:
        group_passes = [_group_by_length(group, lengths, pass_rows) for group in groups]
    else:
        group_passes = [_pack_first_fit(group, lengths, pass_tokens) for group in groups]
    most = max(len(part) for part in group_passes)
    width = -(-most // processes) * processes
    passes: list[list[int]] = []
    for group, part in zip(groups, group_passes, strict=True):
        if pass_tokens is not None and len(part) < width:
            even = balance_rows(group, lengths, width)
            if max(sum(lengths[row] for row in each) for each in even) <= pass_tokens:
                part = even
        passes += part + [[] for _ in range(width - len(part))]
    return PackingPlan(passes, width)


def balance_rows(rows: Sequence[int], lengths: Sequence[int], ranks: int) -> list[list[int]]:
    """`rows` in at most `ranks` groups of nearly equal length: the longest first, each to the
    group that is shortest so far."""
    heap: list[tuple[int, int]] = [(0, at) for at in range(ranks)]
    shares: list[list[int]] = [[] for _ in range(ranks)]
    for row in sorted(rows, key=lambda row: (-lengths[row], row)):
        load, at = heapq.heappop(heap)
        shares[at].append(row)
        heapq.heappush(heap, (load + lengths[row], at))
    return [part for part in shares if part]


def compute_efficiency(plan: PackingPlan, lengths: Sequence[int], *, padded: bool) -> float:
    """Share of the tokens that go through the model which belong to a row (the rest is padding)."""
    real = fed = 0
    for part in plan.passes:
        sizes = [lengths[row] for row in part]
        real += sum(sizes)
        fed += (max(sizes) * len(sizes) if padded else sum(sizes)) if sizes else 1
    return real / fed if fed else 0.0


def _shuffle_updates(rows: int, per_update: int, epochs: int, seed: int) -> list[list[int]]:
    rng = random.Random(seed)
    results = []
    for _ in range(epochs):
        order = rng.sample(range(rows), rows)
        results += [order[at : at + per_update] for at in range(0, rows, per_update)]
    return results


def _pack_first_fit(rows: Sequence[int], lengths: Sequence[int], limit: int) -> list[list[int]]:
    """First fit, the longest first: within 11/9 of the fewest passes there can be."""
    results: list[list[int]] = []
    room: list[int] = []
    for row in sorted(rows, key=lambda row: (-lengths[row], row)):
        at = next((i for i, free in enumerate(room) if free >= lengths[row]), None)
        if at is None:
            results.append([row])
            room.append(limit - lengths[row])
        else:
            results[at].append(row)
            room[at] -= lengths[row]
    return results


def _group_by_length(rows: Sequence[int], lengths: Sequence[int], width: int) -> list[list[int]]:
    order = sorted(rows, key=lambda row: (lengths[row], row))
    return [order[at : at + width] for at in range(0, len(order), width)]


_IGNORED = -100  # the label that torch's cross-entropy leaves out


@dataclass(frozen=True)
class TrainingLesson:
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


def pack_batch(rows: Sequence[TrainingLesson], pad: int) -> dict[str, Any]:
    """One sequence of all rows, each at positions of its own: nothing is padded.

    Logits are asked for only where the next token is learned (`logits_to_keep`): with a vocabulary
    of 152k, those of a prompt of 8k tokens would be 5 GB.
    """
    import torch

    ids, places, learned_places, labels, bounds = [], [], [], [], [0]
    for row in rows:
        at = bounds[-1]
        ids += row.ids
        places += range(len(row.ids))
        learned = row.places
        learned_places += [at + place - 1 for place in learned]
        labels += [row.ids[place] for place in learned]
        bounds.append(at + len(row.ids))
    if not rows:  # a pass that teaches nothing
        ids, places, learned_places, labels, bounds = [pad], [0], [0], [_IGNORED], [0, 1]
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
        "logits_to_keep": torch.tensor(learned_places),
        "labels": targets,
        "shift_labels": targets,
    }


def pad_batch(rows: Sequence[TrainingLesson], pad: int) -> dict[str, Any]:
    """The rows beside one another, padded on the right to the longest."""
    import torch

    rows = rows or [TrainingLesson([pad], 1)]
    longest = max(len(row.ids) for row in rows)
    learned = [set(row.places) for row in rows]
    learned_places = sorted({place - 1 for places in learned for place in places} or {0})
    labels = [
        [row.ids[at + 1] if at + 1 in places else _IGNORED for at in learned_places]
        for row, places in zip(rows, learned, strict=True)
    ]
    targets = torch.tensor(labels)
    return {
        "input_ids": torch.tensor([row.ids + [pad] * (longest - len(row.ids)) for row in rows]),
        "attention_mask": torch.tensor(
            [[1] * len(row.ids) + [0] * (longest - len(row.ids)) for row in rows]
        ),
        "logits_to_keep": torch.tensor(learned_places),
        "labels": targets,
        "shift_labels": targets,
    }


SEGMENTS = "toolmill_segments"


def pick_attention(setting: str, config: Any, device: str) -> str:
    """The implementation for packed passes, in transformers' words."""
    if setting == "segments":
        return _register_segment_attention()
    if setting != "auto":
        return setting
    if device.startswith("cuda") and importlib.util.find_spec("flash_attn"):
        return "flash_attention_2"
    kinds = getattr(config, "layer_types", None)
    plain = (
        set(kinds) == {"full_attention"}
        if kinds
        else getattr(config, "sliding_window", None) is None
    )
    return _register_segment_attention() if plain else "sdpa"


def _register_segment_attention() -> str:
    from transformers import AttentionInterface
    from transformers.masking_utils import AttentionMaskInterface

    AttentionInterface.register(SEGMENTS, _attend_by_segment)
    AttentionMaskInterface.register(SEGMENTS, lambda *_, **__: None)
    return SEGMENTS


def _attend_by_segment(
    module: Any,
    query: Any,
    key: Any,
    value: Any,
    attention_mask: Any,
    dropout: float = 0.0,
    scaling: float | None = None,
    segments: tuple[int, ...] = (),
    **kwargs: Any,
) -> tuple[Any, None]:
    """(batch 1, heads, tokens, size) -> (batch 1, tokens, heads, size); `segments` are the rows'
    bounds: (0, 5, 9) is a row of five tokens and one of four."""
    import torch

    if kwargs.get("softcap") is not None or kwargs.get("position_bias") is not None:
        raise ValueError("attention by segments knows no softcap and no position bias; use eager")
    groups = query.shape[1] // key.shape[1]
    attend = torch.nn.functional.scaled_dot_product_attention
    bounds = segments or (0, query.shape[2])
    attended = [
        attend(
            query[:, :, first:end],
            key[:, :, first:end],
            value[:, :, first:end],
            dropout_p=dropout,
            scale=scaling,
            is_causal=True,
            enable_gqa=groups > 1,
        )
        for first, end in pairwise(bounds)
    ]
    return torch.cat(attended, dim=2).transpose(1, 2).contiguous(), None


def find_row_mixing(model: Any, lessons: Sequence[TrainingLesson], device: str) -> str | None:
    """Why rows that are packed into one pass would see one another in this model; None if they
    do not: a row's logits are then the same beside another row as alone.

    Asked before each training, because what a model makes of packed rows is a matter of its code.
    """
    import torch

    first, second = (TrainingLesson(each.ids[:48], 1) for each in (lessons[0], lessons[-1]))
    model.eval()
    with torch.no_grad():
        beside, alone = (
            _compute_logits(model, rows, device) for rows in ((first, second), (second,))
        )
    model.train()
    beside = beside[:, -alone.shape[1] :]
    apart = float((beside - alone).norm() / alone.norm().clamp_min(1e-9))
    allowed = 0.05 if alone.dtype == torch.bfloat16 else 1e-3
    return None if apart <= allowed else f"a row beside another differs by {apart:.2g} from alone"


def _compute_logits(model: Any, rows: Sequence[TrainingLesson], device: str) -> Any:
    batch = pack_batch(rows, 0)
    fed = {name: batch[name] for name in batch if name not in ("labels", "shift_labels")}
    moved = {n: v.to(device) if hasattr(v, "to") else v for n, v in fed.items()}
    return model(**moved, use_cache=False).logits
