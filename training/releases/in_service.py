"""Which model can serve a role now: the champion, or what stands in for it."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from serving.index.model import RERANKER_FILE
from training.caller.tiny.base import TINY, find_tiny_base_flaw
from training.releases.champion import UNTRAINED, list_promoted, read_champion
from training.releases.decisions import map_rejected_models
from training.runtime.model_store import (
    find_unreadable_weights,
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
    untrained = UNTRAINED.get(role, "base")
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
    """What can serve each role together: a reranker only beside the retriever whose vectors it
    reads. Raises PointerBroken."""
    found = {role: find_model_in_service(home, role) for role in UNTRAINED}
    reranker, retriever = found["reranker"].model, found["retriever"].model
    if (file := find_reranker_file(home, {"reranker": reranker})) is not None:
        made_for = (read_model_card(home, file.parent.name) or {}).get("base")
        if made_for != retriever:
            found["reranker"] = InService(
                UNTRAINED["reranker"],
                f"reranker: {reranker[:12]} reads vectors of retriever {str(made_for)[:12]}, not of"
                f" {retriever[:12]}; the retriever's order serves until it is fitted again:"
                " materialize reranker_adapter",
            )
    return found


def find_reranker_file(home: Path, models: Mapping[str, str]) -> Path | None:
    """The file of the trained reranker among the models of a release; None where it has none."""
    name = models.get("reranker", UNTRAINED["reranker"])
    return None if name == UNTRAINED["reranker"] else get_model_folder(home, name) / RERANKER_FILE


def find_model_flaw(home: Path, role: str, name: str) -> str | None:
    """Why a trained model cannot serve; None when its card and weights are there, its base too."""
    if name == UNTRAINED.get(role):
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
    return find_unreadable_weights(get_model_folder(home, name))
