"""Attention of packed rows: each row of a pass sees itself only.

transformers can mask a packed pass from its position ids, but the mask is as large as the square of
the pass and the work too. Row by row the work is the sum of the rows' squares, torch's causal flash
kernels apply, and it needs no package beyond torch.
"""

import importlib.util
from collections.abc import Sequence
from itertools import pairwise
from typing import Any

from training.caller.batches import Lesson, pack_batch

SEGMENTS = "toolmill_segments"


def pick_attention(wanted: str, config: Any, device: str) -> str:
    """The implementation for packed passes, in transformers' words."""
    if wanted == "segments":
        return _register_segment_attention()
    if wanted != "auto":
        return wanted
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
    made = [
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
    return torch.cat(made, dim=2).transpose(1, 2).contiguous(), None


def find_row_mixing(model: Any, lessons: Sequence[Lesson], device: str) -> str | None:
    """Why rows that are packed into one pass would see one another in this model; None if they
    do not: a row's logits are then the same beside another row as alone.

    Asked before each training, because what a model makes of packed rows is a matter of its code.
    """
    import torch

    first, second = (Lesson(each.ids[:48], 1) for each in (lessons[0], lessons[-1]))
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


def _compute_logits(model: Any, rows: Sequence[Lesson], device: str) -> Any:
    made = pack_batch(rows, 0)
    fed = {name: made[name] for name in made if name not in ("labels", "shift_labels")}
    moved = {n: v.to(device) if hasattr(v, "to") else v for n, v in fed.items()}
    return model(**moved, use_cache=False).logits
