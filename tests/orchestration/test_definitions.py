"""The graph as a reviewer reads it: a change of assets, deps, checks, pools shows in this file."""

import subprocess
import sys

import dagster as dg
import pytest

from assets.partitions import NIGHTLY
from orchestration.definitions import build_defs

GRAPH = """
ablations training - <- judgements pairs training_set [gpu]
caller_adapter training - <- training_set [gpu]
caller_champion training on_new_data <- caller_evaluation [-]
caller_evaluation training on_new_data <- caller_adapter training_set [gpu]
catalogue catalogue on_new_data <- listings snapshots [-]
coverage catalogue on_new_data <- catalogue deployments listings [-]
confusables vectors on_new_data <- catalogue contract_vectors findings snapshots [lance]
contract_changes contracts on_new_data <- snapshots [-]
contract_vectors vectors - <- findings snapshots [lance]
deployments servers - <- listings [sandbox]
findings contracts - <- deployments snapshots [-]
drift training on_new_data <- retriever_champion snapshots training_set [-]
judgements synthesis - <- findings pairs snapshots [llm]
listings marketplaces - <- [crawl]
pairs synthesis - <- contract_vectors findings snapshots [llm]
release serving on_new_data <- caller_champion findings retriever_champion snapshots [-]
report serving on_new_data <- drift router_index [-]
retriever_adapter training - <- training_set [gpu]
retriever_champion training on_new_data <- retriever_evaluation [-]
retriever_evaluation training on_new_data <- retriever_adapter training_set [lance]
router_index serving on_new_data <- catalogue contract_vectors deployments findings judgements \
  pairs release server_summaries [lance]
server_summaries vectors on_new_data <- catalogue findings snapshots [llm]
snapshots contracts - <- deployments [-]
spend synthesis on_new_data <- judgements [-]
training_set training on_new_data <- confusables findings judgements pairs snapshots [lance]
"""


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    return build_defs()


def graph(defs: dg.Definitions) -> list[str]:
    lines = []
    for asset in defs.assets or []:
        assert isinstance(asset, dg.AssetsDefinition)
        [spec] = asset.specs
        deps = " ".join(sorted(dep.asset_key.to_user_string() for dep in spec.deps))
        condition = spec.automation_condition
        label = condition.get_label() if condition else "-"
        pool = asset.op.pool or "-"
        name = spec.key.to_user_string()
        lines.append(f"{name} {spec.group_name} {label} <- {deps} [{pool}]")
    return sorted(" ".join(line.split()) for line in lines)


def test_the_asset_graph_is_as_reviewed(defs: dg.Definitions) -> None:
    assert graph(defs) == sorted(" ".join(line.split()) for line in GRAPH.strip().splitlines())


def test_every_asset_has_one_blocking_audit(defs: dg.Definitions) -> None:
    for asset in defs.assets or []:
        assert isinstance(asset, dg.AssetsDefinition)
        [check] = asset.check_specs
        assert check.name == "audit"
        assert check.blocking


def test_only_the_nightly_assets_are_partitioned_by_marketplace(defs: dg.Definitions) -> None:
    partitioned = {
        asset.key.to_user_string()
        for asset in defs.assets or []
        if isinstance(asset, dg.AssetsDefinition) and asset.partitions_def
    }
    assert partitioned == set(NIGHTLY)


def test_the_definitions_load_and_every_job_resolves(defs: dg.Definitions) -> None:
    dg.Definitions.validate_loadable(defs)
    for name in ("nightly", "fan_in", "train", "ablate", "serve"):
        assert defs.resolve_job_def(name).name == name


def test_loading_the_code_location_imports_nothing_heavy() -> None:
    heavy = ("torch", "transformers", "peft", "lancedb", "great_expectations", "mcp", "openai")
    code = f"import sys, orchestration.definitions;print(sorted(set({heavy!r}) & set(sys.modules)))"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, check=True)
    assert told.stdout.decode().strip() == "[]"
