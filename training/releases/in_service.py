"""Which model can serve a role now: the champion, or what stands in for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.index.model import RERANKER_FILE
from training.caller.tiny.base import TINY, find_tiny_base_flaw
from training.releases.champion import list_promoted, read_champion
from training.releases.decisions import map_rejected_models
from training.role import find_weights_flaw, get_untrained_model, list_roles
from training.runtime.model_store import (
    get_model_folder,
    read_model_card,
)


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
        return InService(now.model)
    out = map_rejected_models(home, role)
    before = [one.model for one in reversed(list_promoted(home, role)) if one.model not in out]
    whole = (m for m in before if m != untrained and find_model_flaw(home, role, m) is None)
    model = next(whole, untrained)
    which = "the untrained model" if model == untrained else "the champion before it"
    return InService(
        model,
        f"{role}: champion {now.model[:12]} cannot serve ({flaw}); {which}, {model[:20]}, serves."
        f" Put its folder back, or train again: materialize {role}_adapter",
    )


def find_release_models(home: Path) -> dict[str, InService]:
    """What can serve each role together: a model that does not fit the others gives way to the
    untrained one. Raises PointerBroken."""
    found = {name: find_model_in_service(home, name) for name in list_roles()}
    models = {name: serving.model for name, serving in found.items()}
    for name, role in list_roles().items():
        misfit = role.find_misfit(home, models) if role.find_misfit else None
        if misfit is not None:
            found[name] = InService(role.untrained, misfit)
    return found


def find_reranker_file(home: Path, models: Mapping[str, str]) -> Path | None:
    """The file of the trained reranker among the models of a release; None where it has none."""
    name = models.get("reranker")
    if name is None or name == get_untrained_model("reranker"):
        return None
    return get_model_folder(home, name) / RERANKER_FILE


def find_model_flaw(home: Path, role: str, name: str) -> str | None:
    """Why a trained model cannot serve; None when its card and weights are there, its base too."""
    if name == get_untrained_model(role):
        return None
    try:
        about = read_model_card(home, name)
    except (OSError, ValueError) as error:
        return f"models/{name[:12]}: its card cannot be read ({error})"
    if about is None:
        return f"models/{name[:12]} is missing"
    if about.get("role", role) != role:
        return f"models/{name[:12]} is a {about['role']}"
    if about.get("base") == TINY and (flaw := find_tiny_base_flaw(str(about.get("base_name")))):
        return flaw
    return find_weights_flaw(role, get_model_folder(home, name))
