"""Greedy completions of prompts by a loaded model."""

from collections.abc import Callable, Sequence
from typing import Any

_TOKENS = 32_768  # of the prompts of a batch, padding included
# (places of a batch's prompts, tokens of each with padding) -> a logits processor of transformers
Limit = Callable[[Sequence[int], int], Callable[[Any, Any], Any]]
Tell = Callable[[str], None]


def generate_completions(
    model: Any,
    tokenizer: Any,
    prompts: Sequence[str],
    *,
    max_new: int = 96,
    batch: int = 16,
    limit: Limit | None = None,
    is_over: Callable[[], bool] | None = None,
    tell: Tell | None = None,
) -> list[str]:
    """Greedy completions, left-padded, in the order of the prompts; at most `batch` prompts of
    like length at once. limit: what may be written at all. is_over: asked before each token; the
    completions end there once it is true. tell: gets the text of a single prompt's completion word
    by word."""
    import torch

    device = next(model.parameters()).device
    fed = [tokenizer(prompt, add_special_tokens=False)["input_ids"] for prompt in prompts]
    out = [""] * len(prompts)
    for part in _make_batches([len(ids) for ids in fed], batch):
        longest = max(len(fed[at]) for at in part)
        gaps = [longest - len(fed[at]) for at in part]
        ids = [[tokenizer.pad_token_id] * gap + fed[at] for at, gap in zip(part, gaps, strict=True)]
        mask = [[0] * gap + [1] * (longest - gap) for gap in gaps]
        with torch.inference_mode():
            made = model.generate(
                input_ids=torch.tensor(ids, device=device),
                attention_mask=torch.tensor(mask, device=device),
                max_new_tokens=max_new,
                do_sample=False,
                pad_token_id=tokenizer.pad_token_id,
                logits_processor=[limit(part, longest)] if limit else None,
                stopping_criteria=[_make_stop(is_over)] if is_over else None,
                streamer=_make_streamer(tokenizer, tell) if tell and len(fed) == 1 else None,
            )
        for at, row in zip(part, made[:, longest:], strict=True):
            out[at] = tokenizer.decode(row, skip_special_tokens=True)
    return out


def _make_streamer(tokenizer: Any, tell: Tell) -> Any:
    from transformers import TextStreamer

    class Telling(TextStreamer):
        def on_finalized_text(self, text: str, stream_end: bool = False) -> None:
            if text:
                tell(text)

    return Telling(tokenizer, skip_prompt=True, skip_special_tokens=True)


def _make_stop(is_over: Callable[[], bool]) -> Callable[..., Any]:
    import torch

    def stop(input_ids: Any, scores: Any, **_: Any) -> Any:
        return torch.full((len(input_ids),), is_over(), device=input_ids.device)

    return stop


def _make_batches(lengths: Sequence[int], batch: int) -> list[list[int]]:
    """Places in batches of like length, each of at most `batch` and of `_TOKENS` with padding."""
    made: list[list[int]] = []
    for at in sorted(range(len(lengths)), key=lambda at: lengths[at]):
        full = made and (len(made[-1]) >= batch or (len(made[-1]) + 1) * lengths[at] > _TOKENS)
        if not made or full:
            made.append([])
        made[-1].append(at)
    return made
