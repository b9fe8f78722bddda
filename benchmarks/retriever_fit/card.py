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
from benchmarks.retriever_fit.sources import CREDITS, SOURCES
from warehouse.storage.files import hash_file

CARD = "MODEL_CARD.md"
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
    settings, trained = facts["recipe"]["settings"], facts["training"]
    sets = "\n".join(
        f"| `{name}` | {one['pairs']} | {one['source']} | {one['licence']} |"
        for name, one in facts["sets"].items()
    )
    gains = "\n".join(_tell_gain(name, one) for name, one in facts["measured"].items())
    return f"""# General tool retriever

A LoRA adapter (rank {settings["rank"]}, {size / 1e6:.1f} MB) of `{facts["base"]["hub"]}`
(Apache-2.0) that puts a request near the tool that answers it. It is the default encoder of
`toolmill index`, and what a nightly training of the retriever starts from. Language: English; what
it learnt of others is little, for the base's word pieces do not read them.

Weights: SHA-256 `{facts["files"][GENERAL_WEIGHTS]}`. Base files: `{facts["base"]["files"]}`.

## Data

The fit sides of these query sets, split by server, and pairs made for servers of a marketplace's
list; {trained["pairs"]:,} pairs of {trained["tools"]:,} tool texts. SHA-256 of rows and negatives:
`{facts["data"]}`. No request of BFCL, LiveMCPBench, MCP-Atlas, Composio, MetaTool, API-Bank or SGD
is among them, and nothing of a test side; servers of the list may be servers of those sets too.
`smithery-written` was written by a language model that saw a server's tools and the styles to write
in, and no query set (`benchmarks/retriever_fit/requests.jsonl`).

| set | pairs | source | licence |
| --- | --- | --- | --- |
{sets}

{CREDITS}

## Training

`make retriever`: {trained["steps"]} steps, {settings["epochs"]} epochs, AdamW at
{settings["learning_rate"]:g}, layers {settings["first_layer"]} to 5, temperature
{settings["temperature"]}, seed {settings["seed"]}; batches of {settings["tools"]} tools of one set
with {settings["negatives"]} hard negative each (nearest by BM25), the text of a tool with and
without its parameters. Loss {trained["loss_first"]} at first, {trained["loss_last"]} at last.
Everything else is in `{GENERAL_RECIPE}`.

## Measured

Recall@1 by cosine alone, fit sides, by adapters of the same recipe that learnt from half of the
set families and not from the set's own; difference paired, 95% intervals over servers.

| set | n | servers | MiniLM | adapted | difference |
| --- | --- | --- | --- | --- | --- |
{gains}

License: Apache-2.0.
"""


def _tell_gain(name: str, one: Mapping[str, Any]) -> str:
    of = one["cosine"]
    gain = f"{of['after'] - of['before']:+.3f} [{of['low']:+.3f}, {of['high']:+.3f}]"
    return (
        f"| `{name}` | {one['n']} | {one['servers']} | {of['before']:.3f} | {of['after']:.3f}"
        f" | {gain} |"
    )
