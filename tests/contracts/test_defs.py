"""The assets `snapshots` and `contract_changes` over real tables, old versions of them included."""

from dataclasses import replace
from typing import Any

from assets.contracts import defs
from assets.contracts.changes import CHANGES
from assets.contracts.defs import contract_changes, snapshots
from assets.contracts.snapshot import SNAPSHOTS, build_snapshot
from tests.contracts.pipeline import MARKET, honest_servers, poisoned_servers
from tests.support.cases import cases
from warehouse.storage.blobs import Blobs


def test_a_change_says_why_and_a_change_of_an_older_table_says_nothing(pipeline):
    tables = pipeline.warehouse.tables
    columns = {name: kind for name, kind in CHANGES.columns.items() if name != "why"}
    older = replace(CHANGES, columns=columns, schema_version=1)
    row = dict.fromkeys(columns, "x")
    row |= {"fields": '["removed"]', "renamed_from": None, "cls": "breaking"}
    tables.promote(tables.stage(older, older.frame([row])), "before", [])
    pipeline.deploy(honest_servers())
    pipeline.run([snapshots], MARKET)
    pipeline.deploy(poisoned_servers())
    pipeline.run([snapshots], MARKET)
    pipeline.run([contract_changes])
    why = {row["tool"]: (row["cls"], row["why"]) for row in pipeline.read_rows(CHANGES)}
    assert why["x"] == ("breaking", None)
    assert why["find_photo"][0] == "suspicious"
    assert "not any more" in why["find_photo"][1]


def test_why_of_a_change_can_be_printed_anywhere(pipeline):
    pipeline.deploy(honest_servers())
    pipeline.run([snapshots], MARKET)
    servers = honest_servers()
    schema = servers["npm:song"][0]["inputSchema"]
    schema["properties"]["count"] = {"type": "string", "pattern": "\x1b[2J\u202e|"}
    pipeline.deploy(servers)
    pipeline.run([snapshots], MARKET)
    pipeline.run([contract_changes])
    [row] = pipeline.read_rows(CHANGES)
    assert row["why"].isprintable()


def test_what_is_published_meanwhile_is_found_by_the_next_run(pipeline, monkeypatch):
    pipeline.deploy(honest_servers())
    pipeline.run([snapshots], MARKET)
    output = defs.report_changes

    def publish_meanwhile(*inputs: Any) -> Any:
        monkeypatch.undo()
        pipeline.deploy({**honest_servers(), "npm:photo": []})
        pipeline.run([snapshots], MARKET)
        return output(*inputs)

    monkeypatch.setattr(defs, "report_changes", publish_meanwhile)
    pipeline.run([contract_changes])
    assert pipeline.read_rows(CHANGES) == []
    pipeline.run([contract_changes])
    assert {row["tool"] for row in pipeline.read_rows(CHANGES)} == {
        f"{deed}_photo" for deed in ("find", "make", "drop")
    }


@cases(
    "columns, stored",
    ({}, (None, None)),
    ({"certificate": "a" * 64, "certified": True}, ("a" * 64, True)),
)
def test_the_sandbox_s_certificate_stands_beside_each_contract(columns, stored, tmp_path):
    blobs = Blobs(tmp_path)
    blob = blobs.put(b'[{"name": "a", "inputSchema": {"type": "object"}}]')
    launch = {"server_id": "npm:x", "marketplace": MARKET, "status": "ok", "tools_blob": blob,
              "recipe_digest": "r", "probed_at": 0.0, **columns}  # fmt: skip
    [row] = build_snapshot([], [launch], blobs, 0.0)
    assert (row["certificate"], row["certified"]) == stored
    [again] = build_snapshot([row], [{**launch, "status": "failed"}], blobs, 0.0)
    assert (again["certificate"], again["certified"]) == stored
    [spoken] = build_snapshot([row], [{**launch, "protocol": "2026-07-28"}], blobs, 0.0)
    assert (row["protocol"], spoken["protocol"]) == (None, "2026-07-28")
    other = {**row, "certificate": "b" * 64}
    same = SNAPSHOTS.digest(SNAPSHOTS.frame([row])) == SNAPSHOTS.digest(SNAPSHOTS.frame([other]))
    assert same  # another run of the suite is no new version
