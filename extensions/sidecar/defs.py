"""Asset definitions of the sidecar: its adapter, evaluation and champion."""

from dataclasses import asdict, replace

from assets.contracts.quarantined_tools import read_clear
from assets.contracts.rename_history import ContractHistory
from assets.synthesis.tables import PAIRS, read_origin
from extensions.sidecar.evaluation import (
    SIDECAR_EVALUATION,
    evaluate_sidecars,
    render_arms_table,
    summarise_sidecar,
)
from extensions.sidecar.flaws import HELD_OUT, WEIGHTS
from extensions.sidecar.predictor import LocalReviser
from extensions.sidecar.prompt import RevisionRow
from extensions.sidecar.revision_data import KnownContracts, build_rows, choose_rows, place_calls
from extensions.sidecar.settings import LADDER, ROLE, SidecarOptions
from training.adapter_table import read_last_card, set_name, set_rows
from training.caller.train import resolve_base
from training.caller_update import find_start, is_first_set
from training.defs import build_role_assets
from training.releases.in_service import find_model_in_service
from training.releases.index_source import collect_moves
from training.role_steps import (
    ModelCard,
    RoleAssets,
    RoleMeasurement,
    RoleStep,
    StepSpec,
    train_by_script,
)
from training.sets.pool import load_pool
from training.sets.split import TRAIN, UNSEEN_SERVER
from warehouse.storage.digest import digest, sha256
from warehouse.store import Warehouse


def read_revision_rows(
    warehouse: Warehouse, split: str, most: int, *, candidates: int
) -> list[RevisionRow]:
    """At most `most` rows of one split of the current training set. The train split has no kind of
    HELD_OUT. Raises BadOffer for a set without its pool."""
    known = read_known(warehouse)
    entries = load_pool(warehouse.home, set_name(warehouse))
    rows = sorted(
        set_rows(warehouse, split, tasks=None), key=lambda row: sha256(str(row["pair_id"]).encode())
    )[: most // 2 + 1]
    calls = place_calls(rows, entries, candidates=candidates)
    kinds = [kind for kind in WEIGHTS if split != TRAIN or kind not in HELD_OUT]
    return choose_rows(build_rows(calls, replace(known, kinds=kinds)), most)


def read_known(warehouse: Warehouse) -> KnownContracts:
    servers = {row["server_id"] for row in read_clear(warehouse)}
    pairs = warehouse.tables.read(PAIRS).drop_nulls("world_task").to_dicts()
    origins = {str(row["pair_id"]): read_origin(row) for row in pairs}
    worlds = {name: origin.id for name, origin in origins.items() if origin is not None}
    return KnownContracts(collect_moves(warehouse.tables, servers), worlds)


def _train_sidecar(step: RoleStep) -> ModelCard | str:
    warehouse, trainer = step.warehouse, step.trainer
    base, settings = trainer.get_role_settings(ROLE)
    if settings.update_tokens is not None and is_first_set(warehouse):
        return "a home's first run trains no sidecar: the repair ladder serves"
    drafts = read_revision_rows(warehouse, TRAIN, settings.rows, candidates=settings.candidates)
    data, base = digest([draft.row_id for draft in drafts]), resolve_base(base)
    rows = list(map(vars, drafts))
    start = (find_start(warehouse, base) if settings.update_tokens else None) or ""
    return train_by_script(
        step, "extensions.sidecar", base, asdict(settings), rows, data=data, start=start
    )


def _evaluate_sidecar(step: RoleStep) -> RoleMeasurement:
    warehouse, home = step.warehouse, step.warehouse.home
    _, settings = step.trainer.get_role_settings(ROLE)
    options: SidecarOptions = step.trainer.options.get(ROLE) or SidecarOptions()
    card = read_last_card(warehouse, ROLE)
    if card is None:
        return RoleMeasurement([], {}, {}, found="no sidecar is trained yet")
    candidate = card["name"]
    names = dict.fromkeys([candidate, find_model_in_service(home, ROLE).model])
    models = {
        name: LocalReviser(home, name, device=settings.device) for name in names if name != LADDER
    }
    items = options.count_items()
    rows = read_revision_rows(warehouse, UNSEEN_SERVER, items, candidates=settings.candidates)
    history = ContractHistory(tuple(read_known(warehouse).moves))
    answers = evaluate_sidecars(rows, models, set_name(warehouse), history)
    summary = summarise_sidecar(answers, candidate)
    measures = ("right", "corrected", "copied", "harmed", "asked", "valid")
    figures = {
        "n": summary["n"],
        **{name: summary[name]["candidate"]["value"] for name in measures},
        "ladder_right": summary["arms"][LADDER]["right"]["value"],
        "arms": render_arms_table(summary),
    }
    return RoleMeasurement(answers, figures, summary)


sidecar_adapter, sidecar_evaluation, sidecar_champion = build_role_assets(
    RoleAssets(
        ROLE,
        StepSpec(
            "LoRA adapter of a causal model that revises what the repair ladder leaves.",
            ("extensions/sidecar",),
            kinds=frozenset({"pytorch", "huggingface"}),
            resources=("scripts",),
        ),
        _train_sidecar,
        StepSpec(
            "Drafts of unseen servers: corrected, copied, harmed, asked, by each arm.",
            ("extensions/sidecar",),
            deps=("sidecar_adapter", "training_set"),
        ),
        SIDECAR_EVALUATION,
        _evaluate_sidecar,
        summarise_sidecar,
        "The best sidecar so far; it starts with the repair ladder alone.",
    )
)
