"""Contract history: out of two publications, into the index, up the ladder."""

from dataclasses import replace

import pytest

from assets.contracts.changes import CHANGES, add_changes
from assets.contracts.rename_history import HISTORY_FILE, parse_history, read_history, write_history
from assets.contracts.snapshot import SNAPSHOTS
from serving.index.build import build_index, move_pointer
from serving.index.folder import load_index
from serving.index.model import IndexSource
from serving.repair.ladder import repair_draft
from tests.synthesis.test_old_contracts import FIND, WRITE, edited, snapshot
from tests.vectors.conftest import WordEmbedder
from training.releases.index_source import collect_moves
from warehouse.errors import UnusableInput
from warehouse.store import Warehouse


def rename_tool(tool):
    tool["name"] = "jot_note"


def rename_parameter(tool):
    of = tool["inputSchema"]["properties"]
    of["text"] = of.pop("words")
    tool["inputSchema"]["required"] = ["projectKey", "text"]


BETWEEN = edited(WRITE, rename_tool)
NOW = edited(BETWEEN, rename_parameter)


@pytest.fixture
def moves(warehouse: Warehouse):
    """Three publications: WRITE and FIND, then WRITE under a new name, then with one inside."""
    tables, rows, changes = warehouse.tables, [], []
    for day, tools in enumerate(((WRITE, FIND), (BETWEEN, FIND), (NOW, FIND))):
        new = [{k: v for k, v in snapshot(t).items() if k != "license"} for t in tools]
        tables.promote(tables.stage(SNAPSHOTS, SNAPSHOTS.frame(new), "registry"), "t", [])
        changes = add_changes(changes, rows, new, 1.7e9 + day * 86_400)
        rows = new
    tables.promote(tables.stage(CHANGES, CHANGES.frame(changes)), "t", [])
    return collect_moves(tables, {rows[0]["server_id"]}), rows


def test_renames_of_tools_and_parameters_are_collected(moves):
    [first, second], _ = moves
    assert (first.was, first.tool, dict(first.renamed)) == ("write_note", "jot_note", {})
    assert (second.was, second.tool) == ("jot_note", "jot_note")
    assert dict(second.renamed) == {"words": "text"}
    assert first.from_digest == snapshot(WRITE)["contract_digest"]
    assert first.date < second.date


def test_other_servers_have_no_part_in_it(warehouse: Warehouse, moves):
    assert collect_moves(warehouse.tables, {"npm:other"}) == []


def test_history_goes_with_the_index_and_its_export_and_repairs_a_call(tmp_path, moves):
    found, rows = moves
    home = tmp_path / "index"
    home.mkdir()
    words = WordEmbedder()
    make = {"embed": words.embed, "embedder": words.id}
    version = build_index(home, IndexSource(rows, moves=found), **make)
    assert version != build_index(home, IndexSource(rows), **make)
    move_pointer(home, version)
    history = load_index(home, version).history
    assert list(history.moves) == found
    draft = {"name": "write_note", "arguments": {"projectKey": "A", "words": "paint"}}
    report = repair_draft(draft, [NOW, FIND], history=history)
    assert (report.name, report.arguments) == ("jot_note", {"projectKey": "A", "text": "paint"})
    assert load_index(home, build_index(home, IndexSource(rows), **make)).history.moves == ()


def test_the_file_is_the_same_in_any_order_and_bad_ones_are_told(tmp_path, moves):
    found, _ = moves
    twice = [*found, *(replace(one, server_id="b") for one in found)]
    assert write_history(twice) == write_history(twice[::-1])
    path = tmp_path / HISTORY_FILE
    path.write_bytes(write_history(twice))
    assert len(read_history(path).moves) == 4
    named = {"server_id": "a", "tool": "b", "was": "c"}
    for odd in (
        {},
        5,
        {**named, "was": 5},
        {**named, "renamed": 5},
        {**named, "renamed": {"a": 5}},
    ):
        with pytest.raises(UnusableInput, match="here, move 0"):
            parse_history({"format": 1, "moves": [odd]}, "here")
    for odd in ([], {"format": 2, "moves": []}, {"format": 1}):
        with pytest.raises(UnusableInput, match="here"):
            parse_history(odd, "here")
