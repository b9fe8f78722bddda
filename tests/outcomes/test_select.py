"""Which calls are executed: of whom, how many, and never more than the server's place allows."""

import json
from typing import Any

from assets.contracts.canonical import contract_digest
from assets.outcomes.policy import ExecutionPolicy
from assets.outcomes.select import LaunchableServer, list_launchable, select_calls
from assets.synthesis.tables import GoldenCall, make_single_row
from assets.vectors.confusable_table import TWINS

Row = dict[str, Any]
SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
LOOK = {"name": "look", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
DROP = {"name": "drop", "inputSchema": SCHEMA}


def clear_row(contract: Row, server: str = "npm:a") -> Row:
    return {
        "server_id": server,
        "tool": contract["name"],
        "contract_digest": contract_digest(contract),
        "contract": json.dumps(contract),
    }


def pair(contract: Row, q: str, server: str = "npm:a", **call: Any) -> Row:
    golden_call = GoldenCall(server, contract["name"], contract_digest(contract), {"q": q}, **call)
    return {**make_single_row(golden_call, f"look for {q}", []), "pair_id": f"p1:{server}{q}"}


def servers(*names: str, moving: bool = False) -> dict[str, LaunchableServer]:
    return {name: LaunchableServer(name, {}, "r" * 64, moving) for name in names}


def chosen(pairs: list[Row], clear: list[Row], running=None, **facts: Any) -> list[str]:
    policy = ExecutionPolicy(per_tool=facts.pop("per_tool", 20), **facts.pop("policy", {}))
    calls = select_calls(pairs, clear, running or servers("npm:a"), policy, **facts)
    return [f"{item.call.tool} {item.call.arguments['q']}" for item in calls]


def test_a_few_calls_of_each_tool_whatever_order_their_pairs_have():
    pairs = [pair(LOOK, q) for q in "abcdef"]
    clear = [clear_row(LOOK)]
    two = chosen(pairs, clear, per_tool=2)
    assert len(two) == 2
    assert chosen(pairs[::-1], clear, per_tool=2) == two


def test_pairs_of_one_call_are_one_execution():
    twice = [pair(LOOK, "a"), {**pair(LOOK, "a"), "pair_id": "p1:other"}]
    [result] = select_calls(twice, [clear_row(LOOK)], servers("npm:a"), ExecutionPolicy())
    assert result.pairs == ["p1:npm:aa", "p1:other"]


def test_a_call_of_an_older_contract_or_of_a_server_that_does_not_run_is_left_out():
    older = {**LOOK, "description": "older"}
    assert chosen([pair(older, "a")], [clear_row(LOOK)]) == []
    assert chosen([pair(LOOK, "a")], [clear_row(LOOK)], servers("npm:b")) == []
    assert chosen([pair(LOOK, "a")], []) == []  # held, or gone


def test_a_value_that_comes_out_of_another_call_is_not_made_up():
    assert chosen([pair(LOOK, "a", borrowed=("q",))], [clear_row(LOOK)]) == []


def test_where_no_world_is_ours_only_tools_that_read_are_called():
    clear = [clear_row(LOOK), clear_row(DROP)]
    pairs = [pair(LOOK, "a"), pair(DROP, "b")]
    assert chosen(pairs, clear) == ["drop b", "look a"]
    assert chosen(pairs, clear, servers("npm:a", moving=True)) == ["look a"]
    assert chosen(pairs, clear, policy={"writes": False}) == ["look a"]


def test_a_hint_beside_a_destructive_sign_is_none():
    annotations = {"readOnlyHint": True, "destructiveHint": True}
    worse = {**LOOK, "annotations": annotations}
    names = {**LOOK, "name": "delete_file", "description": "Delete a file from the disk."}
    for contract in (worse, names):
        pairs, clear = [pair(contract, "a")], [clear_row(contract)]
        assert chosen(pairs, clear, servers("npm:a", moving=True)) == []


def test_a_look_alike_gets_the_calls_that_fit_it():
    twin = {**LOOK, "name": "peek"}
    other = {**LOOK, "name": "stare", "inputSchema": {"type": "object", "required": ["z"]}}
    running = servers("npm:a", "npm:b")
    clear = [clear_row(LOOK), clear_row(twin, "npm:b"), clear_row(other, "npm:b")]
    rows = [
        {"server_id": "npm:a", "tool": "look", "other_server_id": "npm:b", "other_tool": name,
         "kind": TWINS}
        for name in ("peek", "stare")
    ]  # fmt: skip
    calls = select_calls([pair(LOOK, "a")], clear, running, ExecutionPolicy(), rows)
    output = [(item.call.server_id, item.call.tool, item.twin_of, item.pairs) for item in calls]
    assert output == [("npm:a", "look", None, ["p1:npm:aa"]), ("npm:b", "peek", "npm:a::look", [])]


def test_servers_that_are_elsewhere_or_have_the_network_are_moving():
    def row(server: str, **facts: Any) -> Row:
        about = {"server_id": server, "ecosystem": "npm", "recipe": "{}", "recipe_digest": "r" * 64}
        return {**about, "status": "ok", **facts}

    rows = [
        row("npm:a"),
        row("npm:b"),
        row("remote:https://c.example/mcp", ecosystem="remote"),
        row("npm:failed", status="failed"),
        row("npm:unpinned", recipe_digest=None),
    ]
    launchable = list_launchable(rows, ["npm:b"])
    assert {name: entry.moving for name, entry in launchable.items()} == {
        "npm:a": False,
        "npm:b": True,
        "remote:https://c.example/mcp": True,
    }
    assert all(item.moving for item in list_launchable(rows, network=True).values())


def test_a_call_that_fitted_is_judged_anew_by_another_contract():
    number = {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]}
    changed = {**LOOK, "inputSchema": number}
    for contract, fits in ((LOOK, True), (changed, False), (LOOK, True), (changed, False)):
        result = chosen([pair(contract, "a")], [clear_row(contract)])
        assert result == (["look a"] if fits else [])
