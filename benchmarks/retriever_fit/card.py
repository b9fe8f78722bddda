"""What is written beside the shipped adapter: its recipe file and its card."""

import json
import shutil
from collections import Counter
from collections.abc import Mapping, Sequence
from importlib.metadata import version
from pathlib import Path
from typing import Any

from assets.vectors.encoders.minilm import (
    GENERAL_CONFIG,
    GENERAL_RECIPE,
    GENERAL_WEIGHTS,
    digest_base,
)
from assets.vectors.encoders.weights import BASE, HUB_ID, HUB_REVISION
from benchmarks.retriever_fit.recipe import Recipe
from benchmarks.retriever_fit.rows import Row
from warehouse.storage.files import hash_file, read_data

CARD = "MODEL_CARD.md"
SOURCES = {name: tuple(of) for name, of in read_data(__file__, "sources.toml").items()}
LIBRARIES = ("torch", "transformers", "peft", "tokenizers", "safetensors")
_KEPT = ("pairs", "tools", "steps", "tokens", "loss_first", "loss_last")


def write_shipped(
    trained: Path,
    card: Mapping[str, Any],
    recipe: Recipe,
    rows: Sequence[Row],
    measured: Mapping[str, Any],
    folder: Path,
) -> dict[str, Any]:
    """Writes the adapter with its recipe and card into `folder`; returns what the recipe holds."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    for name in (GENERAL_WEIGHTS, GENERAL_CONFIG):
        shutil.copyfile(trained / name, folder / name)
    pairs = Counter(row["set"] for row in rows)
    facts = {
        "base": {"name": BASE, "hub": f"{HUB_ID}@{HUB_REVISION}", "files": digest_base(BASE)},
        "recipe": recipe.as_facts(),
        "sets": {
            name: {"pairs": pairs[name], "source": SOURCES[name][0], "licence": SOURCES[name][1]}
            for name in (*recipe.sets, *recipe.listed)
        },
        "data": card["training_set"],
        "files": {name: hash_file(folder / name) for name in (GENERAL_CONFIG, GENERAL_WEIGHTS)},
        "training": {name: card[name] for name in _KEPT if name in card},
        "libraries": {name: version(name) for name in LIBRARIES},
        "measured": dict(measured),
    }
    (folder / GENERAL_RECIPE).write_text(json.dumps(facts, indent=1) + "\n", encoding="utf-8")
    size = (folder / GENERAL_WEIGHTS).stat().st_size
    (folder / CARD).write_text(describe_shipped(facts, size), encoding="utf-8")
    return facts


def describe_shipped(facts: Mapping[str, Any], size: int) -> str:
    """The card, out of what the recipe file holds."""
    sets = "\n".join(
        f"| `{name}` | {one['pairs']} | {one['source']} | {one['licence']} |"
        for name, one in facts["sets"].items()
    )
    gains = "\n".join(_tell_gain(name, one) for name, one in facts["measured"].items())
    text = Path(__file__).with_name("card.md").read_text(encoding="utf-8")
    return text.format(**{**facts, "sets": sets}, gains=gains, size=size / 1e6)


def _tell_gain(name: str, one: Mapping[str, Any]) -> str:
    of = one["cosine"]
    gain = f"{of['after'] - of['before']:+.3f} [{of['low']:+.3f}, {of['high']:+.3f}]"
    return (
        f"| `{name}` | {one['n']} | {one['servers']} | {of['before']:.3f} | {of['after']:.3f}"
        f" | {gain} |"
    )
