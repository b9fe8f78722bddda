"""What is in a set and on which side; every reason to leave a pair out is counted."""

import json
from typing import Any

from assets.synthesis.tables import select_accepted, select_trainable
from tests.support.cases import cases
from tests.training.conftest import embed, make_rows
from training.sets import split
from training.sets.set_audit import load_manifest, save_manifest, set_flaws
from training.sets.training_set import TRAINING_SET, build_training_set, make_set_manifest

Row = dict[str, Any]


def call(row: Row) -> Row:
    named = ("server_id", "tool", "contract_digest")
    return {**{name: row[name] for name in named}, "arguments": json.loads(row["arguments"])}


def more(pairs: list[Row], task: str, name: str, *of: Row, **facts: Any) -> Row:
    offered = json.dumps([row["contract_digest"] for row in of])
    row = {**of[0], "pair_id": f"p1:{name}", "task": task, "instruction": f"Words about {name}."}
    pairs.append({**row, "offered": offered, "contracts": offered, **facts})
    return pairs[-1]


def of(pairs: list[Row], tool: str) -> Row:
    return next(row for row in pairs if row["tool"] == tool)


def test_a_set_has_rows_in_every_split_a_side_of_every_contract_and_fitting_negatives(made):
    assert set_flaws(made.rows, made.pool, embed=embed) == []
    assert len(TRAINING_SET.frame(made.rows)) == 60
    assert ({row["split"] for row in made.rows}, made.dropped) == (set(split.SPLITS), {})
    assert len(made.pool) == 30
    for row in made.rows:
        entry = made.pool[row["contract_digest"]]
        assert entry["contract"] == json.loads(row["contract"])
        assert (entry["split"] == split.TRAIN) == (row["split"] in (split.TRAIN, split.SEEN_TOOL))
    for row in made.rows:
        near = json.loads(row["negatives"])
        assert 1 <= len(near) <= 12
        assert row["contract_digest"] not in near
        if row["split"] == split.TRAIN:
            assert {made.pool[name]["split"] for name in near} == {split.TRAIN}
        elif row["split"] == split.UNSEEN_SERVER and row["tool"].startswith("find_"):
            assert made.pool[near[0]]["server_id"] == row["server_id"]


def test_tools_it_is_confused_with_are_its_first_negatives_and_marked_twins_are_none(made):
    snapshots, pairs = make_rows()
    row = next(row for row in made.rows if row["split"] == split.TRAIN)
    learnt = [name for name, entry in made.pool.items() if entry["split"] == split.TRAIN]
    near = {*json.loads(row["negatives"]), row["contract_digest"]}
    strange = next(name for name in learnt if name not in near)
    elsewhere = next(n for n, entry in made.pool.items() if entry["split"] == split.UNSEEN_SERVER)
    hard = {row["contract_digest"]: [row["contract_digest"], elsewhere, "c1:unknown", strange]}
    again = build_training_set(pairs, snapshots, embed, hard=hard)
    found = next(r for r in again.rows if r["pair_id"] == row["pair_id"])
    assert json.loads(found["negatives"]) == [strange, *json.loads(row["negatives"])[:11]]
    assert set_flaws(again.rows, again.pool) == []
    twin = json.loads(row["negatives"])[0]
    marked = {"twins": [(row["contract_digest"], twin)], "hard": {row["contract_digest"]: [twin]}}
    again = build_training_set(pairs, snapshots, embed, **marked)
    found = next(r for r in again.rows if r["pair_id"] == row["pair_id"])
    assert twin not in json.loads(found["negatives"])
    assert again.pool[row["contract_digest"]]["twins"] == [twin]


def test_what_a_row_also_calls_is_no_negative_nor_is_its_twin(made):
    snapshots, pairs = make_rows()
    row = next(row for row in made.rows if row["split"] == split.TRAIN)
    also, twin = json.loads(row["negatives"])[:2]
    own = of(pairs, row["tool"])
    beside = next(pair for pair in pairs if pair["contract_digest"] == also)
    both = more(pairs, "parallel", "both", own, beside)
    both["calls"] = json.dumps([{**call(one), "borrowed": []} for one in (own, beside)])
    left = [pair for pair in pairs if pair["contract_digest"] != also]
    again = build_training_set(left, snapshots, embed, twins=[(also, twin)])
    found = next(r for r in again.rows if r["pair_id"] == both["pair_id"])
    assert again.pool[also]["twins"] == [twin]
    assert {also, twin}.isdisjoint(json.loads(found["negatives"]))


def test_only_verified_and_judged_pairs_are_accepted():
    good = {"status": "ok", "verdict": "accept", "task": "single", "twin_of": None}
    pairs = [{**good, "pair_id": name} for name in "aacd"]  # one from two marketplaces
    odd = {"b": {"status": "failed"}, "e": {"verdict": "reject"}, "f": {"twin_of": "a"}}
    odd["g"] = {"task": "parallel"}
    pairs += [{**good, "pair_id": name, **facts} for name, facts in odd.items()]
    verdicts = [
        {"pair_id": name, "verdict": "accept" if name != "c" else "reject"} for name in "abcefg"
    ]
    assert [row["pair_id"] for row in select_accepted(pairs, verdicts)] == ["a"]
    assert [row["pair_id"] for row in select_trainable(pairs, verdicts)] == ["a", "g"]


def test_nothing_of_a_held_or_changed_contract_is_learnt_embedded_or_shown():
    snapshots, pairs = make_rows()
    pairs[0]["contracts"] = json.dumps([pairs[0]["contract_digest"], "c1:held"])
    pairs[1]["contract_digest"] = "c1:gone"
    pairs[2]["steps"] = json.dumps([{"step": "generate"}, {"step": "evolve"}])
    made = build_training_set(pairs, snapshots, embed, held={("npm:other", "look_up", "c1:held")})
    assert made.dropped == {"quarantined": 1, "stale_contract": 1}
    assert pairs[0]["pair_id"] not in {row["pair_id"] for row in made.rows}
    assert [row["pair_id"] for row in made.rows if row["evolved"]] == [pairs[2]["pair_id"]]
    snapshots, pairs = make_rows()
    bad = snapshots[0]
    seen: list[str] = []

    def embed_shown(texts: Any) -> Any:
        seen.extend(texts)
        return embed(texts)

    held = {(bad["server_id"], bad["tool"], bad["contract_digest"])}
    made = build_training_set(pairs, snapshots, embed_shown, held=held, embed_requests=embed)
    assert made.dropped == {"quarantined": 2}
    assert bad["contract_digest"] not in made.pool
    assert not any(bad["contract_digest"] in row["negatives"] for row in made.rows)
    assert not any(json.loads(bad["contract"])["description"] in text for text in seen)
    assert made.contracts[f"{bad['server_id']}::{bad['tool']}"] == bad["contract_digest"]


def test_rows_of_no_call_and_of_several_are_kept_and_what_is_no_conversation_counted():
    snapshots, pairs = make_rows()
    one, two = of(pairs, "find_song"), of(pairs, "drop_song")
    more(pairs, "parallel", "both", one, two, calls=json.dumps([call(one), call(two)]))
    more(pairs, "no_tool", "none", one, two, calls="[]", arguments=None)
    more(pairs, "clarification", "asks back", one, calls="[]", arguments=None)
    more(pairs, "recovery", "cut off", one, calls=json.dumps([call(one)]),
         messages='[{"role": "user", "content": "Find it."}]')  # fmt: skip
    more(pairs, "debate", "of no task", one)
    made = build_training_set(pairs, snapshots, embed, split.SetPolicy(seen_tools=0.0))
    assert made.dropped == {"other_task": 1, "unreadable_conversation": 2}
    assert set_flaws(made.rows, made.pool, embed=embed) == []
    rows = {row["pair_id"]: row for row in made.rows}
    both, none = rows["p1:both"], rows["p1:none"]
    assert [c["name"] for c in json.loads(both["calls"])] == ["find_song", "drop_song"]
    assert json.loads(both["arguments"]) == json.loads(one["arguments"])
    assert (none["calls"], none["arguments"], none["positive"], none["negatives"]) == (
        "[]", None, None, "[]")  # fmt: skip
    assert json.loads(none["offered"]) == [one["contract_digest"], two["contract_digest"]]


def talk(*turns: str | Row | list[Row]) -> str:
    """A conversation: the user's words, the assistant's after a dash, its calls, a tool's result
    after a colon."""
    made: list[Row] = []
    for turn in turns:
        if isinstance(turn, str):
            role = {"-": "assistant", ":": "tool"}.get(turn[0], "user")
            made.append({"role": role, "content": turn.lstrip("-:")})
            made[-1] |= {"tool_call_id": "c"} if role == "tool" else {}
        else:
            function = {"name": turn["tool"], "arguments": json.dumps(turn["arguments"])}
            calls = [{"id": "c", "type": "function", "function": function}]
            made.append({"role": "assistant", "content": None, "tool_calls": calls})
    return json.dumps(made)


def conversations() -> tuple[list[Row], list[Row]]:
    """(snapshot rows, pairs) with one of each task that is a conversation, of one train server."""
    snapshots, pairs = make_rows()
    one, two = of(pairs, "find_song"), of(pairs, "drop_song")
    first, second = call(one), call(two)
    more(pairs, "sequential", "in turn", one, two, calls=json.dumps([first, second]),
         messages=talk("Find, then drop.", first, ":{}", second))  # fmt: skip
    more(pairs, "missing_parameter", "lacking", two, calls="[]", arguments=None,
         messages=talk("Drop it.", "-Which song?"))  # fmt: skip
    more(pairs, "clarification", "asked for", one, calls=json.dumps([first]),
         messages=talk("Find it.", "-Which song?", "Blue Sky, 2.", first))  # fmt: skip
    wrong = {**first, "arguments": {}}
    more(pairs, "recovery", "repaired", one, calls=json.dumps([first]),
         messages=talk("Find Blue Sky.", wrong, ":no title", first))  # fmt: skip
    return snapshots, pairs


def test_conversations_are_kept_whole_and_their_wrong_calls_marked():
    snapshots, pairs = conversations()
    made = build_training_set(
        pairs, snapshots, embed, split.SetPolicy(seen_tools=0.0, unseen_tools=0.0)
    )
    assert made.dropped == {}
    assert set_flaws(made.rows, made.pool, embed=embed) == []
    rows = {row["pair_id"]: row for row in made.rows}
    held = {name: json.loads(rows[f"p1:{name}"]["messages"]) for name in
            ("in turn", "lacking", "asked for", "repaired")}  # fmt: skip
    assert {name: [m.get("weight") for m in turns if m["role"] == "assistant"]
            for name, turns in held.items()} == {
        "in turn": [None, None], "lacking": [None], "asked for": [None, None],
        "repaired": [0, None],
    }  # fmt: skip
    assert {row["messages"] for row in made.rows if row["task"] == "single"} == {None}
    asked = rows["p1:lacking"]
    assert (asked["calls"], asked["positive"], asked["split"]) == ("[]", None, split.TRAIN)
    assert made.pool[asked["contract_digest"]]["tool"] == "drop_song"


def test_a_question_of_a_tested_tools_copy_or_of_a_tool_that_is_not_learnt_is_left_out():
    snapshots, pairs = conversations()
    own = next(row for row in snapshots if row["tool"] == "drop_song")
    tested = next(row for row in pairs if split.split_of(row["server_id"]) == split.TEST)
    copy = {**own, "server_id": tested["server_id"]}
    made = build_training_set(pairs, [*snapshots, copy], embed, split.SetPolicy(seen_tools=0.0))
    assert "p1:lacking" not in {row["pair_id"] for row in made.rows}
    assert made.dropped["leak_text"] >= 3  # two requests and the question
    calls = [row for row in pairs if "drop_song" in f"{row['tool']} {row.get('calls')}"]
    kept = [row for row in pairs if row not in calls or row["pair_id"] == "p1:lacking"]
    made = build_training_set(kept, snapshots, embed, split.SetPolicy(seen_tools=1.0))
    assert "p1:lacking" not in {row["pair_id"] for row in made.rows}
    assert made.dropped["untrained_tool"] == 1


@cases(
    "task, messages, calls, why",
    ("recovery", "{", True, "unreadable_conversation"),
    ("recovery", "[3]", True, "unreadable_conversation"),
    ("recovery", talk("Find it."), True, "unreadable_conversation"),
    ("recovery", talk("Find it.", "-Done."), True, "conversation_differs"),
    ("missing_parameter", talk("Find it.", "-No."), False, "conversation_differs"),
    ("missing_parameter", talk("Find it.", "-Which?"), True, "conversation_differs"),
    ("clarification", talk("Find it.", "-Which?"), False, "conversation_differs"),
)
def test_a_conversation_that_is_not_its_calls_is_counted(task, messages, calls, why):
    snapshots, pairs = make_rows()
    own = pairs[0]
    more(pairs, task, "odd", own, messages=messages,
         calls=json.dumps([call(own)] if calls else []))  # fmt: skip
    assert build_training_set(pairs, snapshots, embed).dropped == {why: 1}


def test_a_train_row_offers_no_tool_that_is_only_tested_on_nor_calls_one_or_two_of_a_name():
    snapshots, pairs = make_rows()
    learnt = next(row for row in pairs if split.split_of(row["server_id"]) == split.TRAIN)
    tested = next(row for row in pairs if split.split_of(row["server_id"]) == split.TEST)
    more(pairs, "no_tool", "some", learnt, tested, calls="[]", arguments=None)
    more(pairs, "no_tool", "all hidden", learnt, calls="[]", arguments=None,
         offered=json.dumps([tested["contract_digest"]]))  # fmt: skip
    made = build_training_set(
        pairs, snapshots, embed, split.SetPolicy(seen_tools=0.0, unseen_tools=0.0)
    )
    [row] = [row for row in made.rows if row["task"] == "no_tool"]
    assert json.loads(row["offered"]) == [learnt["contract_digest"]]
    assert made.dropped == {"nothing_offered": 1}
    snapshots, pairs = make_rows()
    learnt, tested = of(pairs, "find_song"), of(pairs, "find_note")
    more(pairs, "parallel", "mixed", learnt, tested, calls=json.dumps([call(learnt), call(tested)]))
    copied = {**next(r for r in snapshots if r["tool"] == "drop_page"), "server_id": "npm:song"}
    again = {**of(pairs, "drop_page"), "server_id": "npm:song"}
    calls = json.dumps([call(of(pairs, "drop_page")), call(again)])
    more(pairs, "parallel", "one name", of(pairs, "drop_page"), calls=calls)
    made = build_training_set(pairs, [*snapshots, copied], embed)
    assert made.dropped == {"calls_both_sides": 1, "same_names": 1}


def test_a_tool_keeps_a_pair_to_learn_from_and_traces_are_never_tested_on(made):
    snapshots, pairs = make_rows()
    made = build_training_set(pairs, snapshots, embed, split.SetPolicy(seen_tools=1.0))
    assert set_flaws(made.rows, made.pool, embed=embed) == []
    learnt = {row["text_digest"]: row for row in made.rows if row["split"] == split.TRAIN}
    held = {row["text_digest"]: row for row in made.rows if row["split"] == split.SEEN_TOOL}
    assert len(learnt) == len(held) == sum(row["split"] == split.TRAIN for row in made.rows)
    for text, row in learnt.items():  # the last that the hash would hold out
        draws = [split.compute_pair_draw(each["pair_id"]) for each in (row, held[text])]
        assert draws[0] > draws[1]
    traced = [{**pair, "pair_id": f"r1:{n}", "basis": "trace"} for n, pair in enumerate(pairs)]
    again = build_training_set(traced, snapshots, embed)
    assert {row["split"] for row in again.rows} == {split.TRAIN}
    assert again.dropped["traced_outside_train"] > 0


def test_neither_order_nor_one_more_server_moves_a_row(snapshots_and_pairs, made):
    snapshots, pairs = snapshots_and_pairs
    other = build_training_set([*pairs[::-1]], snapshots[::-1], embed)
    names = {TRAINING_SET.digest(TRAINING_SET.frame(each.rows)) for each in (made, other)}
    assert len(names) == 1
    assert other.pool == made.pool
    fewer = [row for row in snapshots if row["server_id"] != "npm:ticket"]
    before = build_training_set([p for p in pairs if p["server_id"] != "npm:ticket"], fewer, embed)
    after = {row["pair_id"]: row["split"] for row in made.rows}
    assert all(row["split"] == after[row["pair_id"]] for row in before.rows)


def test_a_manifest_says_what_the_set_was_made_of(made, tmp_path):
    manifest = make_set_manifest(
        made, "set-1", embedder="words", lance_version=3, lance_tag="training-set-1"
    )
    save_manifest(tmp_path, manifest)
    read = load_manifest(tmp_path, "set-1")
    assert read is not None
    assert sum(read["rows"].values()) == 60 == len(read["row_digests"])
    assert not set(read["servers"][split.TRAIN]) & set(read["servers"][split.UNSEEN_SERVER])
    assert (len(read["contracts"]), read["providers"]) == (30, {"offline": 60})
    assert read["licences"] == {"Apache-2.0": 60}
    assert read["tasks"][split.UNSEEN_TOOL] == {"single": read["rows"][split.UNSEEN_TOOL]}
    assert (read["lance_version"], read["lance_tag"]) == (3, "training-set-1")
    assert (read["policy"]["salts"]["server"], read["empty"]) == ("toolmill-split-10", [])
    assert load_manifest(tmp_path, "set-2") is None
