"""The retriever: a LoRA adapter of the embedder, taught to put an instruction near its tool.

rows -> teachable pairs -> twins by the base's vectors -> batches -> contrastive loss
"""

import hashlib
import json
import math
import sys
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assets.vectors.encoders.embedder import BadEmbedder
from assets.vectors.encoders.minilm import DEFAULT, digest_base, make_general_name, name_base
from assets.vectors.encoders.weights import BASE, BadAdapter
from training.retriever.batches import (
    RetrieverBatch,
    Row,
    collect_tools,
    find_twin_texts,
    iterate_batches,
    list_right_texts,
    select_teachable_rows,
)
from training.retriever.encoders import load_start, open_minilm, open_sentence
from training.retriever.gradient_cache import EncoderPasses
from training.retriever.settings import NONE, RetrieverSettings, read_settings
from training.runtime import checkpoints
from training.runtime.device import TokenMeter, is_out_of_memory, pick_device, seed_everything
from training.runtime.model_store import (
    TrainingFailed,
    TrainingJob,
    read_model_card,
    save_model,
    select_recipe,
)

_STATE = "state.pt"


@dataclass
class RetrieverCourse:
    """A training under way: what changes from step to step, and where it is kept."""

    passes: EncoderPasses
    model: Any
    optimizer: Any
    schedule: Any
    plan: list[RetrieverBatch]
    root: Path
    digest: str
    losses: list[float]
    meter: TokenMeter


def begin_course(
    job: TrainingJob, base: str, rows: list[Row], settings: RetrieverSettings
) -> RetrieverCourse:
    """Model, plan and optimiser; at the step of the newest checkpoint, if there is one."""
    import torch

    device = pick_device(settings.device)
    seed_everything(settings.seed, settings.threads)
    is_minilm = base == BASE
    model, passes = (
        open_minilm(settings, device) if is_minilm else open_sentence(base, settings, device)
    )
    load_start(model, base, settings)
    tools = collect_tools(rows, job.pool)
    texts = sorted({tool.text for tool in tools.values()})
    documents = passes.list_documents(texts)
    meter = TokenMeter(device)
    passes.prepare_texts([*documents, *passes.list_queries([row["instruction"] for row in rows])])
    twin = find_twin_texts(texts, passes.compute_likeness(documents), tools)
    plan = list(iterate_batches(rows, settings, list_right_texts(rows, twin, tools), tools))
    model.eval()  # without the base's own dropout
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: _compute_warm_cosine(s, len(plan))
    )
    root = checkpoints.get_checkpoint_root(job.home, job.name)
    body = json.dumps(
        [base, select_recipe(asdict(settings)), [asdict(batch) for batch in plan]], sort_keys=True
    )
    digest = hashlib.sha256(body.encode()).hexdigest()
    course = RetrieverCourse(passes, model, optimizer, schedule, plan, root, digest, [], meter)
    _resume_course(course)
    return course


def save_course_checkpoint(course: RetrieverCourse, step: int) -> None:
    import torch
    from peft import get_peft_model_state_dict

    figures = course.meter.get_figures()
    state = {
        "weights": get_peft_model_state_dict(course.model),
        "optimizer": course.optimizer.state_dict(),
        "schedule": course.schedule.state_dict(),
        "losses": course.losses,
        "spent": [figures["seconds"], figures["tokens"]],
        "random": torch.get_rng_state(),
        "cuda_random": torch.cuda.get_rng_state() if course.meter.device == "cuda" else None,
    }
    checkpoints.save_checkpoint(
        course.root, step, lambda folder: torch.save(state, folder / _STATE), course.digest
    )


def _resume_course(course: RetrieverCourse) -> None:
    import torch
    from peft import set_peft_model_state_dict

    newest_checkpoint = checkpoints.find_newest_checkpoint(
        course.root, course.digest, _write_stderr
    )
    if newest_checkpoint is None:
        return
    state = torch.load(
        newest_checkpoint / _STATE, map_location=course.meter.device, weights_only=True
    )
    set_peft_model_state_dict(course.model, state["weights"])
    course.optimizer.load_state_dict(state["optimizer"])
    course.schedule.load_state_dict(state["schedule"])
    course.losses = list(state["losses"])
    torch.set_rng_state(state["random"].cpu())
    if state["cuda_random"] is not None and course.meter.device == "cuda":
        torch.cuda.set_rng_state(state["cuda_random"].cpu())
    seconds, tokens = state["spent"]
    course.meter.began -= seconds
    course.meter.steps, course.meter.tokens = len(course.losses), int(tokens)


def _compute_warm_cosine(step: int, steps: int) -> float:
    warm = max(1, round(0.1 * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _write_stderr(line: str) -> None:
    sys.stderr.write(f"retriever: {line}\n")


Report = Callable[[dict[str, Any]], None]


def resolve_retriever_base(setting: str) -> str:
    """What names the base that a setting asks for: `minilm`, or `sentence-transformers:` and a
    folder or a hub id. Raises TrainingFailed where the encoder cannot be made of it."""
    try:
        return name_base(setting)
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


def train_retriever(job: TrainingJob, report: Report) -> dict[str, Any]:
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
        card = _make_card(job, base, settings, course, len(rows), tools, left_out)
        save_model(
            job.home,
            job.name,
            card,
            lambda folder: _save_retriever_adapter(course.model, base, folder),
        )
    except TrainingFailed:
        raise
    except Exception as error:
        raise _to_training_failure(error, job, settings) from error
    checkpoints.remove_checkpoints(course.root)
    return {**card, "cached": False}


def _train_steps(course: RetrieverCourse, settings: RetrieverSettings, report: Report) -> None:
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


def _compute_loss(flat: Any, batch: RetrieverBatch, settings: RetrieverSettings) -> Any:
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
    job: TrainingJob,
    base: str,
    settings: RetrieverSettings,
    course: RetrieverCourse,
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


def _to_training_failure(
    error: Exception, job: TrainingJob, settings: RetrieverSettings
) -> Exception:
    """The error as TrainingFailed where its cause has a fix; else as it is."""
    if isinstance(error, BadEmbedder):
        return TrainingFailed(f"retriever: {error}")
    newest_checkpoint = checkpoints.find_newest_checkpoint(
        checkpoints.get_checkpoint_root(job.home, job.name)
    )
    advice = (
        f"it goes on after step {checkpoints.read_checkpoint_step(newest_checkpoint)}"
        if newest_checkpoint
        else "it starts from the beginning"
    )
    if is_out_of_memory(error):
        return TrainingFailed(
            f"retriever: out of memory with {settings.tools} tools a batch and"
            f" {settings.hold_tokens} tokens held at once. Lower hold_tokens (the result stays, at"
            " up to a third more time), cache_mb, or tools (another model); run again with"
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
