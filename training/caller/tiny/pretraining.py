"""Pretraining of the tiny base: exercises in, weights out.

First requests alone, with no tool shown: which words go with which name is learned there at some 60
tokens a request (two layers from random weights named the right one of 174 tools for 62% of the
held-out requests after 90 s on one core; with tools shown from the start, and the choice a pointer
to one of them, it stayed at chance). Then tools are shown in most texts, several requests about the
same ones, which costs a third of the tokens of one request each. The loss is on the answers, more
of it on names. Muon moves the matrices, AdamW the rest.
"""

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from training.caller.tiny.exercises import Material, exercise, request
from training.caller.tiny.text import AFTER_NAME, CALL, END, NAME, NONE
from training.prompts.render import NO_CALL
from training.runtime import checkpoints
from training.runtime.device import Meter, autocast
from training.runtime.model_store import TrainingFailed

Report = Callable[[dict[str, Any]], None]
_CHOICE = 3.0  # weight of a name's tokens, beside 1 for each other of an answer
_TRIES = 1000  # contracts, until one takes the values drawn for it
_STATE = "state.pt"
_EVERY = 100  # steps between checkpoints


def pretrain(
    model: Any,
    tokenizer: Any,
    material: Material,
    settings: Any,
    report: Report,
    device: str,
    root: Path,
    plan: str,
) -> tuple[list[float], dict[str, Any]]:
    """Trains `model` in place for `settings.steps`; returns (the loss of each step, figures).

    Goes on from the newest checkpoint under `root` that holds and is of this `plan`. Raises
    TrainingFailed on a loss that is not a number.
    """
    import torch

    rng = random.Random(settings.seed)
    lesson = Lessons(tokenizer, settings)
    optimizers = _optimizers(model, settings)
    losses: list[float] = []
    found = checkpoints.newest(root, plan, lambda line: report({"note": line}))
    if found:
        losses = _restored(found / _STATE, model, optimizers, rng)
    meter = Meter(device)
    for step in range(len(losses), settings.steps):
        rate = _rate(step, settings.steps)
        for optimizer in optimizers:
            for group in optimizer.param_groups:
                group["lr"] = group["initial_lr"] * rate
        texts = lesson.texts(rng, material, step)
        with autocast(device):
            loss, tokens = lesson.loss(model, texts, device)
        if not math.isfinite(loss.item()):
            raise TrainingFailed(
                f"tiny base: loss is {loss.item()} at step {step + 1}; lower tiny.learning_rate"
            )
        loss.backward()
        torch.nn.utils.clip_grad_norm_(model.parameters(), 1.0)
        for optimizer in optimizers:
            optimizer.step()
            optimizer.zero_grad()
        losses.append(round(loss.item(), 4))
        meter.step(tokens)
        report({"step": step + 1, "steps": settings.steps, "pretrain_loss": losses[-1]})
        if (step + 1) % _EVERY == 0 and step + 1 < settings.steps:
            checkpoints.save(
                root, step + 1, lambda to: _kept(to / _STATE, model, optimizers, rng, losses), plan
            )
    return losses, meter.figures()


def tools_at(step: int, settings: Any) -> int:
    """How many tools a text of this step shows: none at first, then from 2 to all."""
    over = step / settings.steps - settings.alone_first
    if over < 0:
        return 0
    return 2 + int((settings.candidates - 2) * min(1.0, over / max(1e-9, settings.growing)))


Text = tuple[list[int], list[float]]  # ids, and the weight of each as a target


class Lessons:
    """Exercises as tokens, and what each token counts."""

    def __init__(self, tokenizer: Any, settings: Any) -> None:
        self._tokenizer, self._settings = tokenizer, settings
        one = tokenizer.convert_tokens_to_ids
        self._call, self._end, self._none = (one(t) for t in (CALL, END, NONE))
        self._name = one(NAME)
        self._named = {one(after) for after in AFTER_NAME}

    def texts(self, rng: random.Random, material: Material, step: int) -> list[Text]:
        """A step's batch."""
        settings = self._settings
        n = tools_at(step, settings)
        if n == 0 or rng.random() < settings.alone:
            return [self.alone(rng, material) for _ in range(settings.alone_batch)]
        return [self.beside(rng, material, n) for _ in range(settings.batch)]

    def alone(self, rng: random.Random, material: Material) -> Text:
        """One request with its call; no tool is shown."""
        for _ in range(_TRIES):
            made = request(rng, rng.choice(material.contracts), material)
            if made:
                return self._text([], [(made[0], [made[1]])])
        raise TrainingFailed(
            f"tiny base: no value was found that any of {len(material.contracts)} contracts takes;"
            " check their input schemas"
        )

    def beside(self, rng: random.Random, material: Material, n: int) -> Text:
        """Requests about `n` tools that are shown."""
        return self._text(*exercise(rng, material, n, self._settings.rounds))

    def _text(self, tools: Any, rounds: Any) -> Text:
        text = self._tokenizer.apply_chat_template(
            _messages(rounds), tools=[_function(tool) for tool in tools], tokenize=False
        )
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        return self.weighed(ids[: self._settings.context])

    def weighed(self, ids: list[int]) -> Text:
        weights, where = [0.0] * len(ids), ""
        for at, each in enumerate(ids):
            if where:
                weights[at] = _CHOICE if where == "name" or each == self._none else 1.0
            if each == self._call:
                where = "answer"
            elif each == self._end:
                where = ""
            elif where and each == self._name:
                where = "name"
            elif where and each in self._named:
                where = "answer"
        return ids, weights

    def loss(self, model: Any, texts: list[Text], device: str) -> Any:
        """(loss, tokens) of a batch. Padding is at the right, where nothing looks."""
        import torch
        from torch.nn.functional import cross_entropy

        longest = max(len(ids) for ids, _ in texts)

        def even(column: int, filler: float, kind: Any) -> Any:
            rows = [t[column] + [filler] * (longest - len(t[column])) for t in texts]
            return torch.tensor(rows, dtype=kind, device=device)

        ids = even(0, self._tokenizer.pad_token_id, torch.long)
        weights = even(1, 0.0, torch.float)[:, 1:]
        # The logits of the answers alone: those of all tokens would double the time of a step.
        states = model.model(input_ids=ids).last_hidden_state[:, :-1]
        told = weights > 0
        each = cross_entropy(model.lm_head(states[told]), ids[:, 1:][told], reduction="none")
        loss = (each * weights[told]).sum() / weights.sum().clamp(min=1)
        return loss, sum(len(ids) for ids, _ in texts)


def _messages(rounds: list) -> list[dict[str, Any]]:
    out: list[dict[str, Any]] = []
    for said, calls in rounds:
        out.append({"role": "user", "content": said})
        listed = [{"type": "function", "function": call} for call in calls]
        answer = {"tool_calls": listed, "content": ""} if calls else {"content": NO_CALL}
        out.append({"role": "assistant", **answer})
    return out


def _function(tool: Mapping[str, Any]) -> dict[str, Any]:
    body = {"name": tool["name"], "description": tool.get("description", "")}
    return {"type": "function", "function": {**body, "parameters": tool.get("inputSchema") or {}}}


def _optimizers(model: Any, settings: Any) -> list[Any]:
    import torch

    matrices, rest = [], []
    for name, weight in model.named_parameters():
        (matrices if weight.ndim == 2 and "embed" not in name else rest).append(weight)
    muon = torch.optim.Muon(matrices, lr=settings.matrix_rate, weight_decay=0.0)
    adam = torch.optim.AdamW(rest, lr=settings.learning_rate, weight_decay=0.0, betas=(0.9, 0.98))
    for optimizer in (muon, adam):
        for group in optimizer.param_groups:
            group["initial_lr"] = group["lr"]
    return [muon, adam]


def _rate(step: int, steps: int) -> float:
    """Warm-up over 20 steps, all of it to a third, then down in a line."""
    done = step / max(1, steps)
    return min(1.0, (step + 1) / 20) * (1.0 if done < 0.3 else max(0.02, 1 - (done - 0.3) / 0.7))


def _kept(path: Path, model: Any, optimizers: list, rng: random.Random, losses: list) -> None:
    import torch

    state = {"model": model.state_dict(), "optimizers": [o.state_dict() for o in optimizers]}
    torch.save({**state, "random": rng.getstate(), "losses": losses}, path)


def _restored(path: Path, model: Any, optimizers: list, rng: random.Random) -> list[float]:
    import torch

    state = torch.load(path, weights_only=True)
    model.load_state_dict(state["model"])
    for optimizer, kept in zip(optimizers, state["optimizers"], strict=True):
        optimizer.load_state_dict(kept)
    rng.setstate(state["random"])
    return state["losses"]
