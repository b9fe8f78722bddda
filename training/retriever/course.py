"""A retriever's training under way: its parts, its plan, and the checkpoints it goes on from."""

import hashlib
import json
import math
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assets.vectors.encoders.hub import SENTENCE
from training.retriever.batches import (
    Batch,
    Row,
    collect_tools,
    find_twin_texts,
    iterate_batches,
    list_right_texts,
)
from training.retriever.bert import open_bert
from training.retriever.gradient_cache import Passes
from training.retriever.lora import load_start
from training.retriever.sentence import open_sentence
from training.retriever.settings import RetrieverSettings
from training.runtime import checkpoints
from training.runtime.device import Meter, pick_device, seed_everything
from training.runtime.model_store import Job, select_recipe

_STATE = "state.pt"


@dataclass
class Course:
    """A training under way: what changes from step to step, and where it is kept."""

    passes: Passes
    model: Any
    optimizer: Any
    schedule: Any
    plan: list[Batch]
    root: Path
    digest: str
    losses: list[float]
    meter: Meter


def begin_course(job: Job, base: str, rows: list[Row], settings: RetrieverSettings) -> Course:
    """Model, plan and optimiser; at the step of the newest checkpoint, if there is one."""
    import torch

    device = pick_device(settings.device)
    seed_everything(settings.seed, settings.threads)
    open_base = open_sentence if base.startswith(SENTENCE) else open_bert
    model, passes = open_base(base, settings, device)
    load_start(model, base, settings)
    tools = collect_tools(rows, job.pool)
    texts = sorted({tool.text for tool in tools.values()})
    documents = passes.list_documents(texts)
    meter = Meter(device)
    passes.prepare_texts([*documents, *passes.list_queries([row["instruction"] for row in rows])])
    twin = find_twin_texts(texts, passes.compute_likeness(documents), tools)
    plan = list(iterate_batches(rows, settings, list_right_texts(rows, twin, tools), tools))
    model.eval()  # the base's own dropout is off
    for name, module in model.named_modules():
        if "lora_dropout" in name:
            module.train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=0.01)
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda s: _compute_warm_cosine(s, len(plan))
    )
    root = checkpoints.get_checkpoint_root(job.home, job.name)
    digest = _plan_digest(base, settings, plan)
    course = Course(passes, model, optimizer, schedule, plan, root, digest, [], meter)
    _resume_course(course)
    return course


def save_course_checkpoint(course: Course, step: int) -> None:
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


def _resume_course(course: Course) -> None:
    import torch
    from peft import set_peft_model_state_dict

    found = checkpoints.find_newest_checkpoint(course.root, course.digest, _write_stderr)
    if found is None:
        return
    state = torch.load(found / _STATE, map_location=course.meter.device, weights_only=True)
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


def _plan_digest(base: str, settings: RetrieverSettings, plan: list[Batch]) -> str:
    """Names what is learnt in which order, whatever machine it runs on."""
    body = json.dumps(
        [base, select_recipe(asdict(settings)), [asdict(batch) for batch in plan]], sort_keys=True
    )
    return hashlib.sha256(body.encode()).hexdigest()


def _compute_warm_cosine(step: int, steps: int) -> float:
    warm = max(1, round(0.1 * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _write_stderr(line: str) -> None:
    sys.stderr.write(f"retriever: {line}\n")
