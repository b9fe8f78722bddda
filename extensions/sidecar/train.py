"""The sidecar: LoRA fine-tuning of a causal language model on drafts and what they should be, by
example (SFT), by rule rewards (GRPO), or both in turn."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from assets.outcomes.recording import read_recording
from extensions.sidecar.grpo.train import COST, run_grpo
from extensions.sidecar.grpo.trainer import GrpoCourse
from extensions.sidecar.lessons import make_revision_lessons
from extensions.sidecar.rewards.world import WorldScorer, find_worlds
from extensions.sidecar.rows import RevisionRow, read_row
from extensions.sidecar.settings import SidecarSettings, read_settings
from training.caller.batches import Lesson
from training.caller.course import Course, Report, Tell
from training.caller.train import train_on_lessons
from training.prompts.templates import BadTemplate
from training.runtime.model_store import Job, TrainingFailed
from warehouse.errors import UnusableInput


def train_sidecar(job: Job, report: Report) -> dict[str, Any]:
    """Trains and saves `<home>/models/<name>`; returns its card. As `train_caller`, on rows that
    `write_row` wrote. Raises TrainingFailed."""
    settings = read_settings(job.settings)
    try:
        rows = [read_row(row) for row in job.rows]
    except ValueError as error:
        raise TrainingFailed(f"sidecar: {error}") from error

    def write(tokenizer: Any) -> tuple[list[Lesson], dict[str, Any]]:
        return make_revision_lessons(rows, tokenizer, settings.context)

    def refine(
        model: Any, tokenizer: Any, course: Course, on: Report, tell: Tell
    ) -> dict[str, Any]:
        head = {"algorithm": settings.algorithm}
        return head | _train_by_rewards(model, tokenizer, rows, settings, course, on, tell)

    teaches = settings.algorithm != "grpo"
    return train_on_lessons(job, settings, write, report, refine, teaches=teaches)


def _train_by_rewards(
    model: Any,
    tokenizer: Any,
    rows: Sequence[RevisionRow],
    settings: SidecarSettings,
    course: Course,
    report: Report,
    tell: Tell,
) -> dict[str, Any]:
    """GRPO where the algorithm has it, after SFT or alone; what the card says of it."""
    chosen = settings.grpo
    if chosen is None:
        return {}
    world, known = None, list(rows)
    if chosen.replay is not None:
        try:
            recording = read_recording(Path(chosen.replay))
        except UnusableInput as error:
            raise TrainingFailed(f"sidecar: grpo.replay: {error}") from error
        world, known = WorldScorer(recording, chosen.multi_turn), find_worlds(recording, rows)
    where = course.root / "grpo", settings.context, settings.checkpoint_steps, settings.seed
    rewarded = GrpoCourse(chosen, course.device, *where)
    try:
        losses, figures = run_grpo(model, tokenizer, known, rewarded, report, tell, world)
    except BadTemplate as error:
        raise TrainingFailed(f"sidecar: {error}") from error
    cost = {name: figures.pop(name) for name in COST}
    if settings.algorithm == "grpo":
        return {**cost, "losses": losses, "grpo": figures}
    return {"grpo": {**figures, "losses": losses, "seconds": cost["seconds"]}}
