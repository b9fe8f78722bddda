"""`toolmill execute`: one call of one tool in one world, and how it can be asked for wrongly."""

import asyncio
import json
from pathlib import Path

import pytest

from assets.contracts.canonical import contract_digest
from assets.contracts.quarantined_tools import HELD
from assets.outcomes.adhoc import CannotExecute, execute_tool, find_call, pick_world
from assets.outcomes.worlds.spec import SeedGenerator, ServerFit, WorldSpec
from tests.orchestration.cli.test_app import toolmill
from tests.outcomes.test_defs import LOOK, MARKET, NOTE, Market
from tests.serving.calling import Bench

NAMED = "npm:x::write_note"
BUDGET = '{"name": "budget"}'


@pytest.fixture
def market(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Market:
    return Market(Bench(tmp_path, monkeypatch))


def test_a_call_is_made_and_told_with_what_it_changed(market: Market) -> None:
    call, server = find_call(market.warehouse, NAMED, BUDGET, market.executor)
    world = pick_world(call, market.executor, None)
    result = asyncio.run(execute_tool(call, server, world, market.executor))
    assert (result["outcome"], result["blame"], result["world"]) == ("useful", None, "plain-folder")
    assert (result["changed"], result["text"]) == (["budget.txt"], "written")
    assert market.warehouse.ledger.counts() == {}
    assert list((market.executor.policy.home / "cache" / "worlds").iterdir()) == []


def test_a_failure_names_whose_it_is_and_why(market: Market) -> None:
    call, server = find_call(market.warehouse, "npm:x::find_note", BUDGET, market.executor)
    world = pick_world(call, market.executor, "plain-folder")
    result = asyncio.run(execute_tool(call, server, world, market.executor))
    assert (result["outcome"], result["blame"]) == ("tool_error", "caller")
    assert result["evidence"].startswith("budget not found")


@pytest.mark.parametrize(
    ("tool_id", "arguments", "output"),
    [
        ("write_note", BUDGET, "'write_note' is no tool id, expected <server_id>::<tool>"),
        ("npm:x::erase", BUDGET, "npm:x::erase: no run has listed such a tool"),
        (NAMED, "{", "--arguments is no JSON"),
        (NAMED, "[1]", "--arguments is list, expected an object"),
        (NAMED, '{"name": NaN}', "--arguments is no JSON"),
        (NAMED, "{}", "--arguments $.name"),
        (NAMED, '{"name": 7}', "--arguments $.name: found"),
    ],
)
def test_what_cannot_be_called_is_one_error_that_names_it(
    market: Market, tool_id: str, arguments: str, output: str
) -> None:
    with pytest.raises(CannotExecute) as raised:
        find_call(market.warehouse, tool_id, arguments, market.executor)
    assert str(raised.value).startswith(output)


def test_a_tool_in_quarantine_and_a_server_that_did_not_start_are_not_called(
    market: Market,
) -> None:
    stored = {"server_id": "npm:x", "tool": "drop", "contract_digest": contract_digest(LOOK)}
    market.publish(HELD, [{**stored, "marketplace": MARKET}])
    with pytest.raises(CannotExecute, match="npm:x::drop is held"):
        find_call(market.warehouse, "npm:x::drop", "{}", market.executor)
    from assets.servers.deploy.deployment_table import DEPLOYMENTS

    market.publish(DEPLOYMENTS, [])
    with pytest.raises(CannotExecute, match="npm:x did not start in its last run"):
        find_call(market.warehouse, NAMED, BUDGET, market.executor)


def test_what_changes_something_is_not_called_where_no_world_is_ours(market: Market) -> None:
    from assets.servers.deploy.deployment_table import DEPLOYMENTS
    from tests.outcomes.test_defs import make_deployment

    market.publish(DEPLOYMENTS, [{**make_deployment(market.recipe), "ecosystem": "remote"}])
    with pytest.raises(CannotExecute, match="write_note may change something, and its server is"):
        find_call(market.warehouse, NAMED, BUDGET, market.executor)
    assert find_call(market.warehouse, "npm:x::find_note", BUDGET, market.executor)


def test_the_world_that_suits_a_server_is_taken_and_another_can_be_named(market: Market) -> None:
    from dataclasses import replace

    fit = ServerFit(id="npm:x", tools=("write_note",))
    office = {"kind": "folder", "about": "notes", "generator": SeedGenerator(name="office")}
    worlds = (WorldSpec(name="mine", servers=(fit,), **office),)
    executor = replace(market.executor, worlds=worlds)
    call, _ = find_call(market.warehouse, NAMED, BUDGET, executor)
    assert pick_world(call, executor, None).name == "mine"
    assert pick_world(call, executor, "plain-folder").name == "plain-folder"
    with pytest.raises(CannotExecute, match="'moon': expected one of mine, plain-folder"):
        pick_world(call, executor, "moon")


def test_the_command_refuses_in_one_line(tmp_path: Path) -> None:
    done = toolmill("execute", NAMED, "--arguments", json.dumps(NOTE), home=tmp_path / "none")
    assert done.returncode != 0
    assert len(done.stderr.strip().splitlines()) == 1
