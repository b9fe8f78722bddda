"""Greedy completions of prompts by a loaded model."""

from collections.abc import Sequence
from typing import Any


def generate(
    model: Any, tokenizer: Any, prompts: Sequence[str], *, max_new: int = 96, batch: int = 16
) -> list[str]:
    """Greedy completions, left-padded, in the order of the prompts."""
    import torch

    device = next(model.parameters()).device
    out = [""] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    tokenizer.padding_side = "left"
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        fed = tokenizer(
            [prompts[i] for i in part], padding=True, return_tensors="pt", add_special_tokens=False
        ).to(device)
        fed.pop("token_type_ids", None)
        with torch.no_grad():
            made = model.generate(
                **fed, max_new_tokens=max_new, do_sample=False, pad_token_id=tokenizer.pad_token_id
            )
        for i, row in zip(part, made[:, fed["input_ids"].shape[1] :], strict=True):
            out[i] = tokenizer.decode(row, skip_special_tokens=True)
    return out
