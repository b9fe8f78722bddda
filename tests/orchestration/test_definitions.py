"""The graph as a reviewer reads it: a change of assets, deps, checks, pools shows in this file."""

import re
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import dagster as dg
import pytest

from assets.partitions import NIGHTLY
from orchestration.definitions import build_defs
from orchestration.resources import build_default_resources
from tests.support.paths import ROOT

GRAPH = Path(__file__).with_name("graph.txt")


@pytest.fixture(scope="module")
def defs() -> dg.Definitions:
    return build_defs()


def list_assets(defs: dg.Definitions) -> list[tuple[dg.AssetsDefinition, dg.AssetSpec]]:
    result = []
    for asset in defs.assets or []:
        assert isinstance(asset, dg.AssetsDefinition)
        [spec] = asset.specs
        result.append((asset, spec))
    return result


def graph(defs: dg.Definitions) -> str:
    """Every asset: group, partitions, pool, kinds, owners, automation, dependencies, checks."""
    blocks = []
    for asset, spec in list_assets(defs):
        condition = spec.automation_condition
        facts = {
            "group": spec.group_name,
            "partitions": "marketplaces" if asset.partitions_def else "-",
            "pool": asset.op.pool or "-",
            "kinds": " ".join(sorted(spec.kinds)),
            "owners": " ".join(spec.owners),
            "runs": condition.get_label() if condition else "-",
            "deps": " ".join(sorted(dep.asset_key.to_user_string() for dep in spec.deps)) or "-",
            "checks": " ".join(sorted(check.name for check in asset.check_specs)),
        }
        lines = [f"  {name:<10} {value}" for name, value in facts.items()]
        blocks.append("\n".join([spec.key.to_user_string(), *lines]))
    return "\n".join(sorted(blocks)) + "\n"


def test_the_asset_graph_is_as_reviewed(defs):
    """Write the new graph with `python -m tests.orchestration.test_definitions` and review it."""
    assert graph(defs) == GRAPH.read_text()


def test_every_asset_has_blocking_checks_a_code_version_and_a_package(defs):
    for asset, spec in list_assets(defs):
        assert asset.check_specs
        for check in asset.check_specs:
            assert check.blocking
            assert check.description
            assert check.partitions_def == asset.partitions_def
        assert re.fullmatch("[0-9a-f]{12}", spec.code_version or "")
        package = spec.tags["toolmill/package"].replace(".", "/")
        assert (ROOT / package).is_dir() or (ROOT / f"{package}.py").is_file()


def test_every_table_shows_its_columns_described_by_their_values_not_by_a_constant(defs):
    for _, spec in list_assets(defs):
        published = ("champion", "release", "router_index", "report")
        table = not spec.key.to_user_string().endswith(published)
        assert ("dagster/column_schema" in spec.metadata) == table
    schemas = [spec.metadata.get("dagster/column_schema") for _, spec in list_assets(defs)]
    columns = [column for schema in schemas if schema for column in schema.columns]
    assert [column.name for column in columns if not column.description] == []
    answer = [column.description for column in columns]
    assert [item for item in answer if re.search(r"\bone of [A-Z_]{3,}\b", item)] == []


def test_only_the_nightly_assets_are_partitioned_by_marketplace_and_every_job_resolves(defs):
    assets = list_assets(defs)
    partitioned = {spec.key.to_user_string() for one, spec in assets if one.partitions_def}
    assert partitioned == set(NIGHTLY)
    dg.Definitions.validate_loadable(defs)
    for name in ("nightly", "fan_in", "train", "ablate", "serve"):
        assert defs.resolve_job_def(name).name == name


def test_every_resource_is_made_from_the_settings(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    for name, resource in build_default_resources().items():
        with dg.build_init_resource_context() as context:
            assert resource.resource_fn(context) is not None, name


def test_a_run_is_tagged_with_its_home_where_others_may_stand_beside_it(tmp_path, monkeypatch):
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path / "home"))
    make: Any = build_default_resources()["warehouse"].resource_fn
    tagged: list[tuple[str, dict[str, str]]] = []
    for folder in (tmp_path / "home" / "state" / "dagster", tmp_path / "shared"):
        instance = SimpleNamespace(
            root_directory=str(folder), add_run_tags=lambda *of: tagged.append(of)
        )
        make(SimpleNamespace(run_id=folder.name, instance=instance, log=None))
    assert tagged == [("shared", {"toolmill/home": str(tmp_path / "home")})]


def test_the_next_run_of_a_process_has_the_settings_of_then(tmp_path, monkeypatch):
    config, observed = tmp_path / "toolmill.toml", []
    monkeypatch.setenv("TOOLMILL_CONFIG", str(config))
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    make: Any = build_default_resources()["reliability_policy"].resource_fn
    for run, days in (("one", 7), ("two", 9), ("two", 11), ("three", 11)):
        config.write_text(f"[reliability]\nhalf_life_days = {days}\n")
        observed.append(make(SimpleNamespace(run_id=run)).half_life_days)
    assert observed == [7, 9, 9, 11]  # a run has one set of settings


def test_loading_the_code_location_imports_nothing_heavy():
    heavy = ("torch", "transformers", "peft", "lancedb", "great_expectations", "mcp", "openai")
    first = "import sys, orchestration.factories;print('dagster' in sys.modules)"  # of a command
    then = f"import orchestration.definitions;print(sorted(set({heavy!r}) & set(sys.modules)))"
    code = [sys.executable, "-c", f"{first};{then}"]
    done = subprocess.run(code, capture_output=True, check=True)
    assert done.stdout.decode().split() == ["False", "[]"]


if __name__ == "__main__":
    GRAPH.write_text(graph(build_defs()))
