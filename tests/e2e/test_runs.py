"""Runs of the small demo sites: what a second, a second day's, and a bad run may change."""

import json
import os
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import anyio
import dagster as dg
import polars as pl
import pytest

from assets.contracts.changes import CHANGES
from assets.contracts.findings import FINDINGS
from assets.contracts.snapshot import SNAPSHOTS
from assets.outcomes.table import EXECUTIONS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.tables import CURRICULUM, JUDGEMENTS, PAIRS, make_unit_key
from assets.vectors.index import VECTORS
from demo.server import Replicas, replicas
from orchestration.plan import make_plan
from orchestration.settings.load import load_settings
from serving.export import export_release, find_log_place
from tests.e2e.runs import MARKETS, Runs, list_failed_checks, skip_without_sandbox
from tests.e2e.served import call_json, serving
from tests.support.cases import cases
from training.curriculum import make_curriculum
from training.evaluation.caller_table import CALLER_EVALUATION
from training.releases.in_service import find_model_in_service
from training.role import CALLER
from training.sets.split import SetPolicy
from training.settings import CurriculumPolicy
from warehouse.store import Warehouse

FREE = {"page", "render", "resolve", "remote"}  # looking at the moving world: repeated every run


@pytest.fixture(scope="module")
def sites() -> Iterator[Replicas]:
    with replicas(day=1, scale="small") as running:
        yield running


@pytest.fixture(scope="module")
def first_run(sites: Replicas, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The home after the first run; tests work on copies of it."""
    skip_without_sandbox()
    home = tmp_path_factory.mktemp("first") / "home"
    with pytest.MonkeyPatch.context() as patch, dg.DagsterInstance.ephemeral() as instance:
        patch.setenv("TOOLMILL_HOME", str(home))
        run = Runs(home, instance, sites)
        assert run.nightly()["deploy", "done"] >= 6
        assert run.run("fan_in").success
    return home


@pytest.fixture
def seen(first_run: Path) -> Warehouse:
    """What the first run left, to be read only."""
    return Warehouse(home=first_run, state=first_run / "state")


@pytest.fixture
def runs(sites: Replicas, first_run: Path, tmp_path: Path, monkeypatch) -> Iterator[Runs]:
    home = tmp_path / "home"
    shutil.copytree(first_run, home, symlinks=True, copy_function=_copy_or_link)
    monkeypatch.setenv("TOOLMILL_HOME", str(home))
    with dg.DagsterInstance.ephemeral() as instance:
        yield Runs(home, instance, sites)
    sites.switch(day=1, faults={})


def _copy_or_link(file: str, copy: str) -> None:
    """Of encoders, 90 MB each and only ever replaced, another name is enough."""
    place = os.link if "encoders" in Path(file).parent.parts else shutil.copy2
    place(file, copy)


def test_a_first_run_hints_at_failures_certifies_launches_and_asks_remote_servers(seen):
    rows = seen.tables.read(DEPLOYMENTS).to_dicts()
    failed = [row for row in rows if row["status"] != "ok"]
    assert failed
    assert all(row["error_kind"] and row["hint"] for row in failed)
    assert {"needs_secret", "no_recipe"} <= {row["error_kind"] for row in failed}
    [row] = [row for row in rows if "shell syntax" in str(row["hint"])]
    assert (row["status"], row["recipe_digest"]) == ("failed", None), "it never runs"
    tables = seen.tables
    (row,) = tables.read(DEPLOYMENTS).filter(pl.col("ecosystem") == "remote").to_dicts()
    assert (row["status"], row["n_tools"], row["certified"]) == ("ok", 2, None)
    for table in (SNAPSHOTS, PAIRS, VECTORS):
        assert row["server_id"] in set(tables.read(table)["server_id"])
    rows = seen.tables.read(DEPLOYMENTS).filter(pl.col("n_tools") > 0).to_dicts()
    here = [row for row in rows if row["ecosystem"] != "remote"]
    assert here
    for row in here:
        assert row["certified"]
        assert seen.blobs.get_json(row["certificate"])["passed"]
    snapshots = seen.tables.read(SNAPSHOTS)
    assert snapshots.filter(pl.col("certified"))["certificate"].is_not_null().all()


def test_a_second_run_of_an_unchanged_world_costs_nothing_and_moves_nothing(runs):
    before, counts = runs.versions(), runs.nightly()
    assert runs.run("fan_in").success
    assert {stage for stage, _ in counts} <= FREE
    assert runs.versions() == before


def test_one_server_runs_anew_through_all_stages_and_no_other_row_moves(runs):
    stages = (DEPLOYMENTS, SNAPSHOTS, FINDINGS, VECTORS, PAIRS, JUDGEMENTS, EXECUTIONS)
    tables = runs.warehouse.tables
    server = str(tables.read(EXECUTIONS, "registry")["server_id"][0])

    def read(*, others: bool) -> dict[str, pl.DataFrame]:
        chosen = (pl.col("server_id") != server) if others else (pl.col("server_id") == server)
        return {stage.name: tables.read(stage, "registry").filter(chosen) for stage in stages}

    # Launches and pairs of other servers are due: they have to wait for the nightly run.
    for spec, column in ((DEPLOYMENTS, "launch_digest"), (PAIRS, "plan_digest")):
        mine = pl.when(pl.col("server_id") == server).then(column).otherwise(pl.lit("old"))
        due = tables.read(spec, "registry").with_columns(mine.alias(column))
        tables.promote(tables.stage(spec, due, "registry"), "test", [])
    before, own = read(others=True), read(others=False)
    result = runs.run("one_server", "registry", server=server)
    assert result.success, list_failed_checks(result)
    counts = runs.warehouse.ledger.counts(run_id=result.run_id)
    assert (counts["deploy", "done"], counts["execute", "done"]) == (1, len(own["executions"]))
    assert not [stage for stage, _ in counts if stage.startswith("llm:")], counts
    for name, frame in read(others=True).items():
        assert frame.equals(before[name]), name
    after = read(others=False)
    assert after["deployments"]["probed_at"][0] > own["deployments"]["probed_at"][0]
    assert after["pairs"].equals(own["pairs"])
    assert min(after["executions"]["executed_at"]) > max(own["executions"]["executed_at"])


@pytest.mark.slow
def test_the_night_after_an_evaluation_makes_what_it_granted_and_redoes_nothing(runs):
    runs.nightly()  # the second run executes calls that look-alikes decide on
    tables = runs.warehouse.tables
    model = find_model_in_service(runs.home, CALLER).model
    shared = {"model": model, "phantom": "", "perturbation": "none", "failed": False}
    wrong = {**shared, "ast_ok": False, "called": "[]", "expected": "[]", "task": "single"}
    pairs = tables.read(PAIRS).filter(task="single", status="ok").unique("pair_id")
    rows = [
        {**wrong, "item_id": row["pair_id"], "server_id": row["server_id"], "tool": row["tool"]}
        for row in pairs.to_dicts()
    ]
    tables.promote(tables.stage(CALLER_EVALUATION, CALLER_EVALUATION.frame(rows)), "test", [])
    granted, _ = make_curriculum(runs.warehouse, CurriculumPolicy(tools=4), SetPolicy())
    tables.promote(tables.stage(CURRICULUM, CURRICULUM.frame(granted)), "test", [])
    assert len(granted) == 4
    before = tables.read(PAIRS).to_dicts()
    assert 0 < runs.nightly()["explore", "done"] <= 4 * len(MARKETS)
    after = tables.read(PAIRS).to_dicts()
    added = {make_unit_key(row) for row in after} - {make_unit_key(row) for row in before}
    assert added
    assert added <= {f"{row['server_id']}/{row['tool']}#{row['task']}" for row in granted}
    tools = {(row["server_id"], row["tool"]) for row in granted}

    def keep_others(rows: list[dict]) -> dict[tuple[str, str], tuple[str, str]]:
        """Of tools without a grant: a call of several tools may take one of theirs."""
        return {
            (row["marketplace"], row["pair_id"]): (row["plan_digest"], row["calls"])
            for row in rows
            if (row["server_id"], row["tool"]) not in tools
            and row["task"] not in ("parallel", "sequential", "no_tool")
        }

    assert keep_others(after) == keep_others(before)
    assert {stage for stage, _ in runs.nightly()} <= {*FREE, "execute"}


@pytest.mark.slow
def test_a_plan_foresees_what_is_done_in_an_unchanged_world_and_the_launches_of_day_two(runs):
    runs.nightly()  # twice: the second run executes calls that look-alikes decide on
    before = runs.versions()
    plan = make_plan(load_settings(), MARKETS)
    assert runs.versions() == before
    assert runs.warehouse.ledger.spent() == 0
    planned = {stage.stage for stage in plan.stages} - FREE
    assert planned <= {stage for stage, _ in runs.nightly()}
    runs.sites.switch(day=2)
    for market in MARKETS:
        assert runs.materialize(["listings"], market).success
    due = make_plan(load_settings(), MARKETS).due.values()
    launches = sum(of["new servers"] + of["launches again"] for of in due)
    assert launches == 2  # one new server, one changed


def contracts_by_unit(runs: Runs) -> dict[str, frozenset[str]]:
    result: dict[str, frozenset[str]] = {}
    for row in runs.warehouse.tables.read(PAIRS).to_dicts():
        key = f"{row['marketplace']}/{make_unit_key(row)}"
        result[key] = result.get(key, frozenset()) | set(json.loads(row["contracts"]))
    return result


def test_day_two_pays_only_for_what_is_new_or_changed_and_forgets_what_is_gone(runs):
    before = runs.warehouse.tables.read(SNAPSHOTS).to_dicts()
    pairs_before = runs.warehouse.tables.read(PAIRS).to_dicts()
    units_before = contracts_by_unit(runs)
    set_before = runs.warehouse.tables.head("training_set")
    runs.sites.switch(day=2)
    counts = runs.nightly()
    assert runs.run("fan_in").success
    after = runs.warehouse.tables.read(SNAPSHOTS).to_dicts()
    assert counts["deploy", "done"] == 2  # one new server, one changed
    units = contracts_by_unit(runs)
    moved = {key: shown for key, shown in units.items() if units_before.get(key) != shown}
    assert moved
    assert 0 < counts["llm:generator", "done"] <= len(moved)
    same = units_before.keys() & units.keys() - moved.keys()
    assert len(same) > len(moved)
    assert {row["server_id"] for row in before} != {row["server_id"] for row in after}
    assert {"breaking", "compatible", "wording"} & set(runs.warehouse.tables.read(CHANGES)["cls"])
    set_after = runs.warehouse.tables.head("training_set")
    assert set_before
    assert set_after
    assert set_after.digest != set_before.digest
    pairs_after = runs.warehouse.tables.read(PAIRS).to_dicts()
    gone = {row["server_id"] for row in pairs_before} - {row["server_id"] for row in pairs_after}
    assert len(gone) == 1
    assert gone.isdisjoint({row["server_id"] for row in after})


@cases(
    "market, other",
    ("registry", "mcpso"),
    pytest.param("mcpso", "registry", marks=pytest.mark.slow),
)
def test_bad_runs_keep_yesterday_and_leave_the_other_marketplace_alone(runs, market, other):
    before = runs.versions()
    for fault in ("truncated", "empty", "html", "down"):
        runs.sites.switch(faults={market: fault})
        bad = runs.run("nightly", market)
        assert not bad.success, fault
        why = list_failed_checks(bad)
        assert set(why) == {"listings"}, fault
        assert runs.sites[market] in why["listings"], fault
        assert runs.versions() == before, fault
    assert runs.materialize(["listings"], other).success
    runs.sites.switch(faults={})
    assert runs.run("nightly", market).success
    assert runs.versions() == before


def test_a_run_is_served_from_an_exported_release_and_its_tools_are_called(runs, tmp_path):
    result = runs.serve()
    assert result.success, list_failed_checks(result)
    again = runs.serve()
    assert versions_of(again) == versions_of(result)  # nothing new, no new index
    release, snapshots = tmp_path / "release", runs.warehouse.tables.read(SNAPSHOTS)
    manifest = export_release(runs.home, release)
    sound = snapshots.filter(pl.col("tool") != "look_up")  # the poisoned one is held
    assert manifest["tools"] == len(sound.unique(["server_id", "tool"]))
    anyio.run(converse, release, runs.home)
    log = find_log_place(release, runs.home / "state") / "outcomes"
    rows = [json.loads(line) for file in log.glob("*") for line in file.read_text().splitlines()]
    assert [(row["status"], row.get("blame")) for row in rows] == [
        ("ok", None), ("ok", None), ("invalid_arguments", "caller"),
    ]  # fmt: skip


async def converse(release: Path, home: Path) -> None:
    """An agent looks for tools, runs one in the sandbox and one elsewhere, and errs."""
    async with serving(release, home, TOOLMILL_SERVE__CALLS__CONSENT="always") as session:
        found = await call_json(session, "find_tools", query="turn a headline into a web address")
        slug = found["answers"][0]["hits"][0]["tool_id"]
        assert slug.endswith("::make_slug")
        made = await call_json(
            session, "call_tool", tool_id=slug, arguments={"headline": "Café au lait, twice"}
        )
        assert "cafe-au-lait-twice" in json.dumps(made)
        found = await call_json(session, "find_tools", query="explain a term of the glossary")
        term = found["answers"][0]["hits"][0]["tool_id"]
        result = await call_json(session, "call_tool", tool_id=term, arguments={"term": "drift"})
        assert "one run and the next" in json.dumps(result)
        wrong = await call_json(session, "call_tool", tool_id=slug, arguments={"headlin": "x"})
        assert "headline" in json.dumps(wrong)


def versions_of(result: dg.ExecuteInProcessResult) -> dict[str, str]:
    events = result.get_asset_materialization_events()
    made: list[Any] = [event.step_materialization_data.materialization for event in events]
    return {one.asset_key.to_user_string(): one.tags["dagster/data_version"] for one in made}
