"""Pairs that are tasks of worlds: what a row says, how many there are, what moves them."""

import json
from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

import pytest

from assets.contracts.quarantined_tools import CLEAR
from assets.synthesis.policy import SynthesisPolicy
from assets.synthesis.tables import (
    PAIRS,
    TaskOrigin,
    WorldTask,
    WorldUnavailable,
    dump_text,
    reaches_judge,
    read_origin,
)
from assets.synthesis.writing.plan import WritingResult, write_pairs
from tests.synthesis.contracts import CONVERT, READ_FILE, snapshot_rows
from tests.synthesis.scripted import SINGLES, offline_llm
from tests.vectors.conftest import WordEmbedder
from warehouse.store import Warehouse

MARKET, TOOL = "registry", "read_text_file"
Row = dict[str, Any]
FILES = ("budget.csv", "letters/marta.txt", "plan.md")


class Source:
    """Tasks to read files, for every server that has the tool."""

    def __init__(self, *files: str, broken: Exception | None = None) -> None:
        self.files, self.broken, self.drawn = files, broken, 0

    def digest_tasks(self, server_id: str, tools: Collection[str]) -> Mapping[str, str]:
        return {TOOL: json.dumps(self.files)} if TOOL in tools else {}

    def draw_tasks(self, server_id: str, tools: Collection[str]) -> list[WorldTask]:
        self.drawn += 1
        if self.broken:
            raise self.broken
        return [
            WorldTask(
                TaskOrigin("office", 7, "read-file", str(number)),
                TOOL,
                f"What does /home/user/data/{file} say?",
                {"path": f"/home/user/data/{file}"},
            )
            for number, file in enumerate(self.files)
        ]


class Market:
    """One marketplace, run after run."""

    def __init__(self, warehouse: Warehouse) -> None:
        self.warehouse, self.embedder = warehouse, WordEmbedder()
        self.embedder.dim = 2048
        self.asked = 0
        self.list_tools({"npm:files": [READ_FILE, CONVERT]})

    def list_tools(self, servers: Mapping[str, list[Row]]) -> None:
        listed = [row for server, tools in servers.items() for row in snapshot_rows(tools, server)]
        rows = [
            {
                **{name: row[name] for name in CLEAR.columns if name in row},
                "contract": dump_text(row["contract"]),
            }
            for row in listed
        ]
        self._publish(CLEAR, rows)

    def run(self, source: Source | None, policy: SynthesisPolicy = SINGLES) -> WritingResult:
        llm = offline_llm(self.warehouse.ledger)
        pairs = write_pairs(self.warehouse, MARKET, policy, llm, self.embedder, worlds=source)
        self.asked = llm.counts["asked"]
        self._publish(PAIRS, pairs.rows)
        return pairs

    def _publish(self, spec: Any, rows: list[Row]) -> None:
        tables = self.warehouse.tables
        tables.promote(tables.stage(spec, spec.frame(rows), MARKET), "test", [])


@pytest.fixture
def market(warehouse: Warehouse) -> Market:
    return Market(warehouse)


def select_tasks(answer: WritingResult) -> list[Row]:
    return [row for row in answer.rows if row["world_task"]]


def test_a_task_of_a_world_is_a_pair_that_says_where_it_is_from(market: Market) -> None:
    others = market.run(None).rows
    answer = market.run(Source(*FILES))
    [row] = select_tasks(answer)
    assert read_origin(row) == TaskOrigin("office", 7, "read-file", "0")
    assert row["status"] == "ok", row["hint"]
    assert (row["provider"], row["model"], row["usd"]) == ("offline", "world", 0)
    assert (row["task"], row["verdict"], row["steps"]) == ("single", "accept", "[]")
    assert row["license"] == others[0]["license"]
    assert row["arguments"] == '{"path":"/home/user/data/budget.csv"}'
    assert [item["role"] for item in json.loads(row["messages"])] == ["user", "assistant"]
    assert reaches_judge(row)
    ids = {row["pair_id"] for row in answer.rows}
    assert ids - {other["pair_id"] for other in others} == {row["pair_id"]}
    assert all(read_origin(other) is None for other in others)


@pytest.mark.parametrize("most", [0, 1, 2])
def test_a_tool_has_no_more_of_them_than_the_settings_say(market: Market, most: int) -> None:
    answer = market.run(Source(*FILES), replace(SINGLES, world_pairs=most))
    assert len(select_tasks(answer)) == most


def test_a_second_run_draws_none_and_other_tasks_cost_nothing(market: Market) -> None:
    source = Source(*FILES)
    first = market.run(source)
    assert source.drawn == 1
    again = market.run(source)
    assert (again.rows, source.drawn) == (first.rows, 1)
    other = market.run(Source("ledger.csv"))
    assert [json.loads(row["arguments"])["path"][16:] for row in select_tasks(other)] == [
        "ledger.csv"
    ]
    assert market.asked == 0  # the other pairs of the tool come from the ledger
    rows_kept = {row["pair_id"] for row in first.rows if not row["world_task"]}
    assert rows_kept == {row["pair_id"] for row in other.rows if not row["world_task"]}
    assert select_tasks(market.run(None)) == []


def test_a_call_that_no_longer_fits_its_contract_goes_no_further(market: Market) -> None:
    source = Source(*FILES[:1])
    market.run(source)
    schema = {**READ_FILE["inputSchema"], "required": ["path", "encoding"]}
    market.list_tools({"npm:files": [{**READ_FILE, "inputSchema": schema}]})
    [row] = select_tasks(market.run(source))
    assert not reaches_judge(row)
    assert json.loads(row["flaws"])[0]["kind"] == "missing_required_argument"
    market.list_tools({"npm:files": [CONVERT]})
    assert select_tasks(market.run(source)) == []


def test_what_another_pair_says_already_points_at_it(market: Market) -> None:
    market.list_tools({"npm:files": [READ_FILE], "npm:other": [READ_FILE]})
    item, other = select_tasks(market.run(Source(*FILES[:1])))
    assert (item["server_id"], item["twin_of"]) == ("npm:files", None)
    assert other["twin_of"] == item["pair_id"]


@pytest.mark.parametrize("error", [WorldUnavailable("no postgres here"), KeyError("unforeseen")])
def test_a_world_that_cannot_be_had_is_a_row_and_is_asked_for_again(
    market: Market, error: Exception
) -> None:
    source = Source(*FILES, broken=error)
    answer = market.run(source)
    [row] = [row for row in answer.rows if row["status"] != "ok"]
    assert (row["failed_step"], row["error_kind"]) == ("world", "world_failed")
    assert "no postgres here" in row["hint"] or "KeyError" in row["hint"]
    assert sum(row["status"] == "ok" for row in answer.rows) == 2 * SINGLES.pairs_per_tool
    source.broken = None
    assert len(select_tasks(market.run(source))) == SINGLES.world_pairs
