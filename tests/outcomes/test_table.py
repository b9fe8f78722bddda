"""Which calls are executed, what their rows say of a pair, and tables of them."""

import json
from typing import Any

from assets.contracts.canonical import contract_digest
from assets.outcomes import defs, execution, plan, run, select, table
from assets.outcomes.environment import PLAIN
from assets.outcomes.policy import ExecutionPolicy
from assets.synthesis.tables import EXPLORED, GoldenCall, make_single_row
from assets.vectors.confusable_table import TWINS
from tests.outcomes.running import make_contract
from tests.support.cases import cases
from warehouse.audit import audit
from warehouse.store import Warehouse

Row = dict[str, Any]


def row(pair: str, outcome: str = "useful", proof: str | None = None, **facts: Any) -> Row:
    empty = dict.fromkeys(table.EXECUTIONS.columns)
    names = {"pair_ids": json.dumps([pair])}
    return {**empty, **names, "outcome": outcome, "proof": proof, **facts}


def tried(*rows: Row) -> table.PairEvidence:
    [result] = table.group_by_pair(rows).values()
    return result


def test_a_pair_is_what_all_of_its_calls_are_also_those_of_two_marketplaces(tmp_path):
    assert tried(row("a"), row("a")).useful
    assert not tried(row("a"), row("a", "empty")).useful
    assert tried(row("a", proof="proved"), row("a", proof="proved")).proof == "proved"
    assert tried(row("a", proof="proved"), row("a", proof="refuted")).proof == "refuted"
    assert tried(row("a", proof="proved"), row("a")).proof == "unproved"
    tables = Warehouse(home=tmp_path, state=tmp_path / "state").tables
    for market, pair in (("one", "a"), ("two", "b")):
        built = row(pair, proof="proved", execution_id="e1:0", marketplace=market)
        tables.promote(
            tables.stage(table.EXECUTIONS, table.EXECUTIONS.frame([built]), market), "run", []
        )
    proofs = {name: item.proof for name, item in table.read_tried(tables).items()}
    assert proofs == {"a": "proved", "b": "proved"}


@cases(
    "outcome, facts, invalid",
    *(("tool_error", {"blame": blame}, True) for blame in ("caller", "tool", "server")),
    *(("tool_error", {"blame": blame}, False) for blame in ("policy", "credentials")),
    *(("tool_error", {"blame": blame}, False) for blame in ("upstream", "us")),
    ("empty", {}, False),
    ("refused", {"status": "ok", "blame": "tool"}, True),  # it gave orders
    ("timeout", {"blame": "tool", "error_kind": "timeout_call"}, True),
    # A call that was not sent, in passing or for good, and what a look-alike did, say nothing.
    ("refused", {"status": "failed", "blame": "credentials"}, None),
    (None, {"status": "failed"}, None),
    *(
        ("timeout", {"status": "failed", "blame": "server", "error_kind": kind}, None)
        for kind in ("timeout_start", "remote_down", "internal")
    ),
    ("tool_error", {"blame": "tool", "twin_of": "npm:b::do"}, None),
)
def test_a_pair_is_invalid_by_its_own_callers_tools_and_servers_faults(outcome, facts, invalid):
    pairs = table.group_by_pair([row("a", outcome, **facts)])
    assert [item.invalid for item in pairs.values()] == ([] if invalid is None else [invalid])


@cases(
    "result, stored",
    (None, {table.ANY, table.VALID}),
    (table.PairEvidence(True, False, "proved"), {table.ANY, table.VALID, table.PROVED}),
    (table.PairEvidence(True, False, "unproved"), {table.ANY, table.VALID}),
    (table.PairEvidence(False, True, "refuted"), {table.ANY}),
)
def test_a_rule_keeps_what_it_names(result, stored):
    assert {
        rule for rule in (table.ANY, table.VALID, table.PROVED) if table.may_keep(result, rule)
    } == stored


SCHEMA = {"type": "object", "properties": {"q": {"type": "string"}}, "required": ["q"]}
LOOK = {"name": "look", "inputSchema": SCHEMA, "annotations": {"readOnlyHint": True}}
DROP = {"name": "drop", "inputSchema": SCHEMA}


def clear_row(contract: Row, server: str = "npm:a") -> Row:
    names = {"server_id": server, "tool": contract["name"]}
    return names | {"contract_digest": contract_digest(contract), "contract": json.dumps(contract)}


def pair(contract: Row, q: str, server: str = "npm:a", **call: Any) -> Row:
    golden_call = GoldenCall(server, contract["name"], contract_digest(contract), {"q": q}, **call)
    return {**make_single_row(golden_call, f"look for {q}", []), "pair_id": f"p1:{server}{q}"}


def servers(*names: str, moving: bool = False) -> dict[str, select.LaunchableServer]:
    return {name: select.LaunchableServer(name, {}, "r" * 64, moving) for name in names}


def chosen(pairs: list[Row], clear: list[Row], running=None, **facts: Any) -> list[str]:
    policy = ExecutionPolicy(per_tool=facts.pop("per_tool", 20), **facts.pop("policy", {}))
    calls = select.select_calls(pairs, clear, running or servers("npm:a"), policy, **facts)
    return [f"{item.call.tool} {item.call.arguments['q']}" for item in calls]


def test_a_few_calls_of_each_tool_are_chosen_once_explored_ones_before_made_up_ones():
    pairs = [pair(LOOK, q) for q in "abcdef"]
    clear = [clear_row(LOOK)]
    two = chosen(pairs, clear, per_tool=2)
    assert len(two) == 2
    assert chosen(pairs[::-1], clear, per_tool=2) == two
    twice = [pair(LOOK, "a"), {**pair(LOOK, "a"), "pair_id": "p1:other"}]
    [result] = select.select_calls(twice, [clear_row(LOOK)], servers("npm:a"), ExecutionPolicy())
    assert result.pairs == ["p1:npm:aa", "p1:other"]
    pairs = [pair(LOOK, q) for q in "abc"] + [{**pair(LOOK, q), "basis": EXPLORED} for q in "vwxyz"]
    clear = [clear_row(LOOK)]
    observed = chosen(pairs, clear, per_tool=1)
    assert len(observed) == 3
    assert {name[-1] for name in observed} < set("vwxyz")
    assert len(chosen(pairs, clear, per_tool=1, policy={"explore": 0})) == 1
    assert len(chosen(pairs[:3], clear, per_tool=1)) == 1


def test_a_call_of_an_older_contract_is_left_out_and_what_that_refused_says_nothing():
    older = {**LOOK, "description": "older"}
    assert chosen([pair(older, "a")], [clear_row(LOOK)]) == []
    assert chosen([pair(LOOK, "a")], [clear_row(LOOK)], servers("npm:b")) == []
    assert chosen([pair(LOOK, "a")], []) == []  # held, or gone
    # Nor is a value made up that comes out of another call.
    assert chosen([pair(LOOK, "a", borrowed=("q",))], [clear_row(LOOK)]) == []
    for blame in ("caller", "credentials"):
        rows = [explored_row("tool_error", blame, {**LOOK, "description": "older"})]
        assert select.find_futile_tools(rows, [clear_row(LOOK)]) == set()


def explored_row(outcome: str, blame: str | None, contract: Row = LOOK, **facts: Any) -> Row:
    return {**clear_row(contract), "outcome": outcome, "blame": blame, "after": None, **facts}


@cases(
    "rows, futile",
    ([], ""),
    ([("tool_error", "caller"), ("tool_error", "caller")], "look"),
    ([("tool_error", "caller"), ("useful", None)], ""),
    ([("tool_error", "caller"), ("empty", None)], ""),
    ([("tool_error", "caller"), ("tool_error", "tool")], "look"),
    # Executions tell what no tool says of itself.
    ([("tool_error", "caller"), ("protocol_error", "tool")], ""),
    # A server that wants a credential, also for what was not tried.
    ([("tool_error", "credentials"), ("refused", "policy")], "drop look"),
    ([("tool_error", "credentials"), ("timeout", "server")], ""),
    ([("refused", "us")] * 8, ""),  # a download that failed that night
)
def test_a_tool_whose_every_call_was_refused_is_not_called_with_made_up_values(rows, futile):
    clear = [clear_row(LOOK), clear_row(DROP)]
    behind = explored_row("useful", None, after="o1:maker")  # no pair calls it alone
    tried = [explored_row(*row) for row in rows]
    result = select.find_futile_tools([*tried, behind], clear)
    assert " ".join(sorted(tool for _, tool in result)) == futile
    expected = {"": ["drop c", "look a"], "look": ["drop c"]}.get(futile, [])
    assert chosen([pair(LOOK, "a"), pair(DROP, "c")], clear, futile=result) == expected
    moving = servers("npm:a", moving=True)
    assert chosen([pair(LOOK, "a")], clear, moving, futile=result) == ["look a"]
    explored = {**pair(LOOK, "b"), "basis": EXPLORED}
    assert chosen([explored], clear, futile=result) == ([] if "look" in futile else ["look b"])


def test_where_no_world_is_ours_only_tools_that_read_and_do_not_destroy_are_called():
    clear = [clear_row(LOOK), clear_row(DROP)]
    pairs = [pair(LOOK, "a"), pair(DROP, "b")]
    assert chosen(pairs, clear) == ["drop b", "look a"]
    assert chosen(pairs, clear, servers("npm:a", moving=True)) == ["look a"]
    assert chosen(pairs, clear, policy={"writes": False}) == ["look a"]
    annotations = {"readOnlyHint": True, "destructiveHint": True}
    worse = {**LOOK, "annotations": annotations}
    names = {**LOOK, "name": "delete_file", "description": "Delete a file from the disk."}
    for contract in (worse, names):
        pairs, clear = [pair(contract, "a")], [clear_row(contract)]
        assert chosen(pairs, clear, servers("npm:a", moving=True)) == []


def test_a_look_alike_gets_the_calls_that_fit_it_and_servers_elsewhere_are_moving():
    twin = {**LOOK, "name": "peek"}
    other = {**LOOK, "name": "stare", "inputSchema": {"type": "object", "required": ["z"]}}
    running = servers("npm:a", "npm:b")
    clear = [clear_row(LOOK), clear_row(twin, "npm:b"), clear_row(other, "npm:b")]
    rows = [
        {"server_id": "npm:a", "tool": "look", "other_server_id": "npm:b", "other_tool": name,
         "kind": TWINS}
        for name in ("peek", "stare")
    ]  # fmt: skip
    calls = select.select_calls([pair(LOOK, "a")], clear, running, ExecutionPolicy(), rows)
    output = [(item.call.server_id, item.call.tool, item.twin_of, item.pairs) for item in calls]
    assert output == [("npm:a", "look", None, ["p1:npm:aa"]), ("npm:b", "peek", "npm:a::look", [])]

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
    launchable = select.list_launchable(rows, ["npm:b"])
    assert [name for name, entry in launchable.items() if not entry.moving] == ["npm:a"]
    assert launchable.keys() == {"npm:a", "npm:b", "remote:https://c.example/mcp"}
    assert all(item.moving for item in select.list_launchable(rows, network=True).values())


def test_a_call_that_fitted_is_judged_anew_by_another_contract():
    number = {"type": "object", "properties": {"q": {"type": "integer"}}, "required": ["q"]}
    changed = {**LOOK, "inputSchema": number}
    for contract, fits in ((LOOK, True), (changed, False), (LOOK, True), (changed, False)):
        result = chosen([pair(contract, "a")], [clear_row(contract)])
        assert result == (["look a"] if fits else [])


def executed(server: str = "npm:a", **facts: Any) -> Row:
    return row("a", **{"server_id": server, "tool": "look", "status": "ok", **facts})


def test_shares_are_of_servers_or_tools_and_a_call_that_nobody_foresaw_passes_the_audit():
    def shares(*rows: dict[str, Any]) -> list[str]:
        return defs.report_executions(rows)["shares"].splitlines()[2:]

    rows = [executed(tool="b"), executed(tool="a"), executed(tool="a", outcome="empty")]
    rows.append(executed(tool="never", outcome="refused", status="failed", blame="credentials"))
    assert [line[:14] for line in shares(*rows)] == ["| a | 2 | 0.50", "| b | 1 | 1.00"]
    assert "npm:a | 3 | 0.67" in shares(*rows, executed("npm:b"))[0]
    assert len(shares(*(executed(f"npm:{n}") for n in range(60)))) == 24
    assert defs.report_executions(rows[3:])["shares"] == "none"
    call = execution.ToolCall("npm:x", "do", make_contract(), "c1:" + "0" * 64, {"x": 1})
    job = run.ExecutionJob(
        "e1:1", select.WantedCall(call), select.LaunchableServer("npm:x", {}, "r" * 64), PLAIN, 7
    )
    row = plan.make_execution_row(job, run.JobResult(problem="boom"))
    assert (row["outcome"], row["error_kind"]) == (None, "internal")
    frame = table.EXECUTIONS.frame([{**row, "marketplace": "registry"}])
    assert audit(frame, defs.EXECUTIONS_AUDIT.expectations).passed
