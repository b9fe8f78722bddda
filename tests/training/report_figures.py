"""A run's figures for the report: summaries by the code that makes them, over made-up rows."""

import random
from functools import cache
from typing import Any

from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import PERTURBATIONS, PHANTOMS
from training.role import BASELINE

MODEL, OTHER = "8894887479aa5d6f" * 4, "1234567890abcdef" * 4
CARD = {
    "name": MODEL, "pairs": 12, "loss_first": 2.0, "loss_last": 1.0, "losses": [2.0, 1.5, 1.0],
    "steps": 3, "seconds": 1.5, "device": "cpu", "tokens_per_s": 10, "step_ms": 5.0, "peak_mb": 9,
    "base": "smollm2:abc",
}  # fmt: skip
MANIFEST = {
    "training_set": "s" * 64, "rows": {"train": 12, "unseen_server": 6},
    "tools": {"train": 4, "unseen_server": 2},
    "servers": {"train": ["a"], "unseen_server": ["b"]}, "dropped": {"leak": 1},
    "providers": {"offline": 18},
}  # fmt: skip


def figure(value: float, n: int = 90) -> dict[str, Any]:
    return {"value": value, "low": round(value - 0.1, 4), "high": round(value + 0.1, 4), "n": n}


def both(before: float = 0.4, after: float = 0.5) -> dict[str, Any]:
    return {"candidate": figure(after), "incumbent": figure(before)}


RECALL = {
    "candidate": MODEL, "incumbent": "base", "n": 90, "servers": 5, "tools": 30, "pool": 313,
    "recall_at_1": both(), "recall_at_5": both(0.6, 0.7), "gain_at_1": figure(0.1),
    "gain_at_5": figure(0.1),
}  # fmt: skip


def call_rows(model: str, skill: float, per_cell: int = 20) -> list[dict[str, Any]]:
    """Rows of every kind of item; `skill` is the share of right calls on unchanged items."""
    made = []
    for split, ease in (("seen_tool", 1.2), ("unseen_tool", 1.1), ("unseen_server", 1.0)):
        for candidates, most in ((10, 1), (100, 0.7)):
            for distractors, few in (("random", 1), ("hard", 0.8)):
                place = {"split": split, "candidates": candidates, "distractors": distractors}
                share = skill * ease * most * few
                made += [_row(model, share, n, **place) for n in range(per_cell)]
    base = {"split": "unseen_server", "candidates": 10, "distractors": "random"}
    for kind in PERTURBATIONS:
        made += [_row(model, skill * 0.8, n, perturbation=kind, **base) for n in range(per_cell)]
    for task in ("no_tool", "not_offered"):
        made += [_row(model, skill, n, task=task, **base) for n in range(per_cell)]
    for kind in PHANTOMS[:2]:
        made += [_row(model, skill, n, phantom=kind, **base) for n in range(per_cell)]
    return made


def _row(model: str, skill: float, number: int, **facts: Any) -> dict[str, Any]:
    held = {"task": "single", "perturbation": "none", "phantom": "", **facts}
    item = "|".join(map(str, (*held.values(), number)))
    rng = random.Random(f"{model}|{item}")
    right, tool = rng.random() < skill, rng.random() < skill + 0.3
    wrong = "wrong_value" if tool else "wrong_tool"
    return {
        **held, "model": model, "item_id": item, "pair_id": f"p{number}", "seed": 0,
        "server_id": f"s{number % 4}", "tool": f"t{number % 7}", "kind": "direct",
        "text_digest": f"d{number % 7}", "offered": held["candidates"],
        "shown": held["candidates"], "calls": 1, "known_calls": int(tool or right),
        "valid_calls": int(right), "parsed": True, "valid": right, "tool_ok": tool or right,
        "name_f1": 1.0 if right else 0.5 * tool, "value_f1": 1.0 if right else 0.2 * tool,
        "ast_ok": right, "error_kind": None if right else wrong,
        "failed": False, "prompt_tokens": 900, "completion_tokens": 30, "seconds": 0.25,
        "usd": 0.0, "training_set": "s" * 64,
    }  # fmt: skip


@cache
def calls(candidate: str = MODEL, incumbent: str = BASELINE) -> dict[str, Any]:
    skills = {MODEL: 0.55, BASELINE: 0.35, OTHER: 0.5}
    rows = [row for name in (candidate, incumbent) for row in call_rows(name, skills[name])]
    return summarise_calls(rows, candidate, incumbent)
