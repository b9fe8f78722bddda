"""The asset `outcomes_report` over a home with calls, and over one without any."""

import hashlib
import json
import random
from datetime import UTC, datetime
from typing import Any

import dagster as dg
import pytest

from assets.contracts.changes import CHANGES
from assets.contracts.quarantined_tools import CLEAR
from assets.outcomes.policy import ReliabilityPolicy
from assets.outcomes.reliability.table import RELIABILITY
from assets.vectors.confusable_table import CONFUSABLES
from extensions.recommender.defs import outcomes_report
from extensions.recommender.evaluation import RERANKER_EVALUATION
from extensions.recommender.outcomes_page import gather_outcome_facts
from extensions.recommender.role import UNTRAINED_ORDER
from tests.outcomes.reliability.observing import CONTRACT, DAY, NOW, publish
from warehouse.store import Warehouse

DAYS = 24
# Server -> (category, rate of its tools).
SERVERS = {"npm:files": ("files", 0.9), "npm:disk": ("files", 0.35), "npm:post": ("mail", 0.75)}
TOOLS = ("read", "write")
IDS = [f"{server}::{tool}" for server in SERVERS for tool in TOOLS]
BROKEN = "npm:post::write"  # another contract since the middle, under which it fails
MODEL = "d" * 64


def fill_called_home(warehouse: Warehouse, calls: int, seed: int = 5) -> None:
    """So many calls of clients, and all tables that the page reads."""
    dice = random.Random(seed)
    begin = NOW - DAY / 2 - DAYS * DAY  # midnight
    clear = [
        {"marketplace": "registry", "server_id": server, "tool": tool, "contract": CONTRACT,
         "contract_digest": make_digest(f"{server}::{tool}", True), "first_seen": "2026-01-01"}
        for server in SERVERS
        for tool in TOOLS
    ]  # fmt: skip
    publish(warehouse, CLEAR, clear)
    day = str(datetime.fromtimestamp(begin + DAYS / 2 * DAY, UTC).date())
    server, _, tool = BROKEN.partition("::")
    change = {"server_id": server, "tool": tool, "from_digest": make_digest(BROKEN, False),
              "to_digest": make_digest(BROKEN, True), "run_date": day, "fields": "[]",
              "cls": "breaking"}  # fmt: skip
    publish(warehouse, CHANGES, [change])
    alike = {"server_id": "npm:disk", "tool": "read", "contract_digest": "c1:a", "cosine": 0.93,
             "other_server_id": "npm:files", "other_tool": "read", "other_digest": "c1:b",
             "kind": "confusable"}  # fmt: skip
    publish(warehouse, CONFUSABLES, [alike])
    publish(warehouse, RELIABILITY, [_make_reliability(name) for name in IDS])
    publish(warehouse, RERANKER_EVALUATION, [*_make_evaluation(dice, 200)])
    _write_calls(warehouse, dice, calls, begin)


def make_digest(tool_id: str, now: bool) -> str:
    """The contract of a tool; of the one that changed another before."""
    old = "old" if tool_id == BROKEN and not now else ""
    return f"c1:{hashlib.sha256((tool_id + old).encode()).hexdigest()}"


def _make_reliability(tool_id: str) -> dict[str, Any]:
    server, _, tool = tool_id.partition("::")
    category, rate = SERVERS[server]
    means = {"mean": rate, "low": rate - 0.05, "high": rate + 0.05, "n": 100.0, "prior": 0.7}
    counts = {"calls": 100, "failed": 10, "sources": 2, "failures": "{}", "carried": 0.0}
    return {"server_id": server, "tool": tool, "contract_digest": make_digest(tool_id, True),
            "current": True, "category": category, **means, **counts}  # fmt: skip


def _make_evaluation(dice: random.Random, calls: int) -> Any:
    for at in range(calls):
        p = dice.random()
        about = {"item_id": f"call:{at}", "kind": "call", "server_id": "s", "tool_id": "s::t"}
        shared = {**about, "right": dice.random() < p, "training_set": "h"}
        yield {**shared, "model": MODEL, "score": p}
        yield {**shared, "model": UNTRAINED_ORDER, "score": 0.5}


def _write_calls(warehouse: Warehouse, dice: random.Random, calls: int, begin: float) -> None:
    folder = warehouse.home / "outcomes"
    folder.mkdir(parents=True, exist_ok=True)
    days: dict[str, list[str]] = {}
    for number in range(calls):
        share = number / calls
        at = begin + share * DAYS * DAY
        lines = _make_search(dice, number, at, share)
        name = str(datetime.fromtimestamp(at, UTC).date())
        days.setdefault(name, []).extend(json.dumps(line) for line in lines)
    for name, texts in days.items():
        (folder / f"{name}.jsonl").write_text("".join(f"{text}\n" for text in texts))


def _make_search(dice: random.Random, number: int, at: float, share: float) -> list[dict[str, Any]]:
    """A search that explores one time in five, and a call of what it showed first; the ranking
    learns which tools work."""
    tools = sorted(IDS, key=lambda _: dice.random())[:3]
    if dice.random() < share:
        tools.sort(key=lambda name: -SERVERS[name.partition("::")[0]][1])
    chosen = dice.randrange(1, 3) if dice.random() < 0.2 else 0
    tool_id = tools[chosen]
    rate = SERVERS[tool_id.partition("::")[0]][1]
    if tool_id == BROKEN and share > 0.5:
        rate = 0.1
    token = {
        "token": f"client-{number % 7}",
        "search_id": f"s{number}",
        "query": f"q1:{number % 40}",
    }
    search = {**token, "at": at, "id": f"i{number}", "status": "searched", "words": "do it",
              "shown": [tool_id]}  # fmt: skip
    ended = {"status": "ok"} if dice.random() < rate else {"status": "tool_error", "blame": "tool"}
    rank = 1 if dice.random() < 0.6 + 0.3 * share else 2
    call = {**token, **ended, "at": at + 1, "id": f"c{number}", "call_id": f"k{number}",
            "tool_id": tool_id, "contract_digest": make_digest(tool_id, share > 0.5),
            "rank": rank}  # fmt: skip
    return [search, call]


@pytest.fixture(scope="module")
def called(tmp_path_factory: pytest.TempPathFactory) -> Warehouse:
    home = tmp_path_factory.mktemp("called")
    warehouse = Warehouse(home=home, state=home / "state")
    fill_called_home(warehouse, 1_500)
    return warehouse


POLICY = ReliabilityPolicy(per_day=1e6)


def materialize(warehouse: Warehouse) -> tuple[dict[str, Any], str]:
    """(metadata, data version)."""
    resources = {"warehouse": warehouse, "reliability_policy": POLICY}
    result = dg.materialize([outcomes_report], resources=resources)
    [event] = result.asset_materializations_for_node("outcomes_report")
    version = (event.tags or {})["dagster/data_version"]
    return {name: value.value for name, value in event.metadata.items()}, version


def test_every_part_has_its_figures(called):
    shown, _ = materialize(called)
    assert "Nothing to show" not in shown["report"]
    assert (called.home / "reports/outcomes/report.md").read_text().strip() == shown["report"]
    assert shown["calls"] == pytest.approx(1_500)
    facts = gather_outcome_facts(called, POLICY)
    assert len(facts["days"]["all"]) == DAYS
    assert [fact["model"] for fact in facts["calibration"]] == [MODEL]
    assert facts["calibration"][0]["brier"] < facts["calibration"][0]["constant"]
    [pair] = facts["alike"]["shown"]
    assert (pair["better"]["tool_id"], pair["apart"]) == ("npm:files::read", True)
    [changed] = facts["changes"]["shown"]
    assert (changed["tool_id"], changed["verdict"]) == (BROKEN, -1)
    assert changed["before"]["value"] > 0.6 > 0.2 > changed["after"]["value"]


def test_the_same_calls_are_the_same_page_and_the_words_of_others_make_no_cell(called):
    (shown, version), (_, again) = materialize(called), materialize(called)
    assert version == again
    [line] = [line for line in shown["report"].splitlines() if "| yes |" in line]
    assert line.count(" | ") == 4


def test_a_home_without_a_call_says_why_each_part_is_empty(tmp_path):
    shown, _ = materialize(Warehouse(home=tmp_path, state=tmp_path / "state"))
    parts = shown["report"].split("\n## ")[1:]
    assert len(parts) == 4
    assert all("Nothing to show yet because " in part for part in parts)
