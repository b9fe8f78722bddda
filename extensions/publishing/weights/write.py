"""The weights of a release: each trained language model merged, as safetensors and as GGUF."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from extensions.publishing.weights.gguf_file import write_gguf
from extensions.publishing.weights.gguf_vocabulary import NoGguf
from extensions.publishing.weights.merge import LANGUAGE_ROLES, write_merged_model
from extensions.publishing.weights.recipes import write_recipes
from training.figures import shorten_model
from training.role import get_untrained_model

WEIGHTS = "weights"  # folder of an export; also the manifest's key
SAFETENSORS, GGUF = "safetensors", "model.gguf"


class NoWeights(ValueError):
    """No model here has weights to export, or a package for it is missing; the fix is told."""


def write_release_weights(home: Path, folder: Path, models: Mapping[str, str]) -> dict[str, Any]:
    """Writes `weights/<role>/` into an export for each trained language model of a release; returns
    what its manifest tells: {"weights": {role: {…}}}. Raises NoWeights, TrainingFailed."""
    trained = {
        role: models[role]
        for role in LANGUAGE_ROLES
        if role in models and models[role] != get_untrained_model(role)
    }
    if not trained:
        found = ", ".join(f"{role} {models.get(role, 'none')}" for role in LANGUAGE_ROLES)
        raise NoWeights(
            f"no trained language model is in this release ({found[:200]}), so there are no weights"
            " to export; leave --weights out. A trained one serves once it passes its gates:"
            " toolmill champion list"
        )
    made = {
        role: write_model_weights(home, name, folder / WEIGHTS / role)
        for role, name in trained.items()
    }
    return {WEIGHTS: made}


def write_model_weights(home: Path, name: str, folder: Path) -> dict[str, Any]:
    """One model: safetensors/, model.gguf, Modelfile, SERVE.md. Returns {role, base, context,
    precision, gguf, vllm_parser, ollama_tools}. Raises NoWeights, TrainingFailed."""
    from transformers import AutoTokenizer

    try:
        import gguf as _  # noqa: F401
    except ModuleNotFoundError:
        raise NoWeights(
            "GGUF files need the package gguf: `pip install 'toolmill[train]'`"
        ) from None
    merged = folder / SAFETENSORS
    card = write_merged_model(home, name, merged)
    config = json.loads((merged / "config.json").read_bytes())
    label = f"toolmill-{card['role']}-{shorten_model(name)}"
    facts = {
        "name": label,
        "model": name,
        "role": card["role"],
        "base": str(card["base"]),
        "context": int(config["max_position_embeddings"]),
        "precision": str(config.get("dtype")),
    }
    try:
        facts["gguf"] = write_gguf(merged, folder / GGUF, label)
    except NoGguf as error:
        facts["gguf"] = str(error)
    facts |= write_recipes(folder, AutoTokenizer.from_pretrained(str(merged)), facts)
    return facts
