"""The claims of a month fail where they should, incidents lie apart, and a killed month goes on."""

import asyncio
import itertools
import json
import os
from datetime import timedelta
from pathlib import Path

import pytest

from assets.marketplaces.listing import PackageRef
from assets.servers.deploy.deployment_table import DEPLOYMENTS
from assets.servers.recipes.recipe import LaunchRecipe
from assets.synthesis.role_schemas import Choice
from assets.synthesis.tables import PAIRS
from assets.synthesis.writing.single_call import STEP as CHECK
from benchmarks.nights import claims
from benchmarks.nights.__main__ import open_month
from benchmarks.nights.incidents import (
    INCIDENTS,
    POISON,
    POISONED_SERVERS,
    QUIET,
    make_month,
    place_incidents,
)
from benchmarks.nights.nightly_run import list_faults, open_time
from benchmarks.nights.place import SETTINGS, age_files, measure_bytes
from benchmarks.nights.reach import Shown, count_reached, make_shown
from benchmarks.nights.replay import Replay, fill_disk
from benchmarks.nights.report import describe_ratios, draw_month, make_table
from benchmarks.nights.vectors import convert_age, note_start, read_starts
from benchmarks.nights.writers import make_month_writer
from demo.world.month import START
from warehouse.llm.roles import LLMError
from warehouse.storage.files import write_atomically
from warehouse.store import Warehouse


def test_thirty_days_have_every_incident_once_and_apart() -> None:
    placed = place_incidents(30)
    assert sorted(placed.values()) == sorted(INCIDENTS)
    days = sorted(placed)
    assert days[0] == 2
    assert days[-1] <= 30
    assert all(later - day >= 3 for day, later in itertools.pairwise(days))
    assert set(place_incidents(3)) <= {2, 3}
    assert place_incidents(1) == {}


def test_the_world_holds_its_incidents() -> None:
    month = make_month(7, 60, {2: QUIET, 3: POISON})
    assert month.make_day(2).count_changes()[0] == 0
    assert claims.count_revised(month.make_day(2)) == 0
    assert claims.count_revised(month.make_day(3)) >= POISONED_SERVERS
    assert len(month.list_poisoned(3)) == POISONED_SERVERS
    assert list_faults("marketplace down", ("registry", "smithery")) == {"smithery": "down"}
    assert list_faults("", ("registry",)) == {}


def test_a_replayed_launch_lists_the_contracts_of_its_day_or_says_why_not() -> None:
    day = make_month(7, 40, {}).make_day(1)
    replay, kinds = Replay(day), set()
    for one in claims.list_launched(day):
        package = one.record.package
        assert package is not None
        found = replay.resolve(
            PackageRef(type=package.kind, identifier=package.identifier, version=package.version)
        )
        recipe = LaunchRecipe(
            server_id=claims.name_server(one), ecosystem=package.kind, name=package.identifier,
            version=found.version, integrity=found.integrity,
        )  # fmt: skip
        came = replay.deploy(recipe).probe
        assert came == replay.deploy(recipe).probe
        kinds.add(came.error_kind)
        assert came.tools == (list(one.tools) if came.status == "ok" else [])
        other = recipe.model_copy(update={"version": "99.0.0"})
        assert replay.deploy(other).probe.status == "failed"
    assert {None, "needs_secret"} <= kinds


def test_a_full_disk_takes_so_many_writes_and_leaves_nothing_half(tmp_path: Path) -> None:
    with fill_disk(after=2) as count_refused:
        write_atomically(tmp_path / "a", b"1")  # the file and its folder
        with pytest.raises(OSError, match="No space left"):
            write_atomically(tmp_path / "a", b"2")
        assert count_refused() == 1
    assert (tmp_path / "a").read_bytes() == b"1"
    assert os.listdir(tmp_path) == ["a"]


def test_a_lost_contract_and_a_failure_without_reason_are_found(tmp_path: Path) -> None:
    day = make_month(7, 20, {}).make_day(1)
    warehouse = Warehouse(tmp_path / "home", tmp_path / "state")
    server = claims.name_server(claims.list_launched(day)[0])
    rows = [{"server_id": server, "status": "failed", "error_kind": "crashed"}]
    tables = warehouse.tables
    tables.promote(tables.stage(DEPLOYMENTS, DEPLOYMENTS.frame(rows), "registry"), "run", [])
    found = list(claims.find_lost(warehouse, day, ["registry"], {}))
    assert f"registry: {server} failed and states no reason" in found
    assert "registry: 1 deployments of 20 servers" in found
    assert sum("is in no deployment" in one for one in found) == len(claims.list_launched(day)) - 1
    dark = claims.find_lost(warehouse, day, ["registry"], {"registry": 2}, "registry")
    assert list(dark) == ["registry: 1 deployments of 2 while it is dark"]
    assert not list(claims.find_lost(warehouse, day, ["registry"], {"registry": 1}, "registry"))


def test_calls_beyond_the_change_and_beside_the_plan_are_found() -> None:
    first = {"deploy": 100, "llm": 1000}
    within = {"deploy": 8, "llm": 50}
    assert not list(claims.find_overspent(within, first, 0.04, launches=8))
    more = {"deploy": 9, "llm": 51}
    assert list(claims.find_overspent(more, first, 0.04, launches=8)) == [
        "deploy: 9 launches where 8 packages were due",
        "llm: 51 calls, 5.1% of the first day's, where the change reaches 4.0%",
    ]


def test_answers_of_a_month_have_the_tokens_and_prices_of_an_endpoints(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name, text in {**SETTINGS, "TOOLMILL_HOME": str(tmp_path)}.items():
        monkeypatch.setenv(name, text)
    warehouse = Warehouse(tmp_path, tmp_path / "state")
    told = [{"role": "user", "content": "a" * 400_000}]
    adds = {"name": "add", "description": "Adds numbers.", "inputSchema": {"type": "object"}}
    meta = {"contracts": [adds], "instruction": "Add 2 and 3."}
    llm = make_month_writer().make_llm(warehouse, "registry")
    reply = asyncio.run(llm.complete("checker_a", told, schema=Choice, meta=meta))
    assert reply.prompt_tokens == 100_000
    assert 0 < reply.completion_tokens < 1000
    assert reply.usd == pytest.approx(0.01 + reply.completion_tokens * 0.4e-6)
    silent = make_month_writer(down=True).make_llm(warehouse, "registry")
    with pytest.raises(LLMError, match="endpoint_down"):
        asyncio.run(silent.complete("checker_a", told, schema=Choice, seed=1, meta=meta))


def test_a_change_reaches_the_rows_that_are_about_it_or_show_it() -> None:
    def make(key: str, about: str, shown: str, written: int, checked: int):
        of = Shown(frozenset(about), frozenset(shown), written, checked)
        return {("registry", key, "t", "single", 0): of}

    first = make("a", "a", "abc", 3, 2) | make("b", "b", "bcd", 3, 2) | make("d", "d", "d", 6, 0)
    assert count_reached(first, first) == 0
    assert count_reached({}, first) == 16
    changed = make("a", "x", "xbc", 3, 2) | make("b", "b", "bxd", 3, 2)
    assert count_reached(first, first | changed) == 5 + 2
    assert count_reached(first, {}) == 0
    # What two marketplaces list alike is asked once, also where one of them is dark.
    beside = {("smithery", *key[1:]): one for key, one in first.items()}
    assert count_reached({}, first | beside) == 16
    assert count_reached(first | beside, first | beside | changed) == 5 + 2


def test_a_row_says_what_it_is_about_and_which_calls_it_took() -> None:
    step, check = {"step": "generate"}, {"step": CHECK}
    row = {
        **dict.fromkeys(PAIRS.columns), "task": "single", "status": "ok", "verdict": "accept",
        "contract_digest": "c1", "offered": '["c1", "c2"]', "contracts": '["c1", "c2", "c3"]',
        "calls": "[]", "steps": json.dumps([step, step, check, check]),
    }  # fmt: skip
    shown = make_shown(row)
    assert (sorted(shown.about), sorted(shown.shown)) == (["c1", "c2"], ["c1", "c2", "c3"])
    assert (shown.written, shown.checked) == (3, 2)  # the judge's call is with what is written
    assert make_shown({**row, "verdict": "reject"}).written == 2


def test_a_month_goes_on_under_the_same_arguments_alone(tmp_path: Path) -> None:
    assert open_month(tmp_path, {"seed": 7}) == []
    (tmp_path / "days.jsonl").write_text(json.dumps({"day": 1}) + "\n")
    assert open_month(tmp_path, {"seed": 7}) == [{"day": 1}]
    with pytest.raises(SystemExit, match="other arguments"):
        open_month(tmp_path, {"seed": 8})


def test_files_of_the_real_clock_get_the_months(tmp_path: Path) -> None:
    for name, at in (("old", 100.0), ("new", 900.0)):
        (tmp_path / name).write_bytes(b"12")
        os.utime(tmp_path / name, (at, at))
    age_files(tmp_path, now=1000.0, before=500.0)
    times = {path.name: path.stat().st_mtime for path in tmp_path.iterdir()}
    assert times == {"old": 1000.0, "new": 900.0}
    assert measure_bytes(tmp_path) == 4


def test_a_version_is_as_old_as_the_month_has_run_since_its_day() -> None:
    starts, week = {1: 100.0, 2: 160.0, 3: 200.0}, timedelta(days=7)
    third = START.timestamp() + 2 * 86_400 + 3 * 3600
    assert convert_age(timedelta(days=1), third, starts, 230.0) == timedelta(seconds=70)
    assert convert_age(timedelta(), third, starts, 230.0) == timedelta(seconds=30)
    assert convert_age(week, third, starts, 230.0) > timedelta(seconds=130)  # before all of them


def test_a_day_begins_by_the_machines_clock_whatever_the_months_is(tmp_path: Path) -> None:
    note_start(tmp_path, 1)
    with open_time(9):
        note_start(tmp_path, 2)
    starts = read_starts(tmp_path)
    assert 0 <= starts[2] - starts[1] < 3_600


def make_row(day: int, llm: int, **more: object) -> dict[str, object]:
    calls = {"deploy": 1, "llm": llm, "execute": 0}
    return {
        "day": day, "incident": "", "contracts": 10, "changed": 0.1, "reached": 0.2, "done": calls,
        "made_usd": 0.01, "champion": {}, "trained": False,
        "wall_s": 2.0, "nightly_s": 1.0, "cpu_s": 1.0, "bytes": {"home": 2e6, "events": 1e6},
        "violations": [], **more,
    }  # fmt: skip


def test_the_report_tells_ratios_and_what_gc_took(tmp_path: Path) -> None:
    gc = {"after": {"home": 1e6, "events": 5e5}}
    rows = [make_row(1, 99), make_row(2, 0, incident=QUIET, gc=gc)]
    first, second = make_table(rows).splitlines()[2:]
    assert "| 99 | 100.0% | 0 | 0.0100 |" in first
    assert "| 0 | 0.0% |" in second
    assert "2.0 → 1.0 | 1.0 → 0.5" in second
    assert "calls 1 of 100 (1.00%); all 2.0 of 2.0 s" in describe_ratios(rows, QUIET, "none")
    draw_month(rows, tmp_path / "month.png")
    assert (tmp_path / "month.png").read_bytes().startswith(b"\x89PNG")
