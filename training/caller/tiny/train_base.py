"""Training of the tiny base: a recipe's batches in, weights out; stopped, it goes on."""

import math
import random
import sys
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from statistics import fmean
from typing import Any

from training.caller.tiny.contracts import Contract, Tool, load_words
from training.caller.tiny.exercises import Exercise, make_exercise
from training.caller.tiny.recipe import (
    Batch,
    Recipe,
    compute_rate_share,
    make_batches,
    split_servers,
)
from training.caller.tiny.text import CALL, END, LEADS, USER, make_tokenizer
from training.prompts.render import NO_CALL
from training.runtime.model_store import TrainingFailed

_EVERY = 100  # steps between checkpoints


@dataclass(frozen=True)
class Trained:
    """A trained model and its tokenizer."""

    model: Any
    tokenizer: Any


def train_tiny_base(recipe: Recipe, root: Path, threads: int) -> Trained:
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
    return Trained(model.eval(), tokenizer)


def train_tokenizer(recipe: Recipe, servers: Sequence[Sequence[Tool]]) -> Any:
    """A tokenizer of the exercises' words and values."""
    rng = random.Random(recipe.seed)
    made = [make_exercise(rng, servers, 3) for _ in range(4000)]
    texts = [each.request for each in made]
    texts += [f"{tool['name']} {tool['description']}" for each in made for tool in each.tools]
    words = load_words()
    texts += [" ".join(words[kind]) for kind in ("common", "objects", "adjectives")] * 40
    return make_tokenizer(texts, recipe.vocabulary)


def make_model(tokenizer: Any, recipe: Recipe) -> Any:
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


def as_text(tokenizer: Any, exercise: Exercise, *, answered: bool = True) -> str:
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
