"""The retriever: a LoRA adapter of MiniLM, taught to put an instruction near its tool.

What belongs here: batches, the contrastive loss, the training loop. What does not: measuring the
result (`evaluate.py`), the process it runs in (`retriever_script.py`).

A batch is some tools with all their pairs. Its distinct tool texts (those tools and some of their
hard negatives) are encoded once, and every pair is classified among all of them: a tool that is
another pair's positive is a negative for free, and a text can never be its own negative. Against
batches of random pairs this more than halves the tokens, nearly all of which are tool texts.
"""

import json
import math
import random
from collections import defaultdict
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assets.vectors.embed import BASE, base_path
from training.device import Meter, autocast, pick_device, seed_everything
from training.models import Job, TrainingFailed, card, save_model

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class RetrieverSettings:
    """Hyper-parameters; together with the training set and the base they name the adapter."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    learning_rate: float = 1e-3
    epochs: int = 3
    tools: int = 24  # tools a batch, each with all its pairs
    negatives: int = 1  # hard negatives drawn per tool and epoch
    first_layer: int = 3  # layers below this one stay as they are
    temperature: float = 0.05
    query_tokens: int = 48
    text_tokens: int = 96
    seed: int = 7
    device: str = "auto"
    threads: int | None = None


def train_retriever(job: Job, report: Report) -> dict[str, Any]:
    """Trains and saves `<home>/models/<name>`; returns its card. A finished model is not redone.

    `report` gets {step, steps, loss} as training goes on.
    Raises TrainingFailed: nothing to learn from, a wrong base, or a loss that is not a number.
    """
    done = card(job.home, job.name)
    if done:
        return {**done, "cached": True}
    settings = RetrieverSettings(**job.settings)
    if job.base != BASE:
        raise TrainingFailed(f"retriever base is {job.base!r}; this script trains {BASE!r}")
    if len({row["text_digest"] for row in job.rows}) < 2:
        raise TrainingFailed(
            f"retriever: {len(job.rows)} training pairs of fewer than two tools; nothing to tell"
            " apart. Check the accepted pairs and the split"
        )
    model, losses, figures = _fit(job.rows, settings, report)
    tenth = max(1, len(losses) // 10)
    made = {
        "role": job.role,
        "name": job.name,
        "base": job.base,
        "training_set": job.training_set,
        "settings": asdict(settings),
        "pairs": len(job.rows),
        "loss_first": round(sum(losses[:tenth]) / tenth, 4),
        "loss_last": round(sum(losses[-tenth:]) / tenth, 4),
        "losses": [round(loss, 4) for loss in losses],
        **figures,
    }
    save_model(job.home, job.name, made, lambda folder: _save(model, folder))
    return {**made, "cached": False}


def _fit(rows: list[dict], settings: RetrieverSettings, report: Report) -> tuple[Any, list, dict]:
    import torch
    from transformers import AutoModel, AutoTokenizer

    device = pick_device(settings.device)
    seed_everything(settings.seed, settings.threads)
    tokenizer = AutoTokenizer.from_pretrained(str(base_path()))
    model = _adapted(AutoModel.from_pretrained(str(base_path())), settings).to(device).train()
    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate, weight_decay=0.01)
    plan = list(_batches(rows, settings))
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: _warm_cosine(s, len(plan)))
    losses: list[float] = []
    meter = Meter(device)
    for step, (queries, texts, targets) in enumerate(plan, 1):
        with autocast(device):
            asked, t1 = _encode(model, tokenizer, queries, settings.query_tokens, device)
            told, t2 = _encode(model, tokenizer, texts, settings.text_tokens, device)
        logits = asked.float() @ told.float().T / settings.temperature
        loss = torch.nn.functional.cross_entropy(logits, torch.tensor(targets, device=device))
        if not math.isfinite(loss.item()):
            raise TrainingFailed(f"retriever: loss is {loss.item()} at step {step}; lower the rate")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(trained, 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        meter.step(t1 + t2)
        report({"step": step, "steps": len(plan), "loss": round(losses[-1], 4)})
    return model, losses, meter.figures()


def _batches(rows: list[dict], settings: RetrieverSettings) -> Any:
    """(queries, distinct texts, index of each query's text) per step, tools shuffled per epoch."""
    pairs_of: dict[str, list[dict]] = defaultdict(list)
    for row in rows:
        pairs_of[row["positive"]].append(row)
    text_of = {row["contract_digest"]: row["positive"] for row in rows}
    rng = random.Random(settings.seed)
    for _ in range(settings.epochs):
        order = rng.sample(sorted(pairs_of), len(pairs_of))
        for start in range(0, len(order), settings.tools):
            positives = order[start : start + settings.tools]
            texts = dict.fromkeys(positives)
            for positive in positives:
                near = json.loads(pairs_of[positive][0]["negatives"])
                near = [text_of[name] for name in near if name in text_of]
                texts.update(dict.fromkeys(rng.sample(near, min(settings.negatives, len(near)))))
            place = {text: i for i, text in enumerate(texts)}
            part = [row for positive in positives for row in pairs_of[positive]]
            if len(place) > 1:
                targets = [place[row["positive"]] for row in part]
                yield [row["instruction"] for row in part], list(texts), targets


def _encode(
    model: Any, tokenizer: Any, texts: Sequence[str], length: int, device: str
) -> tuple[Any, int]:
    """Unit vectors by masked mean pooling, and how many tokens went in."""
    import torch

    batch = tokenizer(
        list(texts), padding=True, truncation=True, max_length=length, return_tensors="pt"
    ).to(device)
    hidden = model(**batch).last_hidden_state
    mask = batch["attention_mask"].unsqueeze(-1).to(hidden.dtype)
    pooled = (hidden * mask).sum(1) / mask.sum(1)
    return torch.nn.functional.normalize(pooled, dim=-1), int(batch["attention_mask"].sum())


def _adapted(model: Any, settings: RetrieverSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    layers = model.config.num_hidden_layers
    return get_peft_model(
        model,
        LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=["query", "key", "value", "dense"],
            exclude_modules=["pooler.dense"],
            layers_to_transform=list(range(settings.first_layer, layers)),
        ),
    )


def _warm_cosine(step: int, steps: int) -> float:
    warm = max(1, round(0.1 * steps))
    if step < warm:
        return (step + 1) / warm
    return 0.5 * (1 + math.cos(math.pi * (step - warm) / max(1, steps - warm)))


def _save(model: Any, folder: Path) -> None:
    model.save_pretrained(str(folder))
    (folder / "README.md").unlink(missing_ok=True)
