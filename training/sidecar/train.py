"""The sidecar: LoRA fine-tuning of a causal language model on drafts and what they should be."""

from typing import Any

from training.caller.batches import Lesson
from training.caller.course import Course, Report, Tell
from training.caller.train import train_on_lessons
from training.runtime.model_store import Job, TrainingFailed
from training.sidecar.lessons import make_revision_lessons
from training.sidecar.rows import read_row
from training.sidecar.settings import read_settings


def train_sidecar(job: Job, report: Report) -> dict[str, Any]:
    """Trains and saves `<home>/models/<name>`; returns its card. As `train_caller`, on rows that
    `write_row` wrote. Raises TrainingFailed."""
    settings = read_settings(job.settings)
    try:
        rows = [read_row(held) for held in job.rows]
    except ValueError as error:
        raise TrainingFailed(f"sidecar: {error}") from error

    def write(tokenizer: Any) -> tuple[list[Lesson], dict[str, Any]]:
        return make_revision_lessons(rows, tokenizer, settings.context)

    def refine(model: Any, tokenizer: Any, course: Course, on: Report, tell: Tell) -> dict:
        return {"algorithm": settings.algorithm}

    return train_on_lessons(job, settings, write, report, refine)
