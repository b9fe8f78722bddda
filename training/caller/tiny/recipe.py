"""How the tiny base is made: shape, data and rates; the batches that they stand for."""

import json
import random
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass
from hashlib import sha256

from training.caller.tiny.contracts import Tool, make_servers
from training.caller.tiny.exercises import Exercise, make_exercise

Batch = list[Exercise] | list[list[int]]


@dataclass(frozen=True)
class Recipe:
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


def split_servers(recipe: Recipe) -> tuple[list[list[Tool]], list[list[Tool]]]:
    """(servers that are learned from, held-out servers); no tool name is in both."""
    made = make_servers(recipe.seed, recipe.servers)
    return made[recipe.held_out :], made[: recipe.held_out]


def make_batches(
    recipe: Recipe, servers: Sequence[Sequence[Tool]], first: int = 0
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


def compute_max_tools(step: int, recipe: Recipe) -> int:
    """How many tools a request of this step is shown with at most."""
    after = step - recipe.echo_steps
    done = after / max(1.0, recipe.growing * (recipe.steps - recipe.echo_steps))
    return 1 + int((recipe.most_tools - 1) * min(1.0, max(0.0, done)))


def compute_rate_share(step: int, recipe: Recipe) -> float:
    """The share of the learning rate at a step."""
    left = (recipe.steps - step) / max(1.0, recipe.decay * recipe.steps)
    return min(1.0, (step + 1) / recipe.warmup, max(0.05, left))


def digest_data(recipe: Recipe) -> str:
    """SHA-256 of every batch and of the held-out servers."""
    learned, held = split_servers(recipe)
    made = sha256(json.dumps([[tool.contract for tool in own] for own in held]).encode())
    for batch in make_batches(recipe, learned):
        plain = [each if isinstance(each, list) else asdict(each) for each in batch]
        made.update(json.dumps(plain).encode())
    return made.hexdigest()


def _make_echoes(rng: random.Random, recipe: Recipe, step: int) -> list[list[int]]:
    """Lines of one length, each piece a number from 0 to below the size of the vocabulary."""
    most = 3 + int((recipe.echo_most - 3) * min(1.0, step / max(1.0, 0.7 * recipe.echo_steps)))
    length = rng.randint(3, most)
    rows = max(1, recipe.echo_tokens // (2 * length + 2))
    return [[rng.randrange(recipe.vocabulary * 3) for _ in range(length)] for _ in range(rows)]
