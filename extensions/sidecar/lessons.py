"""Rows of the sidecar's data as tokens."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from extensions.sidecar.prompt import make_revision_request, render_revision_answer
from extensions.sidecar.rows import RevisionRow
from extensions.sidecar.select import count_tokens, fit_request
from training.caller.batches import Lesson
from training.caller.tokenise import make_row_lessons, summarise_tokens
from training.prompts.check import check_read_back, check_tokenizer
from training.prompts.templates import BadTemplate
from training.runtime.model_store import TrainingFailed


def make_revision_lessons(
    rows: Sequence[RevisionRow], tokenizer: Any, context: int
) -> tuple[list[Lesson], dict[str, Any]]:
    """(lessons, counts). A row that `context` tokens do not hold loses candidates, then its oldest
    turns; one whose right tool alone is too long is left out and counted. Raises TrainingFailed."""
    lessons: list[Lesson] = []
    counts = {"rows": len(rows), "too_long": 0, "dropped_distractors": 0, "shortened_prompts": 0}
    drafts = {
        "sources": dict(Counter(row.source for row in rows)),
        "kinds": dict(Counter(row.kind for row in rows)),
        "asks": sum(not row.right for row in rows),
    }
    try:
        check_tokenizer(tokenizer)
        check_read_back(tokenizer)
        for row in rows:
            request, answer = make_revision_request(row), render_revision_answer(tokenizer, row)
            room = context - count_tokens(tokenizer, answer)
            fitted = fit_request(tokenizer, request, room, {str(one["name"]) for one in row.right})
            if fitted is None:
                counts["too_long"] += 1
                continue
            gone = len(request.candidates) - len(fitted.request.candidates)
            counts["dropped_distractors"] += gone
            counts["shortened_prompts"] += fitted.request != request
            lessons += make_row_lessons(tokenizer, [(fitted.prompt, answer)])
    except BadTemplate as error:
        raise TrainingFailed(f"sidecar: {error}") from error
    if not lessons:
        raise TrainingFailed(
            f"sidecar: none of {len(rows)} rows fits context {context} even with its right tool"
            " alone; raise context"
        )
    return lessons, {**counts, "drafts": drafts, **summarise_tokens(lessons)}
