"""Builds the tiny base and writes it into the package: `python -m training.caller.tiny.build`.

A build that was stopped goes on from `<folder>.partial`.
"""

import argparse
import json
import math
import random
import shutil
import sys
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256
from importlib.metadata import version
from pathlib import Path
from statistics import fmean
from typing import Any

from training.caller.generation import generate_completions
from training.caller.tiny.base import FOLDER, RECIPE, WEIGHTS
from training.caller.tiny.corpus import (
    CALL,
    END,
    LEADS,
    USER,
    CallExercise,
    Contract,
    InventedTool,
    load_words,
    make_exercise,
    make_servers,
    make_tokenizer,
)
from training.prompts.call_text import parse_calls
from training.prompts.render import NO_CALL
from training.runtime.model_store import TrainingFailed
from warehouse.statistics import wilson_interval
from warehouse.storage.files import hash_file

Batch = list[CallExercise] | list[list[int]]


@dataclass(frozen=True)
class TinyRecipe:
    """Shape, data and rates of the tiny base; equal recipes make equal data."""

    seed: int = 7
    servers: int = 1500  # invented, of 6 to 24 tools
    held_out: int = 100  # of them only tested on
    vocabulary: int = 800  # pieces; each is there with and without a space before it
    width: int = 128
    layers: int = 3
    heads: int = 4
    head: int = 32
    theta: float = 1e6
    context: int = 4096
    spread: float = 0.05  # standard deviation of the first weights
    echo_steps: int = 450  # lines of random pieces that are said twice: copying
    echo_share: float = 0.15  # of later steps that are such lines
    echo_tokens: int = 1500  # of such a step
    echo_most: int = 12  # pieces of a line, from 3 at first
    steps: int = 2000  # the first ones included
    growing: float = 0.5  # share of the steps after the first within which tools grow from 1 to all
    most_tools: int = 10
    tokens: int = 2500  # of a step, about
    learning_rate: float = 3e-3
    warmup: int = 40  # steps
    decay: float = 0.5  # share of the steps in which the rate falls to a twentieth
    weight_decay: float = 0.01


def split_servers(recipe: TinyRecipe) -> tuple[list[list[InventedTool]], list[list[InventedTool]]]:
    """(servers that are learned from, held-out servers); no tool name is in both."""
    servers = make_servers(recipe.seed, recipe.servers)
    return servers[recipe.held_out :], servers[: recipe.held_out]


def make_batches(
    recipe: TinyRecipe, servers: Sequence[Sequence[InventedTool]], first: int = 0
) -> Iterator[Batch]:
    """The batch of each step from `first` on; a batch depends on the recipe and its step alone."""
    for step in range(first, recipe.steps):
        rng = random.Random(f"{recipe.seed}:{step}")
        if step < recipe.echo_steps or rng.random() < recipe.echo_share:
            yield _make_echoes(rng, recipe, step)
            continue
        n = compute_max_tools(step, recipe)
        rows = max(3, recipe.tokens // (70 + 35 * n))
        yield [make_exercise(rng, servers, n) for _ in range(rows)]


def compute_max_tools(step: int, recipe: TinyRecipe) -> int:
    """How many tools a request of this step is shown with at most."""
    after = step - recipe.echo_steps
    done = after / max(1.0, recipe.growing * (recipe.steps - recipe.echo_steps))
    return 1 + int((recipe.most_tools - 1) * min(1.0, max(0.0, done)))


def compute_rate_share(step: int, recipe: TinyRecipe) -> float:
    """The share of the learning rate at a step."""
    left = (recipe.steps - step) / max(1.0, recipe.decay * recipe.steps)
    return min(1.0, (step + 1) / recipe.warmup, max(0.05, left))


def digest_data(recipe: TinyRecipe) -> str:
    """SHA-256 of every batch and of the held-out servers."""
    learned, held = split_servers(recipe)
    made = sha256(json.dumps([[tool.contract for tool in own] for own in held]).encode())
    for batch in make_batches(recipe, learned):
        plain = [each if isinstance(each, list) else asdict(each) for each in batch]
        made.update(json.dumps(plain).encode())
    return made.hexdigest()


def _make_echoes(rng: random.Random, recipe: TinyRecipe, step: int) -> list[list[int]]:
    """Lines of one length, each piece a number from 0 to below the size of the vocabulary."""
    most = 3 + int((recipe.echo_most - 3) * min(1.0, step / max(1.0, 0.7 * recipe.echo_steps)))
    length = rng.randint(3, most)
    rows = max(1, recipe.echo_tokens // (2 * length + 2))
    return [[rng.randrange(recipe.vocabulary * 3) for _ in range(length)] for _ in range(rows)]


_EVERY = 100  # steps between checkpoints


@dataclass(frozen=True)
class TinyTraining:
    """A trained model and its tokenizer."""

    model: Any
    tokenizer: Any


def train_tiny_base(recipe: TinyRecipe, root: Path, threads: int) -> TinyTraining:
    """Trains for the recipe's steps, from the last checkpoint under `root` if there is one. Raises
    TrainingFailed on a loss that is not a number."""
    import torch

    torch.set_num_threads(threads)
    learned, _ = split_servers(recipe)
    tokenizer = train_tokenizer(recipe, learned)
    model = make_model(tokenizer, recipe)
    optimizer = torch.optim.AdamW(
        model.parameters(), recipe.learning_rate, (0.9, 0.98), weight_decay=recipe.weight_decay
    )
    first = _load_train_state(root, model, optimizer)
    began, tokens, losses = time.monotonic(), 0, list[float]()
    for step, batch in enumerate(make_batches(recipe, learned, first), first):
        for group in optimizer.param_groups:
            group["lr"] = recipe.learning_rate * compute_rate_share(step, recipe)
        ids, mask = encode_batch(tokenizer, batch, recipe.context)
        loss = compute_answer_loss(model, ids, mask)
        if not math.isfinite(loss.item()):
            raise TrainingFailed(f"tiny base: loss is {loss.item()} at step {step + 1}")
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        optimizer.step()
        optimizer.zero_grad()
        losses.append(loss.item())
        tokens += ids.numel()
        if (step + 1) % _EVERY == 0 or step + 1 == recipe.steps:
            _save_train_state(root, step + 1, model, optimizer)
            took = time.monotonic() - began
            sys.stderr.write(
                f"step {step + 1}/{recipe.steps} loss {fmean(losses[-_EVERY:]):.3f}"
                f" {tokens / took:.0f} tokens/s {took:.0f} s\n"
            )
    return TinyTraining(model.eval(), tokenizer)


def train_tokenizer(recipe: TinyRecipe, servers: Sequence[Sequence[InventedTool]]) -> Any:
    """A tokenizer of the exercises' words and values."""
    rng = random.Random(recipe.seed)
    made = [make_exercise(rng, servers, 3) for _ in range(4000)]
    texts = [each.request for each in made]
    texts += [f"{tool['name']} {tool['description']}" for each in made for tool in each.tools]
    words = load_words()
    texts += [" ".join(words[kind]) for kind in ("common", "objects", "adjectives")] * 40
    return make_tokenizer(texts, recipe.vocabulary)


def make_model(tokenizer: Any, recipe: TinyRecipe) -> Any:
    """A Qwen3 of the recipe's shape at random weights; `Title` and ` title` begin near `title`."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    torch.manual_seed(recipe.seed)
    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=recipe.width,
        intermediate_size=recipe.width * 2,
        num_hidden_layers=recipe.layers,
        num_attention_heads=recipe.heads,
        num_key_value_heads=recipe.heads,
        head_dim=recipe.head,
        max_position_embeddings=recipe.context,
        rope_parameters={"rope_type": "default", "rope_theta": recipe.theta},
        attention_bias=True,  # heads that look at a place, not at content, are learned sooner
        initializer_range=recipe.spread,
        tie_word_embeddings=True,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        bos_token_id=None,
    )
    model = Qwen3ForCausalLM(config)
    table, known = model.model.embed_tokens.weight, tokenizer.get_vocab()
    with torch.no_grad():
        for piece, at in sorted(known.items()):
            bare = piece[1:] if piece.startswith(LEADS) and len(piece) > 1 else piece
            stem = known.get(bare.lower(), at)
            if stem != at:
                table[at] = table[stem] + 0.5 * table[at]
    return model


def encode_batch(tokenizer: Any, batch: Batch, context: int) -> tuple[Any, Any]:
    """(ids, which of them are learned) of a batch, padded on the right."""
    import torch

    call = tokenizer.convert_tokens_to_ids(CALL)
    if isinstance(batch[0], list):
        user, end = (tokenizer.convert_tokens_to_ids(token) for token in (USER, END))
        rows = [[user, *line, call, *line, end] for line in batch]  # type: ignore[misc]
    else:
        texts = [as_text(tokenizer, each) for each in batch]  # type: ignore[arg-type]
        rows = [ids[:context] for ids in tokenizer(texts, add_special_tokens=False)["input_ids"]]
    longest = max(map(len, rows))
    ids = torch.full((len(rows), longest), tokenizer.pad_token_id)
    mask = torch.zeros(ids.shape, dtype=torch.bool)
    for at, row in enumerate(rows):
        ids[at, : len(row)] = torch.tensor(row)
        mask[at, row.index(call) + 1 : len(row)] = True
    return ids, mask


def compute_answer_loss(model: Any, ids: Any, mask: Any) -> Any:
    """Mean cross-entropy of the learned tokens; only their logits are made."""
    from torch.nn.functional import cross_entropy

    states = model.model(input_ids=ids).last_hidden_state[:, :-1]
    mask = mask[:, 1:]
    return cross_entropy(model.lm_head(states[mask]), ids[:, 1:][mask])


def as_text(tokenizer: Any, exercise: CallExercise, *, answered: bool = True) -> str:
    """An exercise through the chat template, with its answer or up to it."""
    calls = [{"type": "function", "function": call} for call in exercise.calls]
    answer = {"tool_calls": calls, "content": ""} if calls else {"content": NO_CALL}
    messages = [{"role": "user", "content": exercise.request}]
    messages += [{"role": "assistant", **answer}] if answered else []
    tools = [as_function(tool) for tool in exercise.tools]
    return tokenizer.apply_chat_template(
        messages, tools=tools, tokenize=False, add_generation_prompt=not answered
    )


def as_function(tool: Contract) -> dict[str, Any]:
    body = {"name": tool["name"], "description": tool["description"]}
    return {"type": "function", "function": {**body, "parameters": tool["inputSchema"]}}


def _save_train_state(root: Path, step: int, model: Any, optimizer: Any) -> None:
    import torch

    root.mkdir(parents=True, exist_ok=True)
    state = {"step": step, "model": model.state_dict(), "optimizer": optimizer.state_dict()}
    torch.save(state, root / "state.new")
    (root / "state.new").rename(root / "state.pt")


def _load_train_state(root: Path, model: Any, optimizer: Any) -> int:
    import torch

    if not (root / "state.pt").exists():
        return 0
    state = torch.load(root / "state.pt", weights_only=True)
    model.load_state_dict(state["model"])
    optimizer.load_state_dict(state["optimizer"])
    return state["step"]


CARD = "MODEL_CARD.md"
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")
_MEASURED = 300  # requests about held-out tools


def build_tiny_base(recipe: TinyRecipe, folder: Path, threads: int) -> dict[str, Any]:
    """Trains the base, measures it, and writes `folder`; returns what `recipe.json` holds."""
    partial = folder.with_name(f"{folder.name}.partial")
    made = train_tiny_base(recipe, partial, threads)
    shutil.rmtree(folder, ignore_errors=True)
    made.model.save_pretrained(str(folder))
    made.tokenizer.save_pretrained(str(folder))
    (folder / "generation_config.json").unlink(missing_ok=True)
    names = sorted(path.name for path in folder.iterdir())
    facts = {
        "recipe": asdict(recipe),
        "data": digest_data(recipe),
        "files": {name: hash_file(folder / name) for name in names},
        "weights": sum(weight.numel() for weight in made.model.parameters()),
        "libraries": {name: version(name) for name in LIBRARIES},
        "measured": measure_tiny_base(made, recipe),
    }
    (folder / RECIPE).write_text(json.dumps(facts, indent=1) + "\n")
    (folder / CARD).write_text(write_card(facts, (folder / WEIGHTS).stat().st_size))
    shutil.rmtree(partial)
    return facts


def measure_tiny_base(made: TinyTraining, recipe: TinyRecipe, n: int = _MEASURED) -> dict[str, Any]:
    """What the base does with requests about tools of held-out servers, `most_tools` shown: the
    loss, and the shares of answers that are a JSON call, name a tool that is shown, name the right
    one, are right whole."""
    _, held = split_servers(recipe)
    rng = random.Random(recipe.seed + 1)
    exercises = _draw_calls(rng, held, recipe.most_tools, n)
    prompts = [as_text(made.tokenizer, each, answered=False) for each in exercises]
    answers = [
        parse_calls(text).calls
        for text in generate_completions(made.model, made.tokenizer, prompts)
    ]
    right = [each.calls[0] for each in exercises]
    pairs = list(zip(answers, right, strict=True))
    return {
        "items": n,
        "tools_shown": recipe.most_tools,
        "loss": round(measure_loss(made, recipe, exercises[:50]), 4),
        "calls": _describe_share(sum(bool(calls) for calls in answers), n),
        "shown": _describe_share(
            sum(
                bool(calls) and calls[0].get("name") in {tool["name"] for tool in each.tools}
                for calls, each in zip(answers, exercises, strict=True)
            ),
            n,
        ),
        "tool": _describe_share(
            sum(bool(c) and c[0].get("name") == call["name"] for c, call in pairs), n
        ),
        "exact": _describe_share(sum(calls == [call] for calls, call in pairs), n),
    }


def _describe_share(hits: int, n: int) -> dict[str, float | int]:
    """A share with Wilson's 95% interval, in the shape of the other figures of the package."""
    low, high = wilson_interval(hits, n)
    return {"value": round(hits / n, 6), "low": round(low, 6), "high": round(high, 6), "n": n}


def measure_loss(made: TinyTraining, recipe: TinyRecipe, exercises: Sequence[Any]) -> float:
    """Mean cross-entropy of the answers' tokens."""
    import torch

    ids, mask = encode_batch(made.tokenizer, list(exercises), recipe.context)
    with torch.inference_mode():
        return float(compute_answer_loss(made.model, ids, mask))


def write_card(facts: Mapping[str, Any], size: int) -> str:
    """The model card: what the base is, what it was made of, what it can and cannot do."""
    recipe, found = facts["recipe"], facts["measured"]

    def figure(name: str) -> str:
        one = found[name]
        return f"{one['value']:.3f} [{one['low']:.3f}, {one['high']:.3f}]"

    return f"""# Tiny base

A Qwen3 of {facts["weights"]:,} weights ({size / 1e6:.1f} MB, float32), trained from random weights
by `make tiny-base`. It proves that training, saving, loading, generating and scoring of a caller
work where no pretrained model can be had. It is of no use for work and no evidence of what a
pretrained base would learn.

## Data

{recipe["servers"]} invented servers (`contracts.py`, `words.json`), requests about their tools
(`exercises.py`), seed {recipe["seed"]}. No contract, name or request of a marketplace, of the demo
or of an evaluation set is in it. SHA-256 of the data: `{facts["data"]}`.

## Training

AdamW for {recipe["steps"]} steps, a rate of {recipe["learning_rate"]}: {recipe["echo_steps"]} steps
of lines of random pieces said twice, then requests with 1 to {recipe["most_tools"]} tools shown.
Weights: `{facts["files"][WEIGHTS]}`. Everything else is in `{RECIPE}`.

## Measured

{found["items"]} requests about tools of {recipe["held_out"]} held-out servers, greedy answers,
{found["tools_shown"]} tools shown; shares with 95% intervals (Wilson). Picking a tool at random
is right for one in {found["tools_shown"]}.

- an answer that is a JSON call: {figure("calls")}
- the name of a tool that is shown, copied piece by piece: {figure("shown")}
- the right tool: {figure("tool")}
- the right call, every argument: {figure("exact")}
- loss of an answer's token: {found["loss"]}

License: Apache-2.0.
"""


def _draw_calls(
    rng: random.Random, servers: Sequence[Sequence[InventedTool]], tools: int, n: int
) -> list[Any]:
    """`n` exercises with one right call and exactly `tools` tools shown."""
    results: list[Any] = []
    while len(results) < n:
        exercise = make_exercise(rng, servers, tools)
        if len(exercise.calls) == 1 and len(exercise.tools) == tools:
            results.append(exercise)
    return results


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the base; its figures on stdout."""
    parser = argparse.ArgumentParser(prog="tiny-base", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--threads", type=int, default=1)
    args = parser.parse_args(arguments)
    tiny_base = build_tiny_base(TinyRecipe(), args.folder, args.threads)
    sys.stdout.write(json.dumps(tiny_base["measured"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
