"""What decisions to train are made on beside the signals: what each role learned, when, and what
its trainings gained on the requests of new and changed contracts."""

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl

from assets.contracts.tool_id import ToolId
from training.adapter_table import make_adapter_table
from training.caller.shipped import read_caller_card
from training.drift.decide import HomeFacts, RoleEvidence, read_gains
from training.evaluation.metrics import bootstrap_difference
from training.releases.champion import (
    list_attempts,
    read_champion,
    read_last_attempt_time,
    read_last_trained_set,
)
from training.releases.in_service import find_model_in_service
from training.role import BASE, CALLER, find_role, is_same_base
from training.runtime.model_store import read_model_card, select_recipe
from training.sets.build import read_known_contracts
from training.sets.set_audit import load_manifest
from training.sets.split import SEEN_TOOL, TRAIN, UNSEEN_TOOL
from training.sets.training_set import TRAINING_SET
from warehouse.json_types import Row
from warehouse.store import Warehouse

Recipes = Mapping[str, Mapping[str, Any]]


@dataclass(frozen=True)
class TrainingEvidence:
    """The arguments of the decisions of all roles that a training set teaches."""

    home: HomeFacts
    roles: Mapping[str, RoleEvidence]


def read_evidence(
    warehouse: Warehouse, recipes: Recipes, failed_attempts: int = 0
) -> TrainingEvidence:
    """The evidence now. recipes: role -> base and hyper-parameters, as the settings say."""
    head = warehouse.tables.head(TRAINING_SET.name)
    rows = warehouse.tables.read(TRAINING_SET).filter(pl.col("split") == TRAIN)
    current = head.digest if head else None
    home = HomeFacts(current, len(rows), failed_attempts)
    contracts = rows["contract_digest"].to_list()
    roles = {
        role: _read_role(warehouse, role, recipe, current, contracts)
        for role, recipe in recipes.items()
    }
    return TrainingEvidence(home, roles)


def _read_role(
    warehouse: Warehouse,
    role: str,
    recipe: Mapping[str, Any],
    current: str | None,
    contracts: Sequence[str],
) -> RoleEvidence:
    """contracts: the contract digest of each training pair."""
    home = warehouse.home
    trained_on = read_last_trained_set(home, role) or _find_set_without_lessons(warehouse, role)
    then = load_manifest(home, trained_on) if trained_on else None
    if then is None and trained_on != current:
        trained_on = None  # nothing is known of it, so that everything is new
    learnt = set((then or {}).get("contracts", {}).values())
    return RoleEvidence(
        role,
        trained_on,
        read_last_attempt_time(home, role),
        sum(contract not in learnt for contract in contracts),
        list_changed_settings(home, role, recipe),
        read_gains(list_attempts(home, role)),
        _count_testable(warehouse) if role == CALLER else None,
    )


def _count_testable(warehouse: Warehouse) -> int | None:
    """Held-out tools of learnt servers whose contract the caller in service has not learnt: an
    update is promoted on their requests. None of a caller that learnt nothing."""
    serving = find_model_in_service(warehouse.home, CALLER).model
    card = read_caller_card(warehouse.home, serving)
    if card is None:
        return None
    known = read_known_contracts(warehouse, card.get("training_set"))
    rows = warehouse.tables.read(TRAINING_SET).filter(
        pl.col("split").is_in([SEEN_TOOL, UNSEEN_TOOL])
    )
    return rows.filter(~pl.col("contract_digest").is_in(known)).n_unique(["server_id", "tool"])


def _find_set_without_lessons(warehouse: Warehouse, role: str) -> str | None:
    """The home's first set, where the role was asked to train and a model that ships had nothing
    to learn; None of a role that was never asked, or trained."""
    adapters = make_adapter_table(role)
    if warehouse.tables.head(adapters.name) is None or len(warehouse.tables.read(adapters)):
        return None
    return next((head.digest for head in warehouse.tables.history(TRAINING_SET.name)), None)


def measure_new_tools(
    home: Path, role: str, rows: Iterable[Row], candidate: str, incumbent: str, training_set: str
) -> dict[str, Any] | None:
    """What a candidate gained over what served before it, on the requests whose contract is new or
    changed since the role's training before it: {value, low, high, n}, drawn over tools. None for
    a first candidate, before which no contract is new, and for a role that scores no request."""
    score = find_role(role).score_request
    before = list_attempts(home, role, before=candidate)
    if score is None or not before:
        return None
    then = read_set_contracts(home, before[-1]["attempt"].get("training_set"))
    now = read_set_contracts(home, training_set)
    answers: dict[str, dict[str, tuple[str, float]]] = {candidate: {}, incumbent: {}}
    for row in rows:
        worth = score(row) if row["model"] in answers else None
        tool = str(ToolId.of_row(row))
        if worth is not None and then.get(tool) != now.get(tool):
            item = str(row.get("item_id") or row["pair_id"])
            answers[row["model"]][item] = (tool, worth)
    items = sorted(answers[candidate].keys() & answers[incumbent].keys())
    after, earlier = (
        [answers[model][item][1] for item in items] for model in (candidate, incumbent)
    )
    tools = [answers[candidate][item][0] for item in items]
    return bootstrap_difference(after, earlier, tools).as_dict()


def read_set_contracts(home: Path, training_set: str | None) -> dict[str, str]:
    """Tool id -> contract digest when a set was made; {} where that is not known."""
    manifest = load_manifest(home, training_set) if training_set else None
    return (manifest or {}).get("contracts", {})


def list_changed_settings(home: Path, role: str, recipe: Mapping[str, Any]) -> tuple[str, ...]:
    """Hyper-parameters that the role's last candidate was trained by other values of, as
    `retriever.epochs`, and `retriever.base` where it was of another base; none of a role that was
    never trained."""
    last = read_champion(home, role).last_candidate.get("model")
    card = (read_model_card(home, last) if last else None) or {}
    if not card.get("settings"):
        return ()
    then = select_recipe(card["settings"])
    now = json.loads(json.dumps(recipe))  # as a card holds them
    trained, base = card.get("base"), now.pop(BASE, None)
    changed = [name for name in then.keys() | now.keys() if then.get(name) != now.get(name)]
    if trained and base and not is_same_base(trained, base):
        changed.append(BASE)
    return tuple(sorted(f"{role}.{name}" for name in changed))
