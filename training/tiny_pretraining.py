"""Pretraining of the tiny base: exercises in, weights out.

What belongs here: the loss, the loop, going on after a kill. What does not: exercises
(`tiny_exercises.py`), text (`tiny_text.py`), first weights (`tiny_model.py`).

The loss is on the answers alone, more of it on the choice of the tool. Beside it, every word of a
request is asked which tool is meant: 30 signals a request instead of one, and the choice is what is
hardest to learn. Several requests share one showing of the tools, which costs a third of the tokens
of one request each. Muon moves the matrices, AdamW the rest.
"""

import math
import random
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from training import checkpoints
from training.device import Meter, autocast
from training.models import TrainingFailed
from training.render import NO_CALL
from training.tiny_exercises import Material, exercise
from training.tiny_text import CALL, END, MARKS, NONE, USER

Report = Callable[[dict[str, Any]], None]
_CHOICE = 5.0  # weight of the token that chooses, beside 1 for each other of an answer
_STATE = "state.pt"
_EVERY = 100  # steps between checkpoints
_OTHER_MARKS = 0.3  # share of texts whose marks are others than 1, 2, 3 …


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
        n = tools_at(step, settings)
        texts = [lesson.made(rng, material, n) for _ in range(settings.batch)]
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
    """How many tools a text of this step shows: from 2 to all within the first `growing` share."""
    grown = min(1.0, step / max(1.0, settings.growing * settings.steps))
    return 2 + int((settings.candidates - 2) * grown)


class Lessons:
    """Exercises as tokens, what each token counts, and which mark each word of a request means."""

    def __init__(self, tokenizer: Any, settings: Any) -> None:
        self._tokenizer, self._settings = tokenizer, settings
        one = tokenizer.convert_tokens_to_ids
        self._user, self._call, self._end, self._none = (one(t) for t in (USER, CALL, END, NONE))
        self._marks = [one(f"<|t{i}|>") for i in range(1, MARKS + 1)]
        self._place = {mark: at for at, mark in enumerate([*self._marks, self._none])}

    def made(self, rng: random.Random, material: Material, n: int) -> tuple[list, list, list]:
        tools, rounds = exercise(rng, material, n, self._settings.rounds)
        text = self._tokenizer.apply_chat_template(
            _messages(rounds), tools=[_function(tool) for tool in tools], tokenize=False
        )
        ids = self._tokenizer(text, add_special_tokens=False)["input_ids"]
        if rng.random() < _OTHER_MARKS:
            other = dict(zip(self._marks, rng.sample(self._marks, MARKS), strict=True))
            ids = [other.get(each, each) for each in ids]
        return self.labelled(ids[: self._settings.context])

    def labelled(self, ids: list[int]) -> tuple[list[int], list[float], list[int]]:
        """(ids, the weight of each as a target, the place of the mark that each word means or
        -1)."""
        weights, meant = [0.0] * len(ids), [-1] * len(ids)
        asked: list[int] = []
        where = ""
        for at, each in enumerate(ids):
            if where == "answer":
                weights[at] = _CHOICE if each in self._place else 1.0
                if each in self._place and asked:
                    for word in asked:
                        meant[word] = self._place[each]
                    asked = []
            elif where == "request" and each != self._call:
                asked.append(at)
            if each == self._user:
                where, asked = "request", []
            elif each == self._call:
                where = "answer"
            elif each == self._end:
                where = ""
        return ids, weights, meant

    def loss(self, model: Any, texts: list[tuple[list, list, list]], device: str) -> Any:
        """(loss, tokens) of a batch. Padding is at the right, where nothing looks."""
        import torch
        from torch.nn.functional import cross_entropy

        longest = max(len(ids) for ids, _, _ in texts)

        def even(column: int, filler: float, kind: Any) -> Any:
            rows = [t[column] + [filler] * (longest - len(t[column])) for t in texts]
            return torch.tensor(rows, dtype=kind, device=device)

        ids = even(0, self._tokenizer.pad_token_id, torch.long)
        weights, meant = even(1, 0.0, torch.float)[:, 1:], even(2, -1, torch.long)[:, :-1]
        # The logits of the answers alone: those of all tokens would double the time of a step.
        states = model.model(input_ids=ids).last_hidden_state[:, :-1]
        told = weights > 0
        each = cross_entropy(model.lm_head(states[told]), ids[:, 1:][told], reduction="none")
        loss = (each * weights[told]).sum() / weights.sum().clamp(min=1)
        if (meant >= 0).any():
            table = model.lm_head.weight[torch.tensor(list(self._place), device=device)]
            loss = loss + cross_entropy(states[meant >= 0] @ table.T, meant[meant >= 0])
        return loss, sum(len(ids) for ids, _, _ in texts)


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
