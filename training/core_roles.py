"""The retriever and the caller: how each is trained and measured."""

from dataclasses import asdict

import polars as pl

from assets.contracts.canonical import tool_text
from assets.contracts.quarantined_tools import read_clear
from assets.vectors.index import read_contract
from assets.vectors.scale import get_plain
from training.adapter_table import NotTrained, read_last_adapter, set_name, set_rows
from training.caller.train import resolve_base
from training.caller_update import is_first_set, plan_update, read_usable_card
from training.evaluation.caller_run import evaluate_candidate
from training.evaluation.caller_summary import summarise_calls
from training.evaluation.caller_table import CALLER_EVALUATION
from training.evaluation.retriever import (
    BASE_LABEL,
    RETRIEVER_EVALUATION,
    evaluate_retriever,
    make_encoder,
    read_beginning,
    summarise_recall,
)
from training.releases.in_service import find_model_in_service
from training.retriever.settings import NONE
from training.retriever.train import resolve_retriever_base
from training.role import BASELINE, CALLER, RETRIEVER
from training.role_steps import (
    ModelCard,
    RoleAssets,
    RoleMeasurement,
    RoleStep,
    StepSpec,
    train_by_script,
)
from training.sets.pool import load_pool
from training.sets.split import TRAIN
from training.sets.training_set import TRAINING_SET
from warehouse.progress import ProgressLines
from warehouse.storage.digest import digest
from warehouse.storage.lance import LanceStore

_ADAPTER_KINDS = frozenset({"pytorch", "huggingface"})


def _train_retriever(step: RoleStep) -> ModelCard | str:
    warehouse, trainer = step.warehouse, step.trainer
    if trainer.retriever.start != NONE and is_first_set(warehouse):
        return "the shipped retriever goes on serving: no contract of a first set is new"
    base = resolve_retriever_base(trainer.retriever_base)
    rows, pool = set_rows(warehouse, TRAIN), load_pool(warehouse.home, set_name(warehouse))
    settings = asdict(trainer.retriever)
    return train_by_script(step, "training.retriever", base, settings, rows, pool)


def _evaluate_retriever(step: RoleStep) -> RoleMeasurement:
    warehouse, home = step.warehouse, step.warehouse.home
    serving = find_model_in_service(home, RETRIEVER).model
    try:
        candidate = read_last_adapter(warehouse, RETRIEVER)["model"]
        start = read_beginning(home, candidate)
    except NotTrained:
        candidate, start = serving, step.trainer.retriever.start
    store = LanceStore(home / "lance")
    base = get_plain(step.resources.embedder)
    labels = dict.fromkeys([BASE_LABEL, serving, candidate])
    rows = evaluate_retriever(
        warehouse.tables.read(TRAINING_SET).filter(pl.col("split") != TRAIN).to_dicts(),
        [tool_text(read_contract(row)) for row in read_clear(warehouse)],
        {label: make_encoder(home, label, store, start, base) for label in labels},
        set_name(warehouse),
    )
    summary = summarise_recall(rows, candidate)
    recall = summary["recall_at_1"]
    figures = {
        "n": summary["n"],
        "recall_at_1_base": recall["incumbent"]["value"],
        "recall_at_1": recall["candidate"]["value"],
        "recall_at_5": summary["recall_at_5"]["candidate"]["value"],
    }
    return RoleMeasurement(rows, figures, summary)


def _train_caller(step: RoleStep) -> ModelCard | str:
    warehouse, trainer = step.warehouse, step.trainer
    base = resolve_base(trainer.caller_base)
    rows = set_rows(warehouse, TRAIN, tasks=None)
    pool = load_pool(warehouse.home, set_name(warehouse))
    settings, start = asdict(trainer.caller), ""
    if trainer.caller.update_tokens is None:
        return train_by_script(step, "training.caller", base, settings, rows, pool)
    update = plan_update(warehouse, base, rows, trainer.caller.seed)
    if isinstance(update, str):
        step.log(update)
        return read_usable_card(warehouse) or update
    data = digest([row["pair_id"] for row in update.rows])
    rows, start, pool = update.rows, update.start, {**pool, **update.pool}
    return train_by_script(
        step, "training.caller", base, settings, rows, pool, data=data, start=start
    )


def _evaluate_caller(step: RoleStep) -> RoleMeasurement:
    warehouse = step.warehouse
    incumbent = find_model_in_service(warehouse.home, CALLER).model
    card = read_usable_card(warehouse)
    candidate = card["name"] if card else incumbent
    if candidate == BASELINE:
        return RoleMeasurement([], {}, {}, found="no caller is trained, and none ships here")
    plan = step.trainer.caller_test
    rows, notes = evaluate_candidate(warehouse, candidate, incumbent, plan, ProgressLines(step.log))
    summary = summarise_calls(rows, candidate)
    figures = {
        "n": summary["n"],
        "items": summary["items"],
        **{name: summary[name]["candidate"]["value"] for name in ("valid", "tool_ok", "ast_ok")},
        "baseline_ast": summary["ast_ok"]["incumbent"]["value"],
        "phantom_rate": summary["gate"]["phantom_rate"]["value"],
        "shortlist": step.trainer.caller.shortlist or "all candidates",
        "left_out": "; ".join(notes) or "nothing",
    }
    return RoleMeasurement(rows, figures, summary)


RETRIEVER_ASSETS = RoleAssets(
    RETRIEVER,
    StepSpec(
        "LoRA adapter of the embedder, trained on accepted pairs of the train split.",
        ("training/retriever",),
        kinds=_ADAPTER_KINDS,
        resources=("scripts",),
    ),
    _train_retriever,
    StepSpec(
        "Rank of the right tool for each request of servers never trained on.",
        ("training/evaluation/retriever.py",),
        deps=("retriever_adapter", "training_set"),
        pool="lance",
        resources=("embedder",),
    ),
    RETRIEVER_EVALUATION,
    _evaluate_retriever,
    summarise_recall,
    "The best retriever so far; a candidate must be better by its whole interval.",
)
CALLER_ASSETS = RoleAssets(
    CALLER,
    StepSpec(
        "LoRA adapter of a causal model that writes the call; default base: SmolLM2-135M-Instruct.",
        ("training/caller",),
        kinds=_ADAPTER_KINDS,
        resources=("scripts",),
    ),
    _train_caller,
    StepSpec(
        "Tool, arguments, abstention and phantom calls of the caller, next to BM25 with slot"
        " copying.",
        ("training/evaluation",),
        deps=("caller_adapter", "training_set"),
    ),
    CALLER_EVALUATION,
    _evaluate_caller,
    summarise_calls,
    "The best caller so far; it starts with BM25 selection and slot copying.",
)
