"""Builds the tiny base and writes it into the package: `python -m training.caller.tiny.build`.

A build that was stopped goes on from `<folder>.partial`.
"""

import argparse
import json
import random
import shutil
import sys
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from importlib.metadata import version
from pathlib import Path
from typing import Any

from training.caller.generation import generate_completions
from training.caller.tiny.base import FOLDER, RECIPE, WEIGHTS
from training.caller.tiny.contracts import Tool
from training.caller.tiny.exercises import make_exercise
from training.caller.tiny.recipe import Recipe, digest_data, split_servers
from training.caller.tiny.train_base import (
    Trained,
    as_text,
    compute_answer_loss,
    encode_batch,
    train_tiny_base,
)
from training.prompts.parse_calls import parse_calls
from warehouse.statistics import wilson_interval
from warehouse.storage.files import hash_file

CARD = "MODEL_CARD.md"
LIBRARIES = ("torch", "transformers", "tokenizers", "safetensors")
_MEASURED = 300  # requests about held-out tools


def build_tiny_base(recipe: Recipe, folder: Path, threads: int) -> dict[str, Any]:
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


def measure_tiny_base(made: Trained, recipe: Recipe, n: int = _MEASURED) -> dict[str, Any]:
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


def measure_loss(made: Trained, recipe: Recipe, exercises: Sequence[Any]) -> float:
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
    rng: random.Random, servers: Sequence[Sequence[Tool]], tools: int, n: int
) -> list[Any]:
    """`n` exercises with one right call and exactly `tools` tools shown."""
    made: list[Any] = []
    while len(made) < n:
        one = make_exercise(rng, servers, tools)
        if len(one.calls) == 1 and len(one.tools) == tools:
            made.append(one)
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Builds the base; its figures on stdout."""
    parser = argparse.ArgumentParser(prog="tiny-base", description=__doc__)
    parser.add_argument("--folder", type=Path, default=FOLDER)
    parser.add_argument("--threads", type=int, default=1)
    asked = parser.parse_args(arguments)
    made = build_tiny_base(Recipe(), asked.folder, asked.threads)
    sys.stdout.write(json.dumps(made["measured"]) + "\n")
    return 0


if __name__ == "__main__":
    sys.exit(main())
