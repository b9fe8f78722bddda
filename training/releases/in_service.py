"""Which model can serve a role now: the champion, or what stands in for it."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from assets.vectors.encoders.saved import find_encoder_folder
from serving.index.model import RERANKER_FILE, IndexBroken, IndexMissing
from training.caller.shipped import GENERAL, find_general_flaw
from training.caller.smollm2 import find_base_flaw
from training.releases.champion import list_promoted, map_rejected_models, read_champion
from training.role import (
    BASELINE,
    CALLER,
    find_weights_flaw,
    get_untrained_model,
    is_untrained,
    list_roles,
)
from training.runtime.model_store import get_model_folder, read_model_card


@dataclass(frozen=True)
class InService:
    """The model that can serve a role now; `notice` says why when it is not the champion."""

    model: str
    notice: str | None = None


def find_model_in_service(home: Path, role: str) -> InService:
    """The champion where its model is whole; else the champion before it that is and was not rolled
    back, else the untrained model. Raises PointerBroken."""
    now = read_champion(home, role)
    untrained = get_untrained_model(role)
    flaw = None if now.model == untrained else find_model_flaw(home, role, now.model)
    if flaw is None:
        return InService(now.model, _explain_missing_caller(role, now.model))
    out = map_rejected_models(home, role)
    before = [item.model for item in reversed(list_promoted(home, role)) if item.model not in out]
    whole = (m for m in before if m != untrained and find_model_flaw(home, role, m) is None)
    model = next(whole, untrained)
    which = "the untrained model" if model == untrained else "the champion before it"
    return InService(
        model,
        f"{role}: champion {now.model[:12]} cannot serve ({flaw}); {which}, {model[:20]}, serves."
        f" Put its folder back, or train again: materialize {role}_adapter",
    )


def _explain_missing_caller(role: str, model: str) -> str | None:
    """Why the shipped caller does not serve where it should."""
    if role != CALLER or model != BASELINE:
        return None
    flaw = find_general_flaw()
    return f"caller: {model} serves, as the shipped caller cannot: {flaw}" if flaw else None


def find_release_models(home: Path) -> dict[str, InService]:
    """What serves together: a misfit gives way to the untrained model. Raises PointerBroken."""
    result = {name: find_model_in_service(home, name) for name in list_roles()}
    models = {name: serving.model for name, serving in result.items()}
    for name, role in list_roles().items():
        misfit = role.find_misfit(home, models) if role.find_misfit else None
        if misfit is not None:
            result[name] = InService(role.untrained, misfit)
    return result


def find_reranker_file(home: Path, models: Mapping[str, str]) -> Path | None:
    """The file of the trained reranker among the models of a release; None where it has none."""
    name = models.get("reranker")
    if name is None or name == get_untrained_model("reranker"):
        return None
    return get_model_folder(home, name) / RERANKER_FILE


def find_model_flaw(home: Path, role: str, name: str) -> str | None:
    """Why a trained model cannot serve; None when its card and weights are there, its base too."""
    if role == CALLER and name == GENERAL:
        return find_general_flaw()
    if is_untrained(role, name):
        return None
    try:
        about = read_model_card(home, name)
    except (OSError, ValueError) as error:
        return f"models/{name[:12]}: its card cannot be read ({error})"
    if about is None:
        return f"models/{name[:12]} is missing"
    if about.get("role", role) != role:
        return f"models/{name[:12]} is a {about['role']}"
    if flaw := find_base_flaw(about):
        return flaw
    return find_weights_flaw(role, get_model_folder(home, name))


Json = dict[str, Any]


def list_release_flaws(home: Path, release: Mapping[str, Any], version: str | None) -> list[str]:
    """What keeps a release from being served with an index version, by files and sizes; [] where
    index, encoder and models are there and belong together."""
    models: Mapping[str, str] = release.get("models") or {}
    flaws = [flaw for role, name in models.items() if (flaw := find_model_flaw(home, role, name))]
    if version is None:
        return [*flaws, "no index version of it is on disk"]
    meta = read_index_meta(home, version)
    if not meta:
        return [*flaws, f"router/{version[:12]}: its index.json cannot be read"]
    if meta.get("release") != release.get("release"):
        flaws.append(f"router/{version[:12]} is of release {str(meta.get('release'))[:12]}")
    retriever = models.get("retriever", get_untrained_model("retriever"))
    adapter = None if retriever == get_untrained_model("retriever") else retriever
    if meta.get("adapter") != adapter:
        maker = str(meta.get("adapter") or "base")[:12]
        flaws.append(f"router/{version[:12]} was made by retriever {maker}, not {retriever[:12]}")
    reranker = find_reranker_file(home, models)
    if meta.get("reranker") != (reranker.parent.name if reranker else None):
        flaws.append(f"router/{version[:12]} has another reranker than its release")
    if not (find_encoder_folder(home, str(meta.get("embedder"))) / "encoder.json").is_file():
        flaws.append(f"its encoder {meta.get('embedder')} is missing under encoders/")
    return flaws


def find_index_flaw(home: Path, version: str) -> str | None:
    """Why an index version cannot answer queries, tried with its encoder; None where it can."""
    from serving.router import open_router

    try:
        open_router(home, version)
    except (IndexMissing, IndexBroken, RuntimeError, OSError, ValueError) as error:
        return " ".join(str(error).split())
    return None


def read_index_meta(home: Path, version: str) -> Json:
    try:
        body = json.loads((home / "router" / version / "index.json").read_bytes())
    except (OSError, ValueError):
        return {}
    return body if isinstance(body, dict) else {}
