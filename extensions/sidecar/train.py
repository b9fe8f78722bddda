"""The sidecar: LoRA fine-tuning of a causal language model on drafts and what they should be, by
example (SFT), by rule rewards (GRPO), or both in turn."""

from collections import Counter
from collections.abc import Sequence
from typing import Any

from extensions.sidecar.grpo_training import COST, GrpoCourse, run_grpo
from extensions.sidecar.prompt import (
    RevisionRow,
    count_tokens,
    fit_request,
    make_revision_request,
    read_row,
    render_revision_answer,
)
from extensions.sidecar.settings import read_settings
from training.caller.packing import TrainingLesson
from training.caller.sft import Report, SftCourse, Tell
from training.caller.tokenise import is_budget_spent, make_row_lessons, summarise_tokens
from training.caller.train import train_on_lessons
from training.prompts.call_text import check_read_back, check_tokenizer
from training.prompts.templates import BadTemplate
from training.runtime.model_store import TrainingFailed, TrainingJob


def make_revision_lessons(
    rows: Sequence[RevisionRow], tokenizer: Any, context: int, tokens: int | None = None
) -> tuple[list[TrainingLesson], dict[str, Any]]:
    """(lessons, counts) of at most `tokens`. A row longer than `context` loses candidates, then old
    turns; one whose right tool is too long is left out. Raises TrainingFailed."""
    lessons: list[TrainingLesson] = []
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
            if is_budget_spent(lessons, tokens):
                break
            request, answer = make_revision_request(row), render_revision_answer(tokenizer, row)
            room = context - count_tokens(tokenizer, answer)
            fitted = fit_request(
                tokenizer, request, room, {str(item["name"]) for item in row.right}
            )
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


def train_sidecar(job: TrainingJob, report: Report) -> dict[str, Any]:
    """Trains `<home>/models/<name>` on rows for `read_row`; its card. Raises TrainingFailed."""
    settings = read_settings(job.settings)
    try:
        rows = [read_row(row) for row in job.rows]
    except ValueError as error:
        raise TrainingFailed(f"sidecar: {error}") from error

    def write(tokenizer: Any) -> tuple[list[TrainingLesson], dict[str, Any]]:
        return make_revision_lessons(rows, tokenizer, settings.context, settings.update_tokens)

    def refine(
        model: Any, tokenizer: Any, course: SftCourse, on: Report, tell: Tell
    ) -> dict[str, Any]:
        """GRPO where the algorithm has it, after SFT or alone; what the card says of it."""
        head, chosen = {"algorithm": settings.algorithm}, settings.grpo
        if chosen is None:
            return head
        where = course.root / "grpo", settings.context, settings.checkpoint_steps, settings.seed
        rewarded = GrpoCourse(chosen, course.device, *where)
        try:
            losses, figures = run_grpo(model, tokenizer, rows, rewarded, on, tell)
        except BadTemplate as error:
            raise TrainingFailed(f"sidecar: {error}") from error
        cost = {name: figures.pop(name) for name in COST}
        if settings.algorithm == "grpo":
            return {**head, **cost, "losses": losses, "grpo": figures}
        return {**head, "grpo": {**figures, "losses": losses, "seconds": cost["seconds"]}}

    teaches = settings.algorithm != "grpo"
    return train_on_lessons(job, settings, write, report, refine, teaches=teaches)
