"""The retriever: a LoRA adapter of the embedder, taught to put an instruction near its tool.

rows -> teachable pairs -> twins by the base's vectors -> batches -> contrastive loss
"""

import json
import math
from collections.abc import Callable
from dataclasses import asdict
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.minilm import (
    DEFAULT,
    digest_base,
    make_general_name,
    name_base,
    require_plain_mean,
)
from assets.vectors.encoders.weights import BadAdapter
from training.retriever.batches import Batch, select_teachable_rows
from training.retriever.course import Course, begin_course, save_course_checkpoint
from training.retriever.settings import (
    NONE,
    RetrieverSettings,
    read_settings,
)
from training.runtime import checkpoints
from training.runtime.device import is_out_of_memory
from training.runtime.model_store import Job, TrainingFailed, read_model_card, save_model

Report = Callable[[dict[str, Any]], None]


def resolve_retriever_base(setting: str) -> str:
    """What names the base that a setting asks for: `minilm`, a folder, a hub id, or
    `sentence-transformers:` and one of the two.

    Raises TrainingFailed where the encoder cannot be made of it.
    """
    try:
        named = name_base(setting)
        require_plain_mean(named)
        return named
    except BadEmbedder as error:
        raise TrainingFailed(f"retriever: {error}") from error


def resolve_start(base: str) -> str:
    """What names the shipped adapter as the weights to start from: another one ships tomorrow.
    Another base than MiniLM has none. Raises TrainingFailed."""
    if base.strip() not in ("", *DEFAULT):
        return NONE
    try:
        return make_general_name()
    except BadAdapter as error:
        raise TrainingFailed(f"retriever: {error}") from error


def train_retriever(job: Job, report: Report) -> dict[str, Any]:
    """Trains and saves `<home>/models/<name>`; returns its card. A finished model is not redone.

    `report` gets {step, steps, loss} as training goes on. A killed training goes on from its newest
    whole checkpoint, to the same number of steps and the same weights.
    Raises TrainingFailed: nothing to learn from, a wrong base or setting, a loss that is not a
    number, no memory, a full disk.
    """
    done = read_model_card(job.home, job.name)
    if done:
        return {**done, "cached": True}
    settings = read_settings(job.settings)
    base = resolve_retriever_base(job.base)
    rows, left_out = select_teachable_rows(job.rows)
    tools = len({row["positive"] for row in rows})
    if tools < 2:
        counts = ", ".join(f"{count} {why}" for why, count in left_out.items()) or "none"
        raise TrainingFailed(
            f"retriever: {len(rows)} training pairs of fewer than two tools (left out: {counts});"
            " nothing to tell apart. Check the accepted pairs and the split"
        )
    try:
        course = begin_course(job, base, rows, settings)
        _train_steps(course, settings, report)
        made = _make_card(job, base, settings, course, len(rows), tools, left_out)
        save_model(
            job.home,
            job.name,
            made,
            lambda folder: _save_retriever_adapter(course.model, base, folder),
        )
    except TrainingFailed:
        raise
    except Exception as error:
        raise _to_training_failure(error, job, settings) from error
    checkpoints.remove_checkpoints(course.root)
    return {**made, "cached": False}


def _train_steps(course: Course, settings: RetrieverSettings, report: Report) -> None:
    import torch

    steps = len(course.plan)
    trained = [weight for weight in course.model.parameters() if weight.requires_grad]
    for step in range(len(course.losses) + 1, steps + 1):
        batch = course.plan[step - 1]
        loss, tokens = course.passes.add_gradients(
            [
                *course.passes.list_queries(batch.queries),
                *course.passes.list_documents(batch.texts),
            ],
            lambda flat, at=batch: _compute_loss(flat, at, settings),
        )
        value = float(loss)
        if not math.isfinite(value):
            raise TrainingFailed(
                f"retriever: loss is {value} at step {step} of {steps}; lower the rate"
                f" (learning_rate {settings.learning_rate:g}) or raise the temperature"
                f" ({settings.temperature:g})"
            )
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        course.optimizer.step()
        course.schedule.step()
        course.optimizer.zero_grad()
        course.losses.append(value)
        course.meter.count_step(tokens)
        report({"step": step, "steps": steps, "loss": round(value, 4)})
        if step % settings.checkpoint_steps == 0 and step < steps:
            save_course_checkpoint(course, step)


def _compute_loss(flat: Any, batch: Batch, settings: RetrieverSettings) -> Any:
    """Each query classified among the texts; another right answer is no wrong one."""
    import torch

    asked, texts = flat[: len(batch.queries)], flat[len(batch.queries) :]
    logits = asked @ texts.T / settings.temperature
    out = torch.zeros_like(logits, dtype=torch.bool)
    for at, places in enumerate(batch.also_right):
        out[at, list(places)] = True
    targets = torch.tensor(batch.targets, device=logits.device)
    return torch.nn.functional.cross_entropy(logits.masked_fill(out, -math.inf), targets)


def _make_card(
    job: Job,
    base: str,
    settings: RetrieverSettings,
    course: Course,
    pairs: int,
    tools: int,
    left_out: dict[str, int],
) -> dict[str, Any]:
    losses = course.losses
    tenth = max(1, len(losses) // 10)
    return {
        "role": job.role,
        "name": job.name,
        "base": base,
        "base_digest": digest_base(base),
        "training_set": job.training_set,
        "settings": asdict(settings),
        "prompts": course.passes.prompts.as_dict(),
        "pairs": pairs,
        "tools": tools,
        "left_out": left_out,
        "loss_first": round(sum(losses[:tenth]) / tenth, 4),
        "loss_last": round(sum(losses[-tenth:]) / tenth, 4),
        "losses": [round(loss, 4) for loss in losses],
        **course.meter.get_figures(),
    }


def _to_training_failure(error: Exception, job: Job, settings: RetrieverSettings) -> Exception:
    """The error as TrainingFailed where its cause has a fix; else as it is."""
    if isinstance(error, BadEmbedder):
        return TrainingFailed(f"retriever: {error}")
    kept = checkpoints.find_newest_checkpoint(checkpoints.get_checkpoint_root(job.home, job.name))
    advice = (
        f"it goes on after step {checkpoints.read_checkpoint_step(kept)}"
        if kept
        else "it starts anew"
    )
    if is_out_of_memory(error):
        return TrainingFailed(
            f"retriever: out of memory with {settings.tools} tools a batch and"
            f" {settings.hold_tokens} tokens held at once. Lower hold_tokens (the result stays, at"
            " up to a third more time), cache_mb, or tools (another model: anew); run again with"
            f" the same settings on a freer machine and {advice}"
        )
    if checkpoints.is_disk_full(error):
        place = job.home / "models"
        return TrainingFailed(
            f"retriever: disk full while saving {job.name[:12]} in {place}; nothing half written"
            f" is left. Free some space and run it again: {advice}"
        )
    return error


def _save_retriever_adapter(model: Any, base: str, folder: Path) -> None:
    model.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
    path = folder / "adapter_config.json"  # a base's place on this machine says nothing on another
    config = {**json.loads(path.read_bytes()), "base_model_name_or_path": base}
    path.write_text(json.dumps(config, indent=1, sort_keys=True))
