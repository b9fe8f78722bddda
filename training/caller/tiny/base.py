"""The tiny base model: a Qwen3 of some 1.2 million weights, made here from tool contracts.

It proves that the caller's path works where no pretrained model can be had. It is no evidence of
what a real base model would learn, and reports say so. No pretrained weights go into it.
"""

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from training.caller.tiny.exercises import Material
from training.caller.tiny.text import make_tokenizer
from training.runtime import checkpoints
from training.runtime.device import pick_device, seed_everything
from training.runtime.model_store import card, save_model
from warehouse.storage.digest import digest

Contract = Mapping[str, Any]
Row = Mapping[str, Any]
TINY = "tiny"
DESCRIPTION_WORDS = None  # its template shortens whole contracts itself
RECIPE = 3  # of text, first weights and exercises: another one makes another base
_KNOWN_SHARE = 0.7  # a base stays while it saw this share of the contracts it is used on


@dataclass(frozen=True)
class TinySettings:
    """Shape and pretraining of the tiny base; with the contracts and rows they name it."""

    vocabulary: int = 1600  # pieces; each is there with and without a space before it
    width: int = 128
    layers: int = 2
    heads: int = 4
    head: int = 48
    theta: float = 1e7  # turns slowly enough that content is found hundreds of tokens away
    context: int = 4096
    steps: int = 700
    alone_first: float = 0.25  # share of the steps before any tool is shown
    alone: float = 0.35  # of later steps that show none either
    alone_batch: int = 32  # requests
    batch: int = 2  # texts that show tools
    candidates: int = 10
    rounds: int = 5  # requests about the same tools in one text
    growing: float = 0.15  # share of the steps within which the tools grow from 2 to all
    learning_rate: float = 2.5e-3
    matrix_rate: float = 4e-3
    seed: int = 7


def find_base(home: Path, contracts: Mapping[str, Contract]) -> str | None:
    """The name of a finished tiny base that saw most of these contracts, or None.

    Reusing it keeps a night with a few new tools from pretraining again.
    """
    for path in sorted((home / "models").glob("*/model.json")):
        made = json.loads(path.read_bytes())
        mine = made.get("role") == TINY and made.get("recipe") == RECIPE
        seen = set(made.get("contracts", [])) if mine else set()
        if seen and len(seen & contracts.keys()) >= _KNOWN_SHARE * len(contracts):
            return made["name"]
    return None


def base_name(
    contracts: Mapping[str, Contract], settings: TinySettings, rows: Sequence[Row] = ()
) -> str:
    """The digest that names the base: everything that makes it is in it."""
    told = {"role": TINY, "recipe": RECIPE, "settings": asdict(settings)}
    pairs = sorted([row["pair_id"], row["instruction"], row.get("arguments") or ""] for row in rows)
    return digest({**told, "contracts": sorted(contracts), "pairs": digest(pairs)})


def make_base(
    home: Path,
    contracts: Mapping[str, Contract],
    settings: TinySettings,
    report: Any,
    *,
    rows: Sequence[Row] = (),
    device: str = "auto",
    threads: int | None = None,
) -> dict[str, Any]:
    """Pretrains `<home>/models/<base_name>` from contracts (digest -> contract, train tools only)
    and accepted pairs (`rows` of the train split only); returns its card. A finished one is not
    redone, one that was stopped goes on from its last checkpoint."""
    from training.caller.tiny.model import make_model
    from training.caller.tiny.pretraining import pretrain

    name = base_name(contracts, settings, rows)
    done = card(home, name)
    if done:
        return {**done, "cached": True}
    used = pick_device(device)
    seed_everything(settings.seed, threads)
    material = Material.of(contracts, rows)
    tokenizer = make_tokenizer(_texts(material, rows), settings.vocabulary)
    model = make_model(tokenizer, settings).to(used).train()
    root = checkpoints.folder_of(home, name)
    losses, figures = pretrain(model, tokenizer, material, settings, report, used, root, name)
    made = {
        "role": TINY,
        "name": name,
        "recipe": RECIPE,
        "settings": asdict(settings),
        "contracts": sorted(contracts),
        "pairs": len(rows),
        "weights": sum(weight.numel() for weight in model.parameters()),
        "told": "pretrained here from contracts and train pairs, two heads begin by copying;"
        " plumbing only",
        "loss_first": losses[0],
        "loss_last": round(sum(losses[-20:]) / len(losses[-20:]), 4),
        **figures,
    }

    def fill(folder: Path) -> None:
        model.save_pretrained(str(folder))
        tokenizer.save_pretrained(str(folder))

    save_model(home, name, made, fill)
    checkpoints.remove(root)
    return {**made, "cached": False}


def _texts(material: Material, rows: Sequence[Row]) -> list[str]:
    texts = [f"{c['name']} {c.get('description') or ''}" for c in material.contracts]
    texts += [json.dumps(c.get("inputSchema"), ensure_ascii=False) for c in material.contracts]
    return texts + sorted(row["instruction"] for row in rows) * 2
