"""A plan counts what is due, prices it at the home's rates, and names the budget that it passes."""

import json
from dataclasses import asdict
from pathlib import Path

import pytest

from assets.contracts.quarantined_tools import CLEAR
from assets.marketplaces.listing import Listing, PackageRef, make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.synthesis.judging.plan import judge_pairs
from assets.synthesis.tables import JUDGEMENTS, PAIRS
from assets.synthesis.writing.plan import write_pairs
from orchestration.plan import describe_run, make_plan
from orchestration.settings.load import load_settings
from tests.support.cases import cases
from tests.synthesis.contracts import CITY_TIME, CREATE_ISSUE, snapshot_rows
from warehouse.ledger.attempts import EffectOutcome
from warehouse.storage.files import PointerBroken
from warehouse.store import Warehouse

PACKAGE = {
    "transport": "stdio",
    "package": PackageRef(type="npm", identifier="@a/b", version="1.0.0"),
}
REMOTE = {"transport": "streamable-http", "url": "http://127.0.0.1:9/mcp"}


@pytest.fixture
def warehouse(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Warehouse:
    result = Warehouse(home=tmp_path / "home", state=tmp_path / "state")
    result.check_writable()
    monkeypatch.setenv("TOOLMILL_HOME", str(result.home))
    monkeypatch.setenv("TOOLMILL_STATE", str(result.state))
    return result


def publish(warehouse: Warehouse, spec, rows: list[dict]) -> None:
    tables = warehouse.tables
    tables.promote(tables.stage(spec, spec.frame(rows), "registry"), "run", [])


def list_server(warehouse: Warehouse, facts: dict) -> None:
    listing = Listing(marketplace="registry", native_id="a", name="a", runnable=True, **facts)
    publish(warehouse, LISTINGS, [make_row(listing)])


def test_a_home_without_listings_foresees_nothing_and_passes_no_budget(warehouse):
    plan = make_plan(load_settings(), ["registry"])
    assert plan.describe()[0].endswith("nothing can be foreseen")
    assert plan.exceeded is None


@cases("facts, stage, new", (PACKAGE, "deploy", 1), (REMOTE, "remote", 0))
def test_a_server_without_a_row_is_due(warehouse, facts, stage, new):
    list_server(warehouse, facts)
    plan = make_plan(load_settings(), ["registry"])
    assert [(stage.stage, stage.calls, stage.basis) for stage in plan.stages] == [
        (stage, 1, "default")
    ]
    assert plan.due["registry"]["new servers"] == new
    assert json.loads(json.dumps(asdict(plan)))["totals"]["calls"] == 1


def test_a_new_server_leads_to_as_many_calls_as_the_servers_of_the_home_did(warehouse, monkeypatch):
    for n in range(6):
        warehouse.ledger.once("llm:judge", f"k{n}", lambda: EffectOutcome(b"by rules"))
    publish(warehouse, DEPLOYMENTS, [{"server_id": "old", "status": "ok"}])
    publish(warehouse, PAIRS, [{"pair_id": "p", "server_id": "old", "contract_digest": "c1:a"}])
    list_server(warehouse, PACKAGE)
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__MODEL", "some-model")
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__USD_IN", "1000")
    monkeypatch.setenv("TOOLMILL_BUDGET_USD", "5")
    plan = make_plan(load_settings(), ["registry"])
    [judge] = [stage for stage in plan.stages if stage.stage == "llm:judge"]
    # Six answers by rules cost nothing, and say nothing of a model that answers from now on.
    assert (judge.calls, judge.usd, judge.basis) == (6, pytest.approx(5.4), "default")
    assert plan.exceeded == (
        "budget_usd: 0.00 USD are spent and the run is expected to need 5.40 more; the budget is"
        " 5.00"
    )


def test_a_run_announces_what_a_model_that_takes_over_will_be_asked(warehouse, monkeypatch):
    """A plan that counted contracts without pairs foretold 0.00 USD of a run that spent 2.40."""
    from orchestration.factories import make_embedder, make_world_tasks, make_writer

    shown = Listing(marketplace="registry", native_id="a", name="a", runnable=False, **PACKAGE)
    publish(warehouse, LISTINGS, [make_row(shown)])
    tools = [CITY_TIME, CREATE_ISSUE]
    rows = [
        {**{name: row[name] for name in CLEAR.columns if name in row},
         "contract": json.dumps(row["contract"])}
        for row in snapshot_rows(tools, "npm:@a/b")
    ]  # fmt: skip
    publish(warehouse, CLEAR, rows)
    settings = load_settings()
    writer = make_writer(settings)
    llm = writer.make_llm(warehouse, "registry")
    worlds, embedder = make_world_tasks(settings), make_embedder(settings)
    written = write_pairs(warehouse, "registry", writer.policy, llm, embedder, worlds=worlds)
    publish(warehouse, PAIRS, written.rows)
    publish(warehouse, JUDGEMENTS, judge_pairs(warehouse, "registry", writer.policy, llm).rows)
    done = make_plan(settings, ["registry"])
    assert done.due["registry"]["units to write"] == 0
    assert done.due["registry"]["pairs to judge"] == 0

    for role in ("GENERATOR", "JUDGE"):
        monkeypatch.setenv(f"TOOLMILL_ROLES__{role}__MODEL", "some-model")
        monkeypatch.setenv(f"TOOLMILL_ROLES__{role}__USD_IN", "1000")
    plan = make_plan(load_settings(), ["registry"])
    stages = {stage.stage: stage for stage in plan.stages}
    units = {(row["tool"], row["task"]) for row in written.rows}
    # Units with a generator's step, and the summary of the one server.
    assert stages["llm:generator"].calls == len(units) + 1
    assert stages["llm:judge"].calls >= len(written.rows)
    assert plan.totals["usd"] > 0.9 * len(units)
    lines = "\n".join(plan.describe())
    assert describe_run(load_settings(), ["registry"]) == f"{lines}\n{plan.exceeded}"
    assert f"{plan.totals['usd']:.2f} USD" in lines


def test_a_damaged_home_keeps_no_run_back_and_is_named_by_the_plan(warehouse):
    publish(warehouse, DEPLOYMENTS, [{"server_id": "a", "status": "ok"}])
    head = warehouse.tables.folder(DEPLOYMENTS.name, "registry") / "HEAD.json"
    head.write_text("{")
    line = describe_run(load_settings(), ["registry"])
    assert line.startswith("plan: not known (PointerBroken: ")
    assert "\n" not in line
    with pytest.raises(PointerBroken) as caught:
        make_plan(load_settings(), ["registry"])
    assert str(caught.value).startswith(f"{head}: cannot be read")
