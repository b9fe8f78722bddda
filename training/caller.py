"""The caller: LoRA fine-tuning of a causal language model on instruction and call pairs.

What belongs here: batches with loss on the call only, the training loop, generating calls. What
does not: prompts (`render.py`), the tiny base (`tiny.py`), measuring (`evaluate_caller.py`).

`base` is "tiny" (pretrained here, cached by digest), a local folder, or a hub id such as
Qwen/Qwen3-0.6B: the code is the same.
"""

import json
import math
import random
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from training.batches import collate, learning_rate
from training.device import Meter, autocast, pick_device, seed_everything
from training.models import Job, TrainingFailed, card, model_folder, save_model
from training.render import BadTemplate, candidates, render, tool_schema
from training.tiny import (
    DESCRIPTION_WORDS,
    TINY,
    TinySettings,
    base_name,
    find_base,
    make_base,
)

Report = Callable[[dict[str, Any]], None]


@dataclass(frozen=True)
class CallerSettings:
    """Hyper-parameters; together with the training set and the base they name the adapter."""

    rank: int = 16
    alpha: int = 32
    dropout: float = 0.0
    learning_rate: float = 2e-3
    epochs: int = 1
    batch: int = 16
    accumulate: int = 1
    candidates: int = 4
    context: int = 512
    seed: int = 7
    device: str = "auto"
    threads: int | None = None
    tiny: dict[str, Any] = field(default_factory=dict)  # TinySettings, for base "tiny"


def train_caller(job: Job, report: Report) -> dict[str, Any]:
    """Trains and saves `<home>/models/<name>`; returns its card. A finished model is not redone.

    Raises TrainingFailed: nothing to learn from, a base that does not load, a tokenizer without a
    chat template, or a loss that is not a number.
    """
    done = card(job.home, job.name)
    if done:
        return {**done, "cached": True}
    if not job.rows:
        raise TrainingFailed("caller: the training split is empty; check the accepted pairs")
    settings = CallerSettings(**job.settings)
    device = pick_device(settings.device)
    wanted = resolved_base(job.home, job.base, job.rows, settings)
    small = wanted.startswith(f"{TINY}:")
    base, tiny = _base(job, wanted, settings, report)
    seed_everything(settings.seed, settings.threads)
    model, tokenizer = load_base(base, device)
    texts = _texts(job.rows, tokenizer, settings, short=small)
    adapted = _adapted(model, settings)
    losses, figures = _fit(adapted, tokenizer, texts, settings, report, device)
    tenth = max(1, len(losses) // 10)
    made = {
        "role": job.role,
        "name": job.name,
        "base": TINY if small else base,
        "base_name": Path(base).name if small else base,
        "training_set": job.training_set,
        "settings": asdict(settings),
        "pairs": len(job.rows),
        "loss_first": round(sum(losses[:tenth]) / tenth, 4),
        "loss_last": round(sum(losses[-tenth:]) / tenth, 4),
        "losses": losses,
        "pretraining": tiny,
        **figures,
    }
    save_model(job.home, job.name, made, lambda folder: adapted.save_pretrained(str(folder)))
    return {**made, "cached": False}


def resolved_base(
    home: Path, base: str, rows: Sequence[Mapping[str, Any]], settings: CallerSettings
) -> str:
    """`base`, with "tiny" made exact: "tiny:<name>" of the base that these rows are trained on.

    A base that saw most of their contracts is reused; its name is part of the adapter's name, so
    that two adapters over two bases are never taken for one.
    """
    if base != TINY:
        return base
    contracts = _contracts(rows)
    known = find_base(home, contracts)
    return f"{TINY}:{known or base_name(contracts, TinySettings(**settings.tiny))}"


def load_base(base: str, device: str) -> tuple[Any, Any]:
    """(model, tokenizer) of a folder or hub id. Raises TrainingFailed naming it."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    kind = torch.bfloat16 if device == "cuda" else torch.float32
    try:
        tokenizer = AutoTokenizer.from_pretrained(base)
        model: Any = AutoModelForCausalLM.from_pretrained(base, dtype=kind)
    except (OSError, ValueError) as error:
        raise TrainingFailed(
            f"caller base {base!r} does not load: {str(error).splitlines()[0]}; expected 'tiny', a"
            " folder with a causal model and its tokenizer, or a hub id"
        ) from error
    if tokenizer.pad_token_id is None:
        tokenizer.pad_token = tokenizer.eos_token
    return model.to(device), tokenizer


def load_caller(home: Path, name: str, device: str = "cpu") -> tuple[Any, Any, dict[str, Any]]:
    """(model with its adapter, tokenizer, card) of a trained caller, ready to generate."""
    from peft import PeftModel

    made = card(home, name)
    if made is None:
        raise TrainingFailed(f"caller {name[:12]}: no finished model in {model_folder(home, name)}")
    tiny = made["base"] == TINY
    base = str(model_folder(home, made["base_name"])) if tiny else made["base_name"]
    model, tokenizer = load_base(base, device)
    adapted = PeftModel.from_pretrained(model, str(model_folder(home, name)))
    return adapted.eval(), tokenizer, made


def generate(
    model: Any, tokenizer: Any, prompts: Sequence[str], *, max_new: int = 96, batch: int = 16
) -> list[str]:
    """Greedy completions, left-padded, in the order of the prompts."""
    import torch

    device = next(model.parameters()).device
    out = [""] * len(prompts)
    order = sorted(range(len(prompts)), key=lambda i: len(prompts[i]))
    tokenizer.padding_side = "left"
    for start in range(0, len(order), batch):
        part = order[start : start + batch]
        fed = tokenizer(
            [prompts[i] for i in part], padding=True, return_tensors="pt", add_special_tokens=False
        ).to(device)
        fed.pop("token_type_ids", None)
        with torch.no_grad():
            made = model.generate(
                **fed, max_new_tokens=max_new, do_sample=False, pad_token_id=tokenizer.pad_token_id
            )
        for i, row in zip(part, made[:, fed["input_ids"].shape[1] :], strict=True):
            out[i] = tokenizer.decode(row, skip_special_tokens=True)
    return out


def _base(
    job: Job, wanted: str, settings: CallerSettings, report: Report
) -> tuple[str, dict[str, Any] | None]:
    """The base's folder or hub id, and the card of its pretraining when it is the tiny one."""
    kind, _, name = wanted.partition(":")
    if kind != TINY:
        return wanted, None
    if card(job.home, name) is None:
        tiny = TinySettings(**settings.tiny)
        place = {"device": settings.device, "threads": settings.threads}
        made = make_base(job.home, _contracts(job.rows), tiny, report, **place)
        if made["name"] != name:
            raise TrainingFailed(
                f"caller base {wanted[:20]} is gone; train on the current set again"
            )
    kept = {k: v for k, v in (card(job.home, name) or {}).items() if k != "contracts"}
    return str(model_folder(job.home, name)), kept


def _contracts(rows: Sequence[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    return {row["contract_digest"]: json.loads(row["contract"]) for row in rows}


def _texts(
    rows: Sequence[Mapping[str, Any]], tokenizer: Any, settings: CallerSettings, *, short: bool
) -> list[tuple[str, str]]:
    pool = _contracts(rows)
    words = DESCRIPTION_WORDS if short else None
    try:
        return [
            render(
                tokenizer,
                [tool_schema(c, words) for c in candidates(row, pool, settings.candidates)],
                row["instruction"],
                {"name": row["tool"], "arguments": json.loads(row["arguments"])},
            )
            for row in rows
        ]
    except BadTemplate as error:
        raise TrainingFailed(f"caller: {error}") from error


def _adapted(model: Any, settings: CallerSettings) -> Any:
    from peft import LoraConfig, get_peft_model

    return get_peft_model(
        model,
        LoraConfig(
            r=settings.rank,
            lora_alpha=settings.alpha,
            lora_dropout=settings.dropout,
            target_modules=["q_proj", "k_proj", "v_proj", "o_proj"],
            task_type="CAUSAL_LM",
        ),
    ).train()


def _fit(
    model: Any,
    tokenizer: Any,
    texts: list[tuple[str, str]],
    settings: CallerSettings,
    report: Report,
    device: str,
) -> tuple[list[float], dict[str, Any]]:
    import torch

    trained = [weight for weight in model.parameters() if weight.requires_grad]
    optimizer = torch.optim.AdamW(trained, lr=settings.learning_rate)
    rng = random.Random(settings.seed)
    plan = []
    for _ in range(settings.epochs):
        order = rng.sample(texts, len(texts))
        plan += [order[i : i + settings.batch] for i in range(0, len(order), settings.batch)]
    updates = math.ceil(len(plan) / settings.accumulate)
    schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda s: learning_rate(s, updates))
    losses: list[float] = []
    meter = Meter(device)
    for step, part in enumerate(plan, 1):
        batch = collate(tokenizer, part, settings.context, device)
        with autocast(device):
            loss = model(**batch).loss
        if not math.isfinite(loss.item()):
            raise TrainingFailed(f"caller: loss is {loss.item()} at step {step}; lower the rate")
        (loss / settings.accumulate).backward()
        if step % settings.accumulate == 0 or step == len(plan):
            torch.nn.utils.clip_grad_norm_(trained, 1.0)
            optimizer.step()
            schedule.step()
            optimizer.zero_grad()
        losses.append(round(loss.item(), 4))
        meter.step(int(batch["attention_mask"].sum()))
        report({"step": step, "steps": len(plan), "loss": losses[-1]})
    return losses, meter.figures()
