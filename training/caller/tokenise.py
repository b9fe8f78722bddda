"""Training rows as tokens, with what was shown, left out and too long."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from training.caller.packing import TrainingLesson
from training.caller.settings import CallerSettings
from training.prompts.call_text import can_show_results, check_read_back, check_tokenizer
from training.prompts.render import RenderedPrompt, fit_prompt, read_messages
from training.prompts.templates import BadTemplate
from training.runtime.model_store import TrainingFailed
from training.sets.pool import BadOffer, ToolPool, draw_candidates, select_split_pool
from training.sets.split import TRAIN
from warehouse.json_types import Row

_DROPS = ("dropped_distractors", "shortened_prompts")


def build_train_pool(rows: Sequence[Row], entries: Mapping[str, Mapping[str, Any]]) -> ToolPool:
    """The contracts that training prompts show; without `entries` those of the rows themselves."""
    if entries:
        return select_split_pool(entries, TRAIN)
    return ToolPool({row["contract_digest"]: json.loads(row["contract"]) for row in rows})


def make_lessons(
    rows: Sequence[Row], pool: ToolPool, tokenizer: Any, settings: CallerSettings
) -> tuple[list[TrainingLesson], dict[str, Any]]:
    """(lessons, counts). A row that does not fit `context` with its right tools alone is left out
    and counted, and so is a conversation that the chat template cannot hold; nothing is ever cut
    in half. Rows are taken in their order until there are `update_tokens`, where that is set.
    Raises TrainingFailed when nothing fits."""
    lessons: list[TrainingLesson] = []
    counts = {"rows": 0, "too_long": 0, "not_renderable": 0} | dict.fromkeys(_DROPS, 0)
    try:
        check_tokenizer(tokenizer)
        check_read_back(tokenizer)
        with_results = can_show_results(tokenizer)
        for row in rows:
            if is_budget_spent(lessons, settings.update_tokens):
                break
            counts["rows"] += 1
            messages = read_messages(row)
            if not with_results and any(each["role"] == "tool" for each in messages):
                counts["not_renderable"] += 1
                continue
            try:
                rendered = _render_row(row, pool, tokenizer, settings)
            except BadTemplate:
                if not messages:
                    raise
                counts["not_renderable"] += 1
                continue
            if rendered is None:
                counts["too_long"] += 1
                continue
            counts["dropped_distractors"] += len(rendered.dropped)
            counts["shortened_prompts"] += bool(rendered.dropped)
            lessons += make_row_lessons(tokenizer, rendered.turns)
    except (BadTemplate, BadOffer) as error:
        raise TrainingFailed(f"caller: {error}") from error
    if not lessons:
        raise TrainingFailed(
            f"caller: none of {len(rows)} training rows fits context {settings.context} even with"
            " its right tool alone; raise context"
        )
    return lessons, {**counts, **summarise_tokens(lessons)}


def is_budget_spent(lessons: Sequence[TrainingLesson], tokens: int | None) -> bool:
    """Whether lessons hold as many tokens as an update may learn (None: any number)."""
    return tokens is not None and sum(len(each.ids) for each in lessons) >= tokens


def make_row_lessons(tokenizer: Any, turns: Sequence[tuple[str, str]]) -> list[TrainingLesson]:
    """The (prompt, completion) turns of one row: one lesson where each prompt goes on from the
    answer before it, token by token, else one for each turn as it is asked for.

    Qwen3 takes the empty thought out of earlier turns: there an earlier turn is not what the model
    will have written.
    """
    results: list[TrainingLesson] = []
    for turn in turns:
        prompt, answer = (tokenizer(text, add_special_tokens=False)["input_ids"] for text in turn)
        before = results[-1] if results else None
        if before and prompt[: len(before.ids)] == before.ids:
            gap = (len(before.ids), len(prompt))
            results[-1] = TrainingLesson(prompt + answer, before.start, (*before.gaps, gap))
        else:
            results.append(TrainingLesson(prompt + answer, len(prompt)))
    return results


def _render_row(
    row: Row, pool: ToolPool, tokenizer: Any, settings: CallerSettings
) -> RenderedPrompt | None:
    candidates = draw_candidates(
        row, pool, settings.candidates, distractors=settings.distractors, seed=settings.seed
    )
    return fit_prompt(tokenizer, row, candidates, settings.context)


def summarise_tokens(lessons: Sequence[TrainingLesson]) -> dict[str, int]:
    lengths = sorted(len(each.ids) for each in lessons)
    learned = sum(each.learned for each in lessons)
    return {
        "prompt_tokens": sum(lengths) - learned,
        "completion_tokens": learned,
        "tokens_p50": lengths[len(lengths) // 2],
        "tokens_max": lengths[-1],
    }
