"""The tiny base model: a Qwen3 of about a million weights, made here from tool contracts.

What belongs here: its tokenizer, its shape, the exercises it is pretrained on. What does not: the
LoRA training of pairs (`caller.py`).

It proves that the caller's path works where no pretrained model can be had. It is no evidence of
what a real base model would learn, and reports say so.

The exercises are written from contracts alone: some words of a tool's description stand for the
request, values are stated beside their parameter's name, and the call must choose and copy.
"""

import json
import random
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from assets.contracts.canonical import tool_text
from training.batches import collate, learning_rate
from training.device import Meter, autocast, pick_device, seed_everything
from training.models import card, save_model
from training.render import render, tool_schema
from warehouse.digest import digest

Contract = Mapping[str, Any]
TINY = "tiny"
DESCRIPTION_WORDS = 10
_KNOWN_SHARE = 0.7  # a base stays while it saw this share of the contracts it is used on
_TEMPLATE = (
    "{% for t in tools %}<|tool|>{{ t.function.name }} {{ t.function.description }}"
    "{% for n, p in t.function.parameters.properties.items() %} <|arg|>{{ n }}:{{ p.type }}"
    "{% endfor %}{% endfor %}"
    "{% for m in messages %}{% if m.role == 'user' %}<|user|>{{ m.content }}"
    "{% elif m.role == 'assistant' %}<|call|>"
    '{"name": "{{ m.tool_calls[0].function.name }}", "arguments": '
    "{{ m.tool_calls[0].function.arguments | tojson }}}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|call|>{% endif %}"
)
_SPECIAL = ["<|end|>", "<|tool|>", "<|arg|>", "<|user|>", "<|call|>", "<|pad|>"]


@dataclass(frozen=True)
class TinySettings:
    """Shape and pretraining of the tiny base; with the contracts they name it."""

    vocabulary: int = 1024
    width: int = 128
    layers: int = 2
    heads: int = 4
    context: int = 512
    steps: int = 400
    batch: int = 4
    candidates: int = 4
    rounds: int = 4  # requests about the same tools in one text
    learning_rate: float = 2e-3
    seed: int = 7


def find_base(home: Path, contracts: Mapping[str, Contract]) -> str | None:
    """The name of a finished tiny base that saw most of these contracts, or None.

    Reusing it keeps a night with a few new tools from pretraining again.
    """
    for path in sorted((home / "models").glob("*/model.json")):
        made = json.loads(path.read_bytes())
        seen = set(made.get("contracts", [])) if made.get("role") == TINY else set()
        if seen and len(seen & contracts.keys()) >= _KNOWN_SHARE * len(contracts):
            return made["name"]
    return None


def base_name(contracts: Mapping[str, Contract], settings: TinySettings) -> str:
    """The digest that names the base of these contracts: everything that makes it is in it."""
    return digest({"role": TINY, "settings": asdict(settings), "contracts": sorted(contracts)})


def make_base(
    home: Path,
    contracts: Mapping[str, Contract],
    settings: TinySettings,
    report: Any,
    *,
    device: str = "auto",
    threads: int | None = None,
) -> dict[str, Any]:
    """Pretrains `<home>/models/<base_name>` from contracts (digest -> contract, train servers
    only); returns its card. A finished one is not redone."""
    name = base_name(contracts, settings)
    done = card(home, name)
    if done:
        return {**done, "cached": True}
    used = pick_device(device)
    seed_everything(settings.seed, threads)
    listed = [contracts[key] for key in sorted(contracts)]
    tokenizer = _tokenizer([tool_text(c) for c in listed], settings)
    model = _model(tokenizer, settings).to(used).train()
    losses, figures = _pretrain(model, tokenizer, listed, settings, report, used)
    made = {
        "role": TINY,
        "name": name,
        "settings": asdict(settings),
        "contracts": sorted(contracts),
        "weights": sum(weight.numel() for weight in model.parameters()),
        "loss_first": losses[0],
        "loss_last": round(sum(losses[-20:]) / len(losses[-20:]), 4),
        **figures,
    }

    def fill(folder: Path) -> None:
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))

    save_model(home, name, made, fill)
    return {**made, "cached": False}


def exercise(
    rng: random.Random, contracts: Sequence[Contract], n: int, rounds: int = 1
) -> dict[str, Any]:
    """{tools, rounds: [(instruction, call)]}: made-up requests, each for another of up to `n`
    tools, so that a name is never copied from an earlier answer."""
    chosen = rng.sample(contracts, min(rng.randint(2, n), len(contracts)))
    asked = rng.sample(chosen, min(rounds, len(chosen)))
    return {
        "tools": [tool_schema(contract, DESCRIPTION_WORDS) for contract in chosen],
        "rounds": [_round(rng, gold) for gold in asked],
    }


def _round(rng: random.Random, gold: Contract) -> tuple[str, dict[str, Any]]:
    shown = tool_schema(gold, DESCRIPTION_WORDS)["function"]
    about = (shown["description"] or shown["name"]).split()
    kept = [word for word in about if rng.random() < 0.6] or about[:1]
    arguments, told = {}, []
    for name, schema in shown["parameters"]["properties"].items():
        value = _made_up(rng, schema["type"])
        said = value if isinstance(value, str) else json.dumps(value)
        arguments[name] = value
        told.append(rng.choice([f"{name} {said}", f"'{said}'", f"with {name} = {said}", said]))
    rng.shuffle(told)
    return ", ".join([" ".join(kept), *told]), {"name": gold["name"], "arguments": arguments}


def _lesson(tokenizer: Any, made: Mapping[str, Any]) -> tuple[str, str]:
    """An exercise as text to learn whole: the tools once, then every request with its call."""
    tools, text = made["tools"], ""
    for instruction, call in made["rounds"]:
        text += "".join(render(tokenizer, tools, instruction, call))
        tools = []
    return "", text


def _made_up(rng: random.Random, kind: str) -> Any:
    word = "".join(rng.choice("abcdefghiklmnoprstuw") for _ in range(rng.randint(3, 6)))
    if kind == "integer":
        return rng.randint(0, 500)
    if kind == "number":
        return rng.choice([rng.randint(0, 500), round(rng.uniform(0, 100), 1)])
    if kind == "boolean":
        return rng.random() < 0.5
    if kind == "array":
        return [word]
    if kind == "object":
        return {}
    number = rng.randint(1, 99)
    shapes = [word, f"{word} {word[::-1]}", f"/{word}/{word[:3]}.txt", f"{word}-{number}"]
    return rng.choice(shapes)


def _tokenizer(texts: Sequence[str], settings: TinySettings) -> Any:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers
    from transformers import PreTrainedTokenizerFast

    raw = Tokenizer(models.BPE())
    raw.pre_tokenizer = pre_tokenizers.Sequence(
        [pre_tokenizers.Digits(individual_digits=True), pre_tokenizers.ByteLevel(False)]
    )
    raw.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=settings.vocabulary,
        special_tokens=_SPECIAL,
        initial_alphabet=pre_tokenizers.ByteLevel.alphabet(),
        show_progress=False,
    )
    samples = [*texts, *(json.dumps({"name": "a_b", "arguments": {"a": "b"}}) for _ in range(50))]
    raw.train_from_iterator(samples, trainer)
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=raw, eos_token="<|end|>", pad_token="<|pad|>"
    )
    tokenizer.chat_template = _TEMPLATE
    return tokenizer


def _model(tokenizer: Any, settings: TinySettings) -> Any:
    from transformers import Qwen3Config, Qwen3ForCausalLM

    return Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=len(tokenizer),
            hidden_size=settings.width,
            intermediate_size=settings.width * 3,
            num_hidden_layers=settings.layers,
            num_attention_heads=settings.heads,
            num_key_value_heads=settings.heads,
            head_dim=settings.width // settings.heads,
            max_position_embeddings=settings.context,
            tie_word_embeddings=True,
            eos_token_id=tokenizer.eos_token_id,
            pad_token_id=tokenizer.pad_token_id,
            bos_token_id=None,
        )
    )


def _pretrain(
    model: Any, tokenizer: Any, contracts: list, settings: TinySettings, report: Any, device: str
) -> tuple[list[float], dict[str, Any]]:
    import torch

    rng = random.Random(settings.seed)
    optimizer = torch.optim.AdamW(
        model.parameters(), lr=settings.learning_rate, weight_decay=0.01, betas=(0.9, 0.98)
    )
    schedule = torch.optim.lr_scheduler.LambdaLR(
        optimizer, lambda step: learning_rate(step, settings.steps)
    )
    losses: list[float] = []
    meter = Meter(device)
    for step in range(1, settings.steps + 1):
        shape = (settings.candidates, settings.rounds)
        made = [exercise(rng, contracts, *shape) for _ in range(settings.batch)]
        texts = [_lesson(tokenizer, each) for each in made]
        batch = collate(tokenizer, texts, settings.context, device)
        with autocast(device):
            loss = model(**batch).loss
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        losses.append(round(loss.item(), 4))
        meter.step(int(batch["attention_mask"].sum()))
        report({"step": step, "steps": settings.steps, "pretrain_loss": losses[-1]})
    return losses, meter.figures()
