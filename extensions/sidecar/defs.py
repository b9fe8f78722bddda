"""Asset definition of the sidecar's evaluation; its adapter and champion are made as the other
roles' are."""

import dagster as dg

from assets.contracts.history.moves import ContractHistory
from extensions.sidecar.data.read import read_known, read_revision_rows
from extensions.sidecar.evaluation import SIDECAR_EVALUATION, Bench, evaluate_sidecars
from extensions.sidecar.predictor import LocalReviser
from extensions.sidecar.settings import ROLE
from extensions.sidecar.summary import render_arms_table, summarise_sidecar
from training.evaluation.predictors.interface import CannotPredict
from training.evaluation.retriever import NothingToEvaluate
from training.last_run import read_last_adapter, set_name
from training.policies import Trainer
from training.releases.champion import UNTRAINED
from training.releases.in_service import find_model_in_service
from training.sets.pool import BadOffer
from training.sets.split import UNSEEN_SERVER
from warehouse.audit import expect_unique
from warehouse.publish import (
    Published,
    audit_table,
    describe_asset,
    make_markdown_metadata,
    publish,
    refuse,
)
from warehouse.store import Warehouse

SIDECAR_AUDIT = audit_table(
    SIDECAR_EVALUATION, [expect_unique("model", "item_id")], rules=["test_items"]
)


@dg.asset(
    **describe_asset(SIDECAR_AUDIT, "extensions/sidecar"),
    deps=["sidecar_adapter", "training_set"],
    group_name="training",
    pool="gpu",
    description="Drafts of unseen servers: corrected, copied, harmed, asked, by each arm.",
)
def sidecar_evaluation(
    context: dg.AssetExecutionContext,
    warehouse: dg.ResourceParam[Warehouse],
    trainer: dg.ResourceParam[Trainer],
) -> Published:
    home, chosen = warehouse.home, trainer.sidecar
    candidate = read_last_adapter(warehouse, ROLE)["model"]
    names = dict.fromkeys([candidate, find_model_in_service(home, ROLE).model])
    models = {
        name: LocalReviser(home, name, device=chosen.device)
        for name in names
        if name != UNTRAINED[ROLE]
    }
    try:
        rows = read_revision_rows(
            warehouse, [UNSEEN_SERVER], trainer.sidecar_items, candidates=chosen.candidates
        )
        history = ContractHistory(tuple(read_known(warehouse).moves))
        found = evaluate_sidecars(Bench(rows, set_name(warehouse), history), models)
        summary = summarise_sidecar(found, candidate)
    except (NothingToEvaluate, CannotPredict, BadOffer) as error:
        yield from refuse(context, warehouse, SIDECAR_AUDIT, "test_items", error)
        return
    yield from publish(
        context,
        warehouse,
        SIDECAR_AUDIT,
        SIDECAR_EVALUATION.frame(found),
        metadata={
            "n": summary["n"],
            **{
                name: summary[name]["candidate"]["value"]
                for name in ("right", "corrected", "copied", "harmed", "asked", "valid")
            },
            "ladder_right": summary["arms"][UNTRAINED[ROLE]]["right"]["value"],
            "arms": make_markdown_metadata(render_arms_table(summary)),
            "summary": dg.MetadataValue.json(summary),
        },
    )
