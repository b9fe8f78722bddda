"""A plan counts what a run would carry out, carries out nothing of it, and names the budget that it
passes."""

import asyncio
import json
from pathlib import Path

import pytest

from assets.contracts.quarantine.clear import CLEAR
from assets.marketplaces.listing import Listing, Package, make_row
from assets.marketplaces.listing_table import LISTINGS
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from orchestration.plan.launches import measure_changed, measure_recovered, weigh_launches
from orchestration.plan.marketplace import StagePlan
from orchestration.plan.plan import (
    Effects,
    RunPlan,
    describe_run,
    estimate_effects,
    make_plan,
    measure_daily_change,
)
from orchestration.plan.rates import Rates
from orchestration.plan.rehearsal import NotSent, RehearsedLedger, open_rehearsal
from orchestration.settings.load import load_settings
from orchestration.settings.model import Settings
from warehouse.ledger.attempts import Outcome
from warehouse.llm.roles import LLMError
from warehouse.storage.pointers import PointerBroken
from warehouse.store import Warehouse


@pytest.fixture
def warehouse(tmp_path: Path) -> Warehouse:
    made = Warehouse(home=tmp_path / "home", state=tmp_path / "state")
    made.check_writable()
    return made


def read_files(folder: Path) -> dict[str, bytes]:
    return {str(p.relative_to(folder)): p.read_bytes() for p in folder.rglob("*") if p.is_file()}


def deploy(warehouse: Warehouse, servers: dict[str, str], market: str = "registry") -> None:
    rows = [
        {"server_id": name, "launch_digest": launch, "status": "ok"}
        for name, launch in servers.items()
    ]
    tables = warehouse.tables
    tables.promote(tables.stage(DEPLOYMENTS, DEPLOYMENTS.frame(rows), market), "run", [])


async def answer() -> Outcome:
    return Outcome(b"answer")


def test_a_rehearsal_leaves_the_home_as_it_was(warehouse: Warehouse) -> None:
    deploy(warehouse, {"a": "1"})
    (warehouse.home / "lance").mkdir()
    (warehouse.home / "lance" / "part.lance").write_bytes(b"1")
    before = read_files(warehouse.home)
    with open_rehearsal(warehouse, frozenset()) as rehearsal:
        assert rehearsal.tables.read(DEPLOYMENTS)["server_id"].to_list() == ["a"]
        deploy(rehearsal, {"a": "2", "b": "1"})
        (rehearsal.home / "lance" / "part2.lance").write_bytes(b"2")
        assert rehearsal.tables.read(DEPLOYMENTS).height == 2
        home = rehearsal.home
    assert not home.exists()
    assert read_files(warehouse.home) == before


def test_an_effect_is_counted_once_and_known_ones_are_not(warehouse: Warehouse) -> None:
    real = warehouse.ledger
    real.once("deploy", "known", lambda: Outcome(b"kept"))
    ledger = RehearsedLedger(real, frozenset({"judge"}))
    assert ledger.once("deploy", "known", lambda: Outcome(b"other")) == b"kept"
    for _ in range(2):
        with pytest.raises(NotSent):
            ledger.once("deploy", "new", lambda: pytest.fail("it was carried out"))
    assert asyncio.run(ledger.once_async("llm:judge", "j", answer)) == b"answer"
    assert asyncio.run(ledger.once_async("llm:judge", "j", answer)) == b"answer"
    with pytest.raises(LLMError):
        asyncio.run(ledger.once_async("llm:generator", "g", answer))
    ledger.note("execute", "x")
    ledger.note("execute", "known")
    assert ledger.asked == {"deploy": 1, "llm:judge": 1, "llm:generator": 1, "execute": 1}
    assert real.counts() == {("deploy", "done"): 1}
    assert real.seen("j") is None


def cost(stage: str, effects: int, **figures: float) -> dict[str, object]:
    empty = {"seconds": 0.0, "prompt_tokens": 0, "completion_tokens": 0, "usd": 0.0}
    return {"stage": stage, "status": "done", "effects": effects, **empty, **figures}


def test_rates_are_measured_or_say_that_they_are_not(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__MODEL", "some-model")
    monkeypatch.setenv("TOOLMILL_ROLES__JUDGE__USD_IN", "1000")
    rates = Rates([cost("deploy", 4, seconds=20.0), cost("llm:judge", 9)], load_settings())
    assert rates.find("deploy").seconds == 5
    assert rates.find("deploy").basis == "measured: 4 of this home"
    assert rates.find("page").basis == "default: none was measured"
    # Nine answers by rules cost nothing, and say nothing of a model that answers from now on.
    assert rates.find("llm:judge").usd == pytest.approx(0.9)
    assert rates.find("llm:caller").usd == 0


def estimate(
    warehouse: Warehouse, calls: dict[str, int], offline: bool, launched: float = 0.0
) -> dict[str, float]:
    costs = [cost("llm:generator", 10), cost("llm:judge", 40), cost("execute", 20)]
    rates = Rates(costs, load_settings())
    names = frozenset({"generator"}) if offline else frozenset()
    stages = {"registry": [StagePlan("pairs", calls=calls)]}
    found = estimate_effects(warehouse, stages, rates, names, launched)
    return {one.stage: one.calls for one in found}


def test_what_follows_from_answers_is_estimated_where_a_model_gives_them(
    warehouse: Warehouse,
) -> None:
    assert estimate(warehouse, {"llm:generator": 3}, offline=True) == {"llm:generator": 3}
    assert estimate(warehouse, {"llm:generator": 3}, offline=False) == {
        "llm:generator": 3,
        "llm:judge": 12,
    }


def test_what_launched_servers_lead_to_is_estimated_from_those_of_the_home(
    warehouse: Warehouse,
) -> None:
    deploy(warehouse, {"a": "1", "b": "1", "c": "1", "d": "1", "e": "1"})
    assert estimate(warehouse, {"deploy": 2}, offline=True, launched=2.0) == {
        "deploy": 2,
        "execute": 8,
        "llm:generator": 4,
        "llm:judge": 16,
    }


def list_tools(warehouse: Warehouse, servers: dict[str, list[str]]) -> None:
    """A version of the clear contracts: server -> its contracts."""
    rows = [
        {"server_id": server, "tool": f"t{n}", "contract_digest": name}
        for server, names in servers.items()
        for n, name in enumerate(names)
    ]
    tables = warehouse.tables
    tables.promote(tables.stage(CLEAR, CLEAR.frame(rows), "registry"), "run", [])


def judge_launches(warehouse: Warehouse, night: int, servers: dict[str, str]) -> None:
    """A version of the deployments: server -> status, each launched in this night."""
    rows = [
        {"server_id": name, "status": status, "probed_at": float(night)}
        for name, status in servers.items()
    ]
    tables = warehouse.tables
    tables.promote(tables.stage(DEPLOYMENTS, DEPLOYMENTS.frame(rows), "registry"), "run", [])


def test_a_launch_after_a_failure_or_of_known_tools_is_taken_to_lead_to_less(
    warehouse: Warehouse,
) -> None:
    tables = warehouse.tables
    judge_launches(warehouse, 1, {"a": "ok", "b": "ok", "down": "failed", "e": "failed"})
    list_tools(warehouse, {"a": ["1", "2", "3", "4"], "b": ["1"]})
    assert measure_changed(tables) == 1.0, "no update was seen yet"
    assert weigh_launches(tables, {"new", "newer"}) == 2.0
    judge_launches(warehouse, 2, {"a": "ok", "b": "ok", "down": "failed", "e": "ok"})
    list_tools(warehouse, {"a": ["1", "2", "3", "5"], "b": ["1"], "e": ["1"]})
    assert measure_recovered(tables) == pytest.approx((1 + 1) / (2 + 2))
    assert measure_changed(tables) == pytest.approx(1 / 4)
    per_launched = 4 / 3  # servers of the home for each that lists tools
    assert weigh_launches(tables, {"down"}) == pytest.approx(1 / 2 * per_launched)
    judge_launches(warehouse, 3, {"a": "failed", "b": "ok", "down": "failed", "e": "ok"})
    assert weigh_launches(tables, {"a"}) == pytest.approx(1 / 4 * 4 / 2), "its tools are known"
    assert weigh_launches(tables, set()) == 0.0


def make_listings(warehouse: Warehouse, market: str) -> None:
    """One npm package that nobody has resolved yet, as `market` lists it."""
    listing = Listing(
        marketplace=market,
        native_id="a",
        name="a",
        transport="stdio",
        runnable=True,
        package=Package(type="npm", identifier="@a/server", version="1.0.0"),
    )
    tables, frame = warehouse.tables, LISTINGS.frame([make_row(listing)])
    tables.promote(tables.stage(LISTINGS, frame, market), "run", [])


def test_a_server_that_two_marketplaces_list_is_launched_once(
    empty_home: Settings, warehouse: Warehouse
) -> None:
    for market in ("registry", "pulsemcp"):
        make_listings(warehouse, market)
    made = make_plan(empty_home, ["registry", "pulsemcp"], write=False)
    assert [(effect.stage, effect.counted) for effect in made.effects] == [("deploy", 1)]
    stages = [marketplace.stage for marketplace in made.marketplaces["registry"]]
    assert stages == ["listings", "deployments", "executions"], "calls that limits left are due"
    basis = made.marketplaces["pulsemcp"][1].basis
    assert "1 of them as if what is not resolved yet were launched" in basis


def test_a_remote_server_is_asked_in_every_run_and_leads_to_nothing_by_that(
    empty_home: Settings, warehouse: Warehouse
) -> None:
    deploy(warehouse, {"a": "1"})
    warehouse.ledger.once("llm:generator", "k", lambda: Outcome(b"paid"))
    url = "http://127.0.0.1:9/mcp"
    listing = Listing(
        marketplace="registry", native_id="a", name="a", transport="streamable-http", url=url,
        runnable=True,
    )  # fmt: skip
    tables, frame = warehouse.tables, LISTINGS.frame([make_row(listing)])
    tables.promote(tables.stage(LISTINGS, frame, "registry"), "run", [])
    made = make_plan(empty_home, ["registry"], write=False)
    assert [(effect.stage, effect.counted) for effect in made.effects] == [("remote", 1)]


def test_the_daily_change_is_that_of_the_last_versions(warehouse: Warehouse) -> None:
    assert measure_daily_change(warehouse, "registry") == (0.0, 0)
    deploy(warehouse, {"a": "1", "b": "1", "c": "1", "d": "1"})
    deploy(warehouse, {"a": "2", "b": "1", "c": "1", "e": "1"})
    share, versions = measure_daily_change(warehouse, "registry")
    assert (share, versions) == (pytest.approx(3 / 4), 1)


@pytest.fixture
def empty_home(warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch) -> Settings:
    monkeypatch.setenv("TOOLMILL_HOME", str(warehouse.home))
    monkeypatch.setenv("TOOLMILL_STATE", str(warehouse.state))
    return load_settings()


def test_a_home_without_listings_is_said_to_foresee_nothing(empty_home: Settings) -> None:
    made = make_plan(empty_home, ["registry"], write=False)
    assert made.describe_first_line().endswith("nothing can be foreseen")
    assert made.exceeded == []
    assert made.as_json()["affordable"]


def test_a_damaged_home_keeps_no_run_back(empty_home: Settings, warehouse: Warehouse) -> None:
    """`toolmill doctor` names the next run as what makes a lost version anew."""
    deploy(warehouse, {"a": "1"})
    assert describe_run(empty_home, ["registry"]).endswith("nothing can be foreseen")
    [head] = warehouse.tables.history(DEPLOYMENTS.name, "registry")
    (warehouse.tables.folder(DEPLOYMENTS.name, "registry") / f"{head.digest}.parquet").unlink()
    line = describe_run(empty_home, ["registry"])
    assert line.startswith("plan: not known (FileNotFoundError: ")
    assert "\n" not in line
    assert "toolmill-plan-" not in line, "that folder is gone"


def test_a_broken_pointer_is_named_where_it_lies(
    empty_home: Settings, warehouse: Warehouse
) -> None:
    deploy(warehouse, {"a": "1"})
    head = warehouse.tables.folder(DEPLOYMENTS.name, "registry") / "HEAD.json"
    head.write_text("{")
    with pytest.raises(PointerBroken) as caught:
        make_plan(empty_home, ["registry"], write=False)
    assert str(caught.value).startswith(f"{head}: cannot be read")


def test_a_plan_is_json_and_its_first_line_sums_it_up() -> None:
    stages = {
        "registry": [
            StagePlan("listings", unchanged=9, calls={"page": 3}),
            StagePlan("deployments", new=2, calls={"deploy": 2, "remote": 1}),
        ]
    }
    takes = {"tokens": 0, "usd": 0.5, "minutes": 2.0, "counted": 0, "basis": "measured"}
    names = {"page": 3, "remote": 1, "deploy": 2, "llm:judge": 40, "llm:caller": 2.4}
    effects = [Effects(stage, calls, **takes) for stage, calls in names.items()]
    made = RunPlan(stages, effects, "no", [], spent_usd=0.0)
    assert made.describe_first_line() == (
        "plan: 4 requests, 2 launches, at least 42 model calls, 0 executed calls, 2.50 USD,"
        " about 10 minutes; training: no"
    )
    read = json.loads(json.dumps(made.as_json()))
    assert read["marketplaces"]["registry"][1]["calls"] == {"deploy": 2, "remote": 1}
    assert read["totals"] == {"calls": 48.4, "usd": 2.5, "minutes": 10.0}


def test_a_plan_that_passes_a_budget_names_it(
    empty_home: Settings, warehouse: Warehouse, monkeypatch: pytest.MonkeyPatch
) -> None:
    from orchestration.plan import plan

    effects = plan.Effects("llm:judge", 10, 1000, 4.0, 1.0, 10, "")
    made = RunPlan({}, [effects], "no", [], spent_usd=2.0)
    assert plan.find_exceeded(empty_home, warehouse, made, trains=False) == [
        "budget_usd: 2.00 USD are spent and the run is taken to need 4.00 more; the budget is 5.00"
    ]
    monkeypatch.setenv("TOOLMILL_TRAINING__DRIFT__GPU_HOURS_MONTH", "0.5")
    real = warehouse.ledger
    real.once("train:caller", "k", lambda: Outcome(b"m"))
    with real._database.transaction() as db:
        db.execute("UPDATE attempts SET started_at = finished_at - 3600")
    cheap = RunPlan({}, [], "yes", [], spent_usd=2.0)
    assert plan.find_exceeded(load_settings(), warehouse, cheap, trains=False) == []
    [why] = plan.find_exceeded(load_settings(), warehouse, cheap, trains=True)
    assert "trainings took 1.00 GPU hours" in why
