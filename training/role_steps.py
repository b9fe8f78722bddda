"""The steps of a role: what they take and return, training by a script, judging a candidate."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from training.adapter_table import set_name
from training.drift.evidence import measure_new_tools
from training.gates import as_rows
from training.policies import TrainerPolicy
from training.releases.promotion import PromotionOutcome, consider_candidate
from training.role import Summarise, check_evaluation, get_untrained_model
from training.runtime.model_store import read_model_card, write_job
from warehouse.extensions import MODEL_CARDS, load_extensions
from warehouse.json_types import Row
from warehouse.ledger.attempts import EffectOutcome
from warehouse.storage.digest import digest
from warehouse.storage.tables import TableSpec
from warehouse.store import Warehouse

ModelCard = dict[str, Any]


@dataclass(frozen=True)
class RoleStep:
    """Stores and settings of a step's run. resources: the `StepSpec`'s. launch: of a job file."""

    role: str
    warehouse: Warehouse
    trainer: TrainerPolicy
    resources: Any
    log: Callable[[str], None]
    launch: Callable[[str, Path], object]


@dataclass(frozen=True)
class RoleMeasurement:
    """Rows of the role's evaluation table, the figures of the run's page, and the whole summary.
    found: the verdict on the items where there may be none."""

    rows: Sequence[Row]
    figures: Mapping[str, Any]
    summary: Mapping[str, Any]
    found: str | None = None


@dataclass(frozen=True)
class StepSpec:
    """One asset of a role. sources: files and folders whose digest is its code version. resources:
    those it needs beside the warehouse and the trainer."""

    description: str
    sources: tuple[str, ...]
    deps: tuple[str, ...] = ("training_set",)
    pool: str = "gpu"
    kinds: frozenset[str] | None = None
    resources: tuple[str, ...] = ()


@dataclass(frozen=True)
class RoleAssets:
    """A row of data from which `training/defs.py` builds the three assets of a role. train: the
    card of the model that was trained, or why none could be."""

    role: str
    adapter: StepSpec
    train: Callable[[RoleStep], ModelCard | str]
    evaluation: StepSpec
    table: TableSpec
    evaluate: Callable[[RoleStep], RoleMeasurement]
    summarise: Summarise
    champion: str  # the description of its asset


def train_by_script(
    step: RoleStep,
    package: str,
    base: str,
    settings: Mapping[str, Any],
    rows: Sequence[Row],
    pool: Mapping[str, Any] | None = None,
    data: str = "",
    start: str = "",
) -> ModelCard:
    """The card of what `<package>.script` trained, once per (role, base, set, settings) by the
    ledger. data: digest of rows beyond the set's. start: adapter that goes on learning."""
    home, ledger = step.warehouse.home, step.warehouse.ledger
    of_set = set_name(step.warehouse)
    name, job = write_job(home, step.role, base, of_set, settings, rows, pool, data, start)

    def train() -> EffectOutcome:
        step.launch(f"{package}.script", job)
        return EffectOutcome(name.encode(), model=name)

    key = digest({"train": name})
    if read_model_card(home, name) is None:
        ledger.forget(key)  # its product was lost, so the effect is due again
    ledger.once(f"train:{step.role}", key, train)
    write_model_card(home, name)
    return read_model_card(home, name) or {}


def write_model_card(home: Path, name: str, **evaluation: Any) -> None:
    """Has every extension write its card of a model; evaluation: its summary and gates."""
    for write in load_extensions(MODEL_CARDS).values():
        write(home, name, **evaluation)


def judge_candidate(
    home: Path,
    role: str,
    last: Row,
    serving: str,
    rows: Sequence[Row],
    summarise: Summarise,
    *,
    by_hand: bool,
) -> PromotionOutcome:
    """Promotes the last model if its gates pass against the model in service; writes its card."""
    against = get_untrained_model(role) if serving == last["model"] else serving
    gates, summary = check_evaluation(role, rows, last["model"], against, summarise)
    gain = measure_new_tools(home, role, rows, last["model"], against, last["training_set"])
    summary["new_tools"] = gain
    promotion = consider_candidate(
        home, role, last["model"], last["training_set"], gates, summary, by_hand=by_hand
    )
    champion = promotion.champion
    if champion.model == last["model"]:  # its card tells the evaluation that promoted it
        summary, gates = champion.evidence, champion.gates
    else:
        gates = promotion.gates
    write_model_card(home, last["model"], summary=summary, gates=as_rows(gates))
    return promotion
