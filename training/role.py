"""Roles: kinds of model that are trained, measured, promoted and released, each a `ModelRole` under
`toolmill.roles` with three assets (`training/defs.py`); retriever and caller are registered
here."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from assets.vectors.encoders.hub import SENTENCE, split_reference
from assets.vectors.encoders.minilm import DEFAULT
from assets.vectors.encoders.weights import BASE as MINILM
from training.caller.shipped import GENERAL, find_general_flaw
from training.gates import (
    Json,
    PromotionGate,
    check_caller_gates,
    check_different_models,
    check_enough_tools,
    check_measured,
    check_retriever_gates,
    check_same_items,
)
from training.runtime.model_store import TrainingFailed, find_unreadable_weights
from warehouse.extensions import ROLES, load_extensions

BASE = "base"  # its name in a recipe, beside the hyper-parameters


def get_causal_base_name(base: str) -> str:
    """The causal model that a setting names, as a card of its role has it."""
    from training.caller.train import resolve_base

    try:
        return resolve_base(base)
    except TrainingFailed:
        return base  # its training says what is wrong


def get_retriever_base_name(base: str) -> str:
    """The embedder that a setting names, as a retriever's card has it. A hub id, and a folder whose
    files cannot be read, come without the digest of their files."""
    from training.retriever.train import resolve_retriever_base

    if base.strip() in ("", *DEFAULT):
        return MINILM
    try:
        folder = Path(split_reference(base.removeprefix(SENTENCE))[0]).expanduser()
        return resolve_retriever_base(base) if folder.is_dir() else base
    except TrainingFailed:
        return base


def is_same_base(then: str, now: str) -> bool:
    """Whether two names are of one base: by files where both know them, else by place."""
    (place, files), (other, known) = split_reference(then), split_reference(now)
    kind, other_kind = place.startswith(SENTENCE), other.startswith(SENTENCE)
    if files and known:
        return (kind, files) == (other_kind, known)
    return place == other


RETRIEVER, CALLER = "retriever", "caller"
BASELINE = "baseline:bm25+slots"  # of the caller
Summarise = Callable[[Sequence[Any], str, str], Json]


class UnknownRole(ValueError):
    """A role that is not registered."""


@dataclass(frozen=True)
class ModelRole:
    """A kind of model.

    untrained: the model that serves until one is promoted.
    check_gates: the role's gates over a summary of its evaluation.
    name_base: the base that a setting names, as a card of the role has it, without loading it.
    learns_from_calls: trained on executed and logged calls instead of the training set.
    describe_job: (base, hyper-parameters) from (the role's settings block, device, seed); None for
    a role of the core and for one that learns from calls.
    score_request: how right one row of the role's evaluation is, None where it does not count; the
    decision to train reads it. None for a role that is fitted whenever its calls change.
    find_weights_flaw: why the weights in a folder cannot be read; None for safetensors files.
    find_misfit: why a model cannot serve, from (home, models of all roles).
    """

    name: str
    untrained: str
    check_gates: Callable[[Json], list[PromotionGate]]
    name_base: Callable[[str], str] = get_causal_base_name
    learns_from_calls: bool = False
    describe_job: Callable[[Any, str, int], tuple[str, Any]] | None = None
    score_request: Callable[[Json], float | None] | None = None
    find_weights_flaw: Callable[[Path], str | None] | None = None
    find_misfit: Callable[[Path, Mapping[str, str]], str | None] | None = None


def _score_call(row: Json) -> float | None:
    plain = row["tool"] and row["perturbation"] == "none" and not row["phantom"]
    return float(row["ast_ok"]) if plain and not row["failed"] else None


_CORE = (
    ModelRole(
        RETRIEVER,
        "base",
        check_retriever_gates,
        name_base=get_retriever_base_name,
        score_request=lambda row: float(row["rank"] == 1),
    ),
    ModelRole(CALLER, BASELINE, check_caller_gates, score_request=_score_call),
)


@cache
def list_roles() -> dict[str, ModelRole]:
    """Every role by name: the core's, then the extensions' in the order of their names."""
    plugged = load_extensions(ROLES).values()
    return {role.name: role for role in (*_CORE, *sorted(plugged, key=lambda role: role.name))}


def find_role(name: str) -> ModelRole:
    role = list_roles().get(name)
    if role is None:
        raise UnknownRole(f"no role is named {name!r}; known: {', '.join(list_roles())}")
    return role


def list_trained_roles() -> list[str]:
    return [role.name for role in list_roles().values() if not role.learns_from_calls]


def list_role_assets(role: str) -> list[str]:
    return [f"{role}_{step}" for step in ("adapter", "evaluation", "champion")]


def get_untrained_model(role: str) -> str:
    if role == CALLER and find_general_flaw() is None:
        return GENERAL
    role_entry = list_roles().get(role)
    return role_entry.untrained if role_entry else "base"


def is_untrained(role: str, model: str) -> bool:
    """Whether a model is what a role has without a training of its own, here or elsewhere."""
    return model == get_untrained_model(role) or (role == CALLER and model in (GENERAL, BASELINE))


def find_weights_flaw(role: str, folder: Path) -> str | None:
    """Why a trained model's weights cannot be read; None if they can."""
    role_entry = list_roles().get(role)
    return ((role_entry and role_entry.find_weights_flaw) or find_unreadable_weights)(folder)


def check_gates(role: str, summary: Json) -> list[PromotionGate]:
    """The role's gates over a summary of its evaluation. Raises UnknownRole."""
    rule = find_role(role).check_gates
    return [*check_different_models(summary), check_enough_tools(summary), *rule(summary)]


def check_evaluation(
    role: str, rows: Sequence[Any], candidate: str, incumbent: str, summarise: Summarise
) -> tuple[list[PromotionGate], dict[str, Any]]:
    """(gates, summary) of an evaluation's rows. Models that answered different items get no
    summary, and the gate that says so is the only one. Raises UnknownRole."""
    same = check_same_items(rows, candidate, incumbent)
    bare = {"candidate": candidate, "incumbent": incumbent}
    if not same.passed:
        return [same], bare
    try:
        summary = dict(summarise(rows, candidate, incumbent))
    except ValueError as error:  # NothingToEvaluate: no item of unseen servers
        return [same, check_measured(error)], bare
    return [same, *check_gates(role, summary)], summary
