"""Batches through the sensor and the command line: polled with patience, asked for once."""

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from extensions.batch import batch_ledger, defs
from orchestration.definitions import build_defs
from orchestration.factories import make_writer
from orchestration.settings.load import load_settings
from tests.extensions.batch.batch_runs import echo, run_stage
from tests.support.batch_endpoint import BatchServer, Fault, batch_endpoint
from tests.support.command import invoke_toolmill
from warehouse.ledger.batch_records import BatchRecord
from warehouse.ledger.ledger import Ledger
from warehouse.llm.client import Role
from warehouse.store import Warehouse

WORDS = ["heron", "crane"]


def make_batch(name: str, **facts: Any) -> BatchRecord:
    known: dict[str, Any] = {
        "name": name, "state": "sent", "stage": "pairs", "partition": "registry", "role": "judge",
        "model": "m", "base_url": "", "window": "24h", "usd_in": 0.0, "usd_out": 0.0,
        "opened_at": 1000.0, "pid": 1, "process": "",
    }  # fmt: skip
    return BatchRecord(**{**known, **facts})


def test_polls_are_bounded_and_wait_longer_each_time():
    cursor, open_ = defs.PollCursor(), [make_batch(f"b{number:02}") for number in range(25)]
    first = defs.choose_due(open_, cursor, 0.0)
    assert len(first) == 20
    defs.note_polls(cursor, first, open_, 0.0)
    assert defs.choose_due(open_, cursor, 1.0) == [f"b{number:02}" for number in range(20, 25)]
    waits, now = [], 0.0
    for _ in range(6):
        now = cursor.polls["b00"][0]
        assert "b00" in defs.choose_due(open_[:1], cursor, now)
        defs.note_polls(cursor, ["b00"], open_, now)
        waits.append(cursor.polls["b00"][0] - now)
    assert waits == [120.0, 240.0, 480.0, 900.0, 900.0, 900.0]
    defs.note_polls(cursor, [], [], now)
    assert cursor.polls == {}


def test_a_cursor_is_read_as_it_was_written_and_each_marketplace_and_part_asked_for_once():
    cursor = defs.PollCursor({"a": (5.0, 120.0)}, ["b"])
    assert defs.read_cursor(defs.write_cursor(cursor)) == cursor
    for spoilt in (None, "", "{", "[]", '{"polls": 3, "asked": []}', '{"polls": {"a": 1}}'):
        assert defs.read_cursor(spoilt) == defs.PollCursor()
    done = {"state": "harvested", "answered": 3}
    batches = [
        make_batch("a", **done),
        make_batch("b", **done),
        make_batch("c", **done, partition="mcpso", stage="judgements"),
        make_batch("d", **done, partition="_", stage="summaries"),
        make_batch("e", state="harvested"),  # nobody answered anything
        make_batch("f"),
        make_batch("g", **done, opened_at=1000.0 - 8 * 86_400),
    ]
    cursor = defs.PollCursor()
    asked = defs.request_runs(batches, cursor, 1000.0)
    result = [
        (item.job_name, item.partition_key, [key.to_user_string() for key in item.asset_selection])
        for item in asked
        if item.asset_selection
    ]
    assert result == [
        ("nightly", "mcpso", ["judgements", "executions"]),
        ("nightly", "registry", ["pairs", "judgements", "executions"]),
        ("fan_in", None, ["server_summaries"]),
    ]
    assert defs.request_runs(batches, cursor, 1000.0) == []
    [later] = defs.request_runs([*batches[:5], make_batch("f", **done)], cursor, 1000.0)
    assert later.run_key not in {item.run_key for item in asked}


@dataclass
class Place:
    """A home whose judge goes by batch, and the endpoint."""

    home: Path
    server: BatchServer

    @property
    def ledger(self) -> Ledger:
        return Warehouse(home=self.home, state=self.home / "state").ledger

    def submit(self) -> None:
        roles = {role.name: role for role in make_writer(load_settings()).roles}
        assert roles["judge"].batch
        settings = {"batch": True, "timeout_s": 5.0, "attempts": 3}
        role = Role(name="generator", model="m", base_url=self.server.url, api_key="k", **settings)
        run_stage(self.ledger, role, WORDS)

    def invoke(self, *words: str) -> tuple[int, Any, str]:
        done = invoke_toolmill("batch", *words, "--json", home=self.home)
        return done.returncode, json.loads(done.stdout or "null"), done.stderr


@pytest.fixture
def place(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Place]:
    monkeypatch.setenv("TOOLMILL_HOME", str(tmp_path))
    monkeypatch.chdir(tmp_path)
    for role in ("GENERATOR", "JUDGE"):
        monkeypatch.setenv(f"TOOLMILL_ROLES__{role}__MODEL", "m")
        monkeypatch.setenv(f"TOOLMILL_ROLES__{role}__BATCH", "true")
    with batch_endpoint(echo) as server:
        monkeypatch.setenv("OPENAI_BASE_URL", server.url)
        monkeypatch.setenv("OPENAI_API_KEY", "k")
        yield Place(tmp_path, server)


def test_a_tick_sends_polls_harvests_and_asks_for_the_run(place):
    place.server.faults[("POST", "/files")] = [Fault(503)]
    place.submit()
    assert not place.server.batches
    first = defs.run_tick(None)
    assert len(place.server.batches) == 1
    assert first.skip_reason
    assert first.skip_reason.skip_message == "1 batches are open"
    place.server.end()
    assert not defs.run_tick(first.cursor).run_requests, "it is not due yet"
    done = defs.run_tick(defs.write_cursor(defs.PollCursor()))
    [request] = done.run_requests or []
    assert (request.job_name, request.partition_key) == ("nightly", "_")
    assert not defs.run_tick(done.cursor).run_requests
    assert defs.run_tick(defs.write_cursor(defs.PollCursor({}, ["x"]))).run_requests is not None


def test_the_sensor_is_part_of_the_code_location_and_starts_switched_off():
    [found] = [item for item in build_defs().sensors or [] if item.name == "harvest_batches"]
    assert isinstance(found, dg.SensorDefinition)
    assert [job.name for job in found.jobs] == ["nightly", "fan_in"]
    assert found.default_status is dg.DefaultSensorStatus.STOPPED


def test_the_commands_list_harvest_and_cancel(place):
    place.submit()
    status, [listed], _ = place.invoke()
    assert (status, listed["state"], listed["requests"]) == (0, "sent", 2)
    status, [polled], _ = place.invoke("--harvest", listed["name"])
    assert (status, polled["status"]) == (0, "validating")
    status, [cancelled], _ = place.invoke("--cancel", listed["name"])
    assert (status, cancelled["status"]) == (0, "cancelling")
    place.server.end("cancelled", share=0.5)
    status, [done], _ = place.invoke("--harvest")
    assert (status, done["state"], done["answered"], done["failed"]) == (0, "harvested", 1, 1)
    assert place.invoke()[1] == []
    lines = invoke_toolmill("batch", listed["name"], home=place.home).stdout.splitlines()
    assert "1 answered, 1 failed, 0 unknown" in lines[0]
    assert lines[1:] == ["1 batches"]


def test_a_batch_that_is_not_open_is_one_line(place):
    place.submit()
    assert place.invoke("--harvest", "tm-none")[0] == 2
    status, _, error = place.invoke("--cancel", "tm-none")
    assert status == 2
    assert error.startswith("batch 'tm-none' is not known; open: tm-")
    [open_] = batch_ledger.BatchLedger(place.ledger).find("sent")
    status, [gone], _ = place.invoke("--cancel", open_.name, "--give-up")
    assert (status, gone["state"], gone["unknown"]) == (0, "given_up", 2)
