import json

import pytest

from assets.contracts.changes import CHANGES, add_changes
from assets.contracts.snapshot import SNAPSHOTS, build_snapshot, list_malformed
from warehouse.storage.blobs import Blobs

DAY = 86_400.0
TOOL = {"name": "a", "description": "Does a.", "inputSchema": {"type": "object"}}


@pytest.fixture
def blobs(tmp_path):
    return Blobs(tmp_path)


def _deployment(blobs, tools, server="npm:x", at=0.0, status="ok"):
    return {
        "server_id": server,
        "marketplace": "registry",
        "status": status,
        "recipe_digest": "r" * 64,
        "probed_at": at,
        "tools_blob": blobs.put(json.dumps(tools).encode()) if status == "ok" else None,
    }


def _digest(rows):
    return SNAPSHOTS.digest(SNAPSHOTS.frame(rows))


def test_the_first_run_knows_each_tool_once(blobs):
    (row,) = build_snapshot(
        [], [_deployment(blobs, [TOOL, {**TOOL, "description": "Twin."}])], blobs, 0.0
    )
    assert (row["tool"], row["first_seen"], row["last_seen"]) == ("a", "1970-01-01", "1970-01-01")
    assert json.loads(row["contract"])["description"] == "Does a."


def test_a_run_that_saw_the_same_is_the_same_version(blobs):
    first = build_snapshot([], [_deployment(blobs, [TOOL])], blobs, 0.0)
    second = build_snapshot(first, [_deployment(blobs, [TOOL], at=5 * DAY)], blobs, 5 * DAY)
    assert _digest(first) == _digest(second)
    assert second[0]["last_seen"] == "1970-01-06"


def test_a_changed_contract_starts_its_own_history(blobs):
    first = build_snapshot([], [_deployment(blobs, [TOOL])], blobs, 0.0)
    new = {**TOOL, "description": "Does more."}
    (row,) = build_snapshot(first, [_deployment(blobs, [new], at=DAY)], blobs, DAY)
    assert row["first_seen"] == "1970-01-02"


def test_a_server_that_fails_keeps_its_last_good_contracts(blobs):
    first = build_snapshot([], [_deployment(blobs, [TOOL])], blobs, 0.0)
    assert build_snapshot(first, [_deployment(blobs, [], status="failed")], blobs, DAY) == first


def test_a_server_whose_listing_is_gone_is_dropped(blobs):
    first = build_snapshot([], [_deployment(blobs, [TOOL])], blobs, 0.0)
    assert build_snapshot(first, [], blobs, DAY) == []


def test_one_bad_tool_does_not_lose_the_list(blobs):
    bad = {"name": "b", "inputSchema": {"type": "object", "properties": {"x": {"type": "any"}}}}
    tools = [{"name": 7}, TOOL, {"name": "c", "inputSchema": 7}, bad, TOOL, "noise"]
    deployments = [_deployment(blobs, tools)]
    rows = build_snapshot([], deployments, blobs, 0.0)
    assert [(row["tool"], row["schema_problem"] is None) for row in rows] == [
        ("a", True),
        ("b", False),
    ]
    problems = [row["problem"] for row in list_malformed(deployments, blobs)]
    assert len(problems) == 4
    assert "expected an object" in problems[1]


def test_changes_are_added_to_the_history_once(blobs):
    old = build_snapshot([], [_deployment(blobs, [TOOL])], blobs, 0.0)
    new = {**TOOL, "inputSchema": {"type": "object", "required": ["x"]}}
    after = build_snapshot(old, [_deployment(blobs, [new], at=DAY)], blobs, DAY)
    rows = add_changes([], old, after, DAY)
    assert [(row["tool"], row["cls"], row["run_date"]) for row in rows] == [
        ("a", "breaking", "1970-01-02")
    ]
    assert rows[0]["from_digest"] == old[0]["contract_digest"]
    assert add_changes(rows, old, after, DAY) == rows
    CHANGES.frame(rows)


def test_a_new_server_is_no_change_and_a_lost_one_breaks_its_tools(blobs):
    rows = build_snapshot([], [_deployment(blobs, [TOOL])], blobs, 0.0)
    assert add_changes([], [], rows, 0.0) == []
    assert [row["fields"] for row in add_changes([], rows, [], 0.0)] == ['["removed"]']
