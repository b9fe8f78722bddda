"""Training rows as tokens, with what was shown, left out and too long."""

import json
from collections.abc import Mapping, Sequence
from typing import Any

from training.caller.batches import Lesson
from training.caller.settings import CallerSettings
from training.prompts.check import check_read_back, check_tokenizer
from training.prompts.fit import fit_prompt
from training.prompts.templates import BadTemplate
from training.runtime.model_store import TrainingFailed
from training.sets.candidates import draw_candidates
from training.sets.pool import BadOffer, Pool, select_split_pool
from training.sets.split import TRAIN
from warehouse.json_types import Row


def build_train_pool(rows: Sequence[Row], entries: Mapping[str, Mapping[str, Any]]) -> Pool:
    """The contracts that training prompts show; without `entries` those of the rows themselves."""
    if entries:
        return select_split_pool(entries, TRAIN)
    return Pool({row["contract_digest"]: json.loads(row["contract"]) for row in rows})


def make_lessons(
    rows: Sequence[Row], pool: Pool, tokenizer: Any, settings: CallerSettings
) -> tuple[list[Lesson], dict[str, Any]]:
    """(lessons, counts). A row that does not fit `context` with its right tools alone is left out
    and counted; nothing is ever cut in half. Raises TrainingFailed when nothing fits."""
    lessons: list[Lesson] = []
    counts = {"rows": len(rows), "too_long": 0, "dropped_distractors": 0, "shortened_prompts": 0}
    try:
        check_tokenizer(tokenizer)
        check_read_back(tokenizer)
        for row in rows:
            shown = draw_candidates(
                row,
                pool,
                settings.candidates,
                distractors=settings.distractors,
                seed=settings.seed,
            )
            made = fit_prompt(tokenizer, row, shown, settings.context)
            if made is None:
                counts["too_long"] += 1
                continue
            counts["dropped_distractors"] += len(made.dropped)
            counts["shortened_prompts"] += bool(made.dropped)
            asked, answer = (
                tokenizer(text, add_special_tokens=False)["input_ids"]
                for text in (made.prompt, made.completion)
            )
            lessons.append(Lesson(asked + answer, len(asked)))
    except (BadTemplate, BadOffer) as error:
        raise TrainingFailed(f"caller: {error}") from error
    if not lessons:
        raise TrainingFailed(
            f"caller: none of {len(rows)} training rows fits context {settings.context} even with"
            " its right tool alone; raise context"
        )
    return lessons, {**counts, **_summarise_tokens(lessons)}


def _summarise_tokens(lessons: Sequence[Lesson]) -> dict[str, int]:
    lengths = sorted(len(each.ids) for each in lessons)
    learned = sum(each.learned for each in lessons)
    return {
        "prompt_tokens": sum(lengths) - learned,
        "completion_tokens": learned,
        "tokens_p50": lengths[len(lengths) // 2],
        "tokens_max": lengths[-1],
    }
