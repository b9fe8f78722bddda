"""Nothing that is tested on is learnt: frozen places, copies of tools, twins, near requests."""

import json
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract, contract_digest
from tests.training.conftest import embed, make_rows, raw_tool
from training.sets.set_audit import set_flaws
from training.sets.split import (
    SEEN_TOOL,
    SPLITS,
    TEST,
    TRAIN,
    UNSEEN_SERVER,
    UNSEEN_TOOL,
    SetPolicy,
    choose_tool_place,
    compute_pair_draw,
    find_near_pairs,
    find_nearest_texts,
    normalise_request,
    split_of,
)
from training.sets.training_set import build_training_set

Row = dict[str, Any]
LEARNT, TESTED = "npm:song", "npm:note"
PLAIN = SetPolicy(unseen_tools=0.0, seen_tools=0.0)


def listed(server: str, raw: Row, name: str, asks: str) -> tuple[Row, Row]:
    """(snapshot row, pair) of a tool on a server."""
    own = {"server_id": server, "tool": raw["name"], "contract_digest": contract_digest(raw)}
    pair = make_rows()[1][0] | own | {"pair_id": f"p1:{name}", "instruction": asks}
    return {**own, "contract": json.dumps(canonicalize_contract(raw))}, pair


def test_a_train_copy_or_twin_of_a_test_tool_is_left_out_and_one_of_a_held_out_tool_too():
    snapshots, pairs = make_rows()
    raw = raw_tool("find", "note")
    near_copy = {**raw, "description": raw["description"] + " or by whoever wrote it"}
    row, pair = listed(LEARNT, near_copy, "twin", "Anything of another kind.")
    loose = SetPolicy(unseen_tools=0.0, seen_tools=0.0, twin_cosine=0.8)
    made = build_training_set([*pairs, pair], [*snapshots, row], embed, loose)
    assert made.dropped == {"leak_twin": 1}
    tight = build_training_set([*pairs, pair], [*snapshots, row], embed, PLAIN)
    assert tight.dropped == {}
    [flaw] = set_flaws(tight.rows, tight.pool, embed=embed, policy=loose)
    assert flaw.startswith("leak_twin:")
    [other] = [r["contract_digest"] for r in snapshots if r["tool"] == "find_note"]
    marks = [(row["contract_digest"], other)]
    marked = build_training_set([*pairs, pair], [*snapshots, row], embed, PLAIN, twins=marks)
    assert marked.dropped == {"leak_twin": 1}
    row, pair = listed(LEARNT, raw_tool("find", "note"), "copy", "Anything of another kind.")
    made = build_training_set([*pairs, pair], [*snapshots, row], embed, PLAIN)
    assert made.dropped == {"leak_text": 1}
    assert "p1:copy" not in {row["pair_id"] for row in made.rows}
    assert made.pool[row["contract_digest"]]["split"] == UNSEEN_SERVER  # no train prompt shows it
    [leak] = made.leaks["leak_text"]
    assert leak["tool"][:2] == [LEARNT, "find_note"]
    assert set_flaws(made.rows, made.pool, embed=embed) == []
    base = build_training_set(pairs, snapshots, embed)
    held = next(row for row in base.rows if row["split"] == UNSEEN_TOOL)
    row, pair = listed(LEARNT, json.loads(held["contract"]), "copy", "Anything of another kind.")
    same = build_training_set([*pairs, pair], [*snapshots, row], embed)
    assert next(r for r in same.rows if r["pair_id"] == "p1:copy")["split"] == UNSEEN_TOOL


def asked(name: str, server: str, instruction: str, pairs: list[Row]) -> Row:
    of = next(row for row in pairs if row["server_id"] == server)
    return {**of, "pair_id": f"p1:{name}", "instruction": instruction}


def test_a_train_request_that_repeats_a_test_request_is_left_out():
    snapshots, pairs = make_rows()
    tested = asked("test", TESTED, "Where did I put the blue folder of invoices for May?", pairs)
    same = asked("same", LEARNT, "where did i put: the BLUE folder of invoices, for may", pairs)
    other = asked("other", LEARNT, "Where did I put the red folder of letters for June?", pairs)
    made = build_training_set([*pairs, tested, same, other], snapshots, embed, PLAIN)
    assert made.dropped == {"leak_instruction": 1}
    [leak] = made.leaks["leak_instruction"]
    assert leak == {"pair": "p1:same", "split": TRAIN, "like": "p1:test", "beside": UNSEEN_SERVER}
    near = SetPolicy(unseen_tools=0.0, seen_tools=0.0, near_cosine=0.55)
    near_too = build_training_set([*pairs, tested, same, other], snapshots, embed, near)
    assert {"p1:same", "p1:other"} <= {x["pair"] for x in near_too.leaks["leak_instruction"]}


def test_a_tool_keeps_its_last_training_pair_and_no_held_out_one_where_nothing_is_learnt():
    snapshots, pairs = make_rows()
    for row in pairs:
        row["instruction"] = f"Do what is usual for {row['tool']}."  # both pairs of a tool are one
    made = build_training_set(pairs, snapshots, embed, SetPolicy(near_cosine=0.99))
    assert set_flaws(made.rows, made.pool, embed=embed, policy=made.policy) == []
    learnt = {row["text_digest"] for row in made.rows if row["split"] == TRAIN}
    tools = {name for name, entry in made.pool.items() if entry["split"] == TRAIN}
    assert len(learnt) == len(tools) == 23
    assert SEEN_TOOL not in {row["split"] for row in made.rows}
    assert {leak["split"] for leak in made.leaks["leak_instruction"]} == {SEEN_TOOL}
    snapshots, pairs = make_rows()
    whole = build_training_set(pairs, snapshots, embed)
    held = next(row for row in whole.rows if row["split"] == SEEN_TOOL)
    own = [r for r in whole.rows if r["text_digest"] == held["text_digest"] and r["split"] == TRAIN]
    copies = [asked(f"copy {at}", TESTED, row["instruction"], pairs) for at, row in enumerate(own)]
    made = build_training_set([*pairs, *copies], snapshots, embed)
    assert made.dropped == {"leak_instruction": len(own), "untrained_tool": 1}
    assert set_flaws(made.rows, made.pool, embed=embed) == []


@settings(max_examples=12, deadline=None)
@given(st.data())
def test_whatever_repeats_no_published_set_has_a_leak(data):
    snapshots, pairs = make_rows()
    words = st.sampled_from(["Find it.", "find it", "Delete the note!", "Play a song", "Now."])
    for row in pairs:
        if data.draw(st.booleans()):
            row["instruction"] = data.draw(words)
    policy = SetPolicy(seen_tools=data.draw(st.sampled_from([0.0, 0.3, 1.0])))
    made = build_training_set(pairs, snapshots, embed, policy)
    flaws = set_flaws(made.rows, made.pool, embed=embed, policy=policy)
    assert not [flaw for flaw in flaws if "leak" in flaw or "both sides" in flaw or "pair" in flaw]
    assert len(made.rows) + sum(made.dropped.values()) == len(pairs)


def test_the_audit_finds_what_the_building_would_miss(made):
    rows, pool = made.rows, made.pool
    one = next(row for row in rows if row["split"] == TRAIN)
    other = next(row for row in rows if row["split"] == UNSEEN_SERVER)

    def list_flaws(**changes: Any) -> list[str]:
        return set_flaws([*rows, {**one, "pair_id": "x", "instruction": "New.", **changes}], pool)

    assert list_flaws() == []
    strange = json.dumps([{"name": "x", "contract_digest": "c1:lost", "arguments": {}}])
    for changes, flaw in (
        ({"split": UNSEEN_SERVER}, "is in both sides"),
        ({"split": UNSEEN_TOOL}, "tool npm"),
        ({"positive": other["positive"]}, "leak_text"),
        ({"instruction": other["instruction"].upper()}, "ask the same"),
        ({"negatives": '["c1:lost"]'}, "c1:lost, which does not resolve"),
        ({"offered": json.dumps([other["contract_digest"]])}, "its offered name"),
        ({"calls": strange}, "its calls name c1:lost"),
        ({"split": SEEN_TOOL, "calls": other["calls"]}, "no training pair calls"),
    ):
        assert any(flaw in found for found in list_flaws(**changes)), flaw


def test_words_alone_make_a_request_and_near_texts_are_found_in_blocks():
    plain = normalise_request("Where is it?  ")
    assert plain == normalise_request("where IS it") != normalise_request("where it is")
    assert normalise_request("?!") != normalise_request("...")
    many = [f"word{at} only here number {at}" for at in range(1500)]
    left = [*many, "the same few words"]
    assert find_nearest_texts(left, ["the same few words"], embed, 0.9) == {left[-1]: left[-1]}
    found = find_near_pairs(left, [many[7], many[1400]], embed, 0.99)
    assert found == {many[7]: [many[7]], many[1400]: [many[1400]]}
    assert find_nearest_texts([], many, embed, 0.5) == find_near_pairs(many, [], embed, 0.5) == {}


def test_ids_of_one_server_stand_on_the_test_side_where_one_of_them_does():
    snapshots, pairs = make_rows()
    same = {name: frozenset((LEARNT, TESTED)) for name in (LEARNT, TESTED)}
    apart = build_training_set(pairs, snapshots, embed)
    flaws = set_flaws(apart.rows, apart.pool, embed=embed, same=same)
    assert any("is in both sides" in flaw for flaw in flaws)
    made = build_training_set(pairs, snapshots, embed, same=same)
    assert {row["split"] for row in made.rows if row["server_id"] == LEARNT} == {UNSEEN_SERVER}
    assert set_flaws(made.rows, made.pool, embed=embed, same=same) == []
    one, other = (
        {row["pair_id"]: row["split"] for row in each.rows if row["server_id"] != LEARNT}
        for each in (made, apart)
    )
    assert one == other


def place_pair(server_id: str, tool: str, pair_id: str, policy: SetPolicy) -> str:
    """The split that a pair's ids put it in. A set puts a tool's last pair back into TRAIN."""
    place = choose_tool_place(server_id, tool, policy)
    held = place == TRAIN and compute_pair_draw(pair_id) < policy.seen_tools
    return SEEN_TOOL if held else place


def test_the_sides_of_servers_and_the_places_of_tools_and_pairs_are_frozen():
    servers = ["npm:@playwright/mcp", "pypi:mcp-atlassian", "npm:@notionhq/notion-mcp-server"]
    sides = [split_of(name) for name in (*servers, LEARNT, TESTED)]
    assert sides == [TRAIN, TRAIN, TEST, TRAIN, TEST]
    assert (split_of(TESTED, test_share=0.0), split_of(LEARNT, test_share=1.0)) == (TRAIN, TEST)
    policy, server = SetPolicy(), "pypi:mcp-atlassian"
    tools = [f"tool_{i}" for i in range(60)]
    held = [name for name in tools if choose_tool_place(server, name, policy) == UNSEEN_TOOL]
    pairs = [f"p1:{i}" for i in range(30)]
    seen = [name for name in pairs if place_pair(server, "tool_0", name, policy) == SEEN_TOOL]
    assert held == ["tool_12", "tool_32", "tool_35", "tool_42"]
    assert seen == ["p1:0", "p1:3", "p1:5", "p1:6", "p1:15", "p1:19"]


def test_about_the_asked_shares_are_held_out_and_copies_of_a_tool_fall_on_one_side():
    sides = [split_of(f"npm:server-{i}") for i in range(2000)]
    assert 0.26 < sides.count(TEST) / 2000 < 0.34
    policy = SetPolicy()
    tools = [choose_tool_place("npm:file", f"tool {i}", policy) for i in range(2000)]
    assert 0.08 < tools.count(UNSEEN_TOOL) / 2000 < 0.12
    pairs = [place_pair("npm:file", "make_file", f"p1:{i}", policy) for i in range(2000)]
    assert 0.10 < pairs.count(SEEN_TOOL) / 2000 < 0.14
    servers = [f"npm:s{i}" for i in range(40) if split_of(f"npm:s{i}") == TRAIN]
    for name in ("read_file", "search", "makeIssue"):
        spelt = {name, name.upper(), name.replace("_", "-")}
        assert len({choose_tool_place(s, n, SetPolicy()) for s in servers for n in spelt}) == 1


@given(st.text(min_size=1), st.text(min_size=1), st.text(min_size=1))
def test_a_server_is_never_on_both_sides_whatever_its_tools_and_pairs(server, tool, pair):
    place = place_pair(server, tool, pair, SetPolicy())
    assert place in SPLITS
    assert (place == UNSEEN_SERVER) == (split_of(server) == TEST)
    assert (place == SEEN_TOOL) <= (choose_tool_place(server, tool, SetPolicy()) == TRAIN)
