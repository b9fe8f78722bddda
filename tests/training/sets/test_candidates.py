"""Offers: unique names, the right tools in, their twins out, the same on every machine."""

import json
import subprocess
import sys
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from assets.contracts.canonical import canonicalize_contract, contract_digest
from tests.support.examples import examples
from tests.support.paths import ROOT
from tests.training.conftest import raw_tool
from training.sets.pool import (
    DISTRACTORS,
    HARD,
    MIXED,
    RANDOM,
    BadOffer,
    ToolPool,
    draw_candidates,
    load_pool,
    save_pool,
    select_split_pool,
)
from training.sets.split import TRAIN, UNSEEN_SERVER

Row = dict[str, Any]


def names(offer: list) -> list[str]:
    return [tool["name"] for tool in offer]


def entry(raw: Row, server: str, split: str = TRAIN, *twins: str) -> Row:
    own = {
        "server_id": server,
        "tool": raw["name"],
        "contract": canonicalize_contract(raw),
        "split": split,
    }
    return {**own, "twins": list(twins)}


def row_of(name: str, *golds: str, **facts: Any) -> Row:
    calls = [{"name": "?", "contract_digest": gold, "arguments": {}} for gold in golds]
    own = golds[0] if golds else facts.pop("own")
    return {"pair_id": name, "contract_digest": own, "calls": json.dumps(calls),
            "negatives": "[]", "instruction": "Please do.", **facts}  # fmt: skip


@st.composite
def pools(draw: st.DrawFn) -> tuple[dict[str, Row], list[str]]:
    """A pool in which names repeat, servers have several tools, and some are marked as twins."""
    words = st.sampled_from(["find", "make", "drop", "song", "note", "page"])
    many = draw(st.integers(1, 14))
    pool, digests = {}, []
    for at in range(many):
        raw = raw_tool("find", "song") | {
            "name": f"{draw(words)}_{draw(words)}",
            "description": " ".join(draw(st.lists(words, min_size=1, max_size=5))) + f" {at}",
        }
        digests.append(contract_digest(raw))
        pool[digests[-1]] = entry(raw, f"npm:{draw(words)}")
    for _ in range(draw(st.integers(0, 3))):
        one, other = draw(st.sampled_from(digests)), draw(st.sampled_from(digests))
        pool[one]["twins"] = [other]
    return pool, digests


@examples(60)
@given(pools(), st.integers(1, 20), st.sampled_from(DISTRACTORS), st.integers(0, 3), st.data())
def test_an_offer_holds_what_it_says(drawn, n, how, seed, data):
    entries, digests = drawn
    pool = ToolPool(entries)
    golds = data.draw(st.lists(st.sampled_from(digests), min_size=1, max_size=3, unique=True))
    golds = list({entries[name]["tool"]: name for name in golds}.values())
    near = data.draw(st.lists(st.sampled_from(digests), max_size=4))
    row = row_of("p1", *golds, negatives=json.dumps([*near, "c1:gone"]))
    offer = draw_candidates(row, pool, n, distractors=how, seed=seed)
    without = draw_candidates(row, pool, n, distractors=how, seed=seed, gold=False)
    assert offer == draw_candidates(row, entries, n, distractors=how, seed=seed)
    for made in (offer, without):
        assert len(set(names(made))) == len(made)
    held = [entries[name]["contract"] for name in golds]
    assert all(offer.count(one) == 1 for one in held)
    twins = {twin for name in golds for twin in pool.get_twins(name)}
    banned = [entries[name]["contract"] for name in twins]
    assert not any(one in without for one in banned)
    assert not any(one in offer for one in banned if one not in held)
    taken = {one["name"] for one in held}
    free = {entries[d]["tool"] for d in digests if d not in twins}
    assert len(offer) == max(len(golds), min(n, len(taken) + len(free - taken)))
    assert len(without) == min(n, len(free))


def test_offers_of_the_set_repeat_and_put_the_right_tool_anywhere(made):
    pool = select_split_pool(made.pool, TRAIN)
    rows = [row for row in made.rows if row["split"] == TRAIN]
    places = set()
    for row in rows:
        offer = draw_candidates(row, pool, 4)
        assert offer == draw_candidates(row, pool, 4)
        assert names(offer).count(row["tool"]) == 1
        assert len(set(names(offer))) == 4
        places.add(names(offer).index(row["tool"]))
    assert places == {0, 1, 2, 3}


def test_kinds_and_seeds_are_other_offers(made):
    pool, row = select_split_pool(made.pool, UNSEEN_SERVER), made.rows[0]
    offers = {tuple(names(draw_candidates(row, pool, 10, distractors=how, seed=seed)))
              for how in DISTRACTORS for seed in (0, 1)}  # fmt: skip
    assert len(offers) == 6
    hard = [set(names(draw_candidates(row, pool, 10, distractors=HARD, seed=s))) for s in (0, 1)]
    assert hard[0] == hard[1]  # the hardest are the hardest; only their order is drawn


def test_a_small_pool_gives_what_there_is(made):
    pool = select_split_pool(made.pool, UNSEEN_SERVER)
    assert len(draw_candidates(made.rows[0], pool, 100)) == len(pool) == 30
    only = {made.rows[0]["contract_digest"]: made.pool[made.rows[0]["contract_digest"]]}
    assert names(draw_candidates(made.rows[0], only, 10)) == [made.rows[0]["tool"]]
    assert draw_candidates(made.rows[0], only, 10, gold=False) == []


def test_hard_is_confused_then_of_the_same_server_then_near_in_words():
    def tool(name: str, about: str) -> Row:
        return {"name": name, "description": about, "inputSchema": {"type": "object"}}

    raws = {
        "gold": (tool("find_song", "look up a song"), "npm:song"),
        "confused": (tool("zzz", "qqq"), "npm:other"),
        "beside": (tool("drop_list", "remove every song"), "npm:song"),
        "near": (tool("find_songs", "look up a song quickly"), "npm:else"),
        "far": (tool("bake", "oven temperature"), "npm:kitchen"),
    }
    pool = {name: entry(raw, server) for name, (raw, server) in raws.items()}
    row = row_of("p1", "gold", negatives='["confused"]')
    hard = [set(names(draw_candidates(row, pool, n, distractors=HARD))) for n in (2, 3, 4, 5)]
    assert [one - two for one, two in zip(hard, [{"find_song"}, *hard], strict=False)] == [
        {"zzz"}, {"drop_list"}, {"find_songs"}, {"bake"}
    ]  # fmt: skip


def test_mixed_is_half_hard(made):
    row = next(r for r in made.rows if r["split"] == UNSEEN_SERVER)
    pool = select_split_pool(made.pool, UNSEEN_SERVER)
    hard = json.loads(row["negatives"])
    mixed = set(names(draw_candidates(row, pool, 10, distractors=MIXED)))
    assert {pool[name]["name"] for name in hard[:5]} <= mixed
    assert mixed != set(names(draw_candidates(row, pool, 10, distractors=HARD)))


def test_a_twin_is_no_distractor_by_its_text_or_its_mark():
    raw = raw_tool("find", "song")
    same = {**raw, "inputSchema": {**raw["inputSchema"], "required": ["title"]}}
    marked, other = raw_tool("make", "song"), raw_tool("drop", "song")
    pool = {"a": entry(raw, "s", TRAIN, "c"), "b": entry(same, "t"),
            "c": entry(marked, "u"), "d": entry(other, "v")}  # fmt: skip
    row = row_of("p1", "a", negatives='["b", "c", "d"]')
    for how in DISTRACTORS:
        assert set(names(draw_candidates(row, pool, 10, distractors=how))) == {
            "find_song",
            "drop_song",
        }
        assert names(draw_candidates(row, pool, 10, distractors=how, gold=False)) == ["drop_song"]


def test_a_row_of_several_calls_shows_them_all():
    pool = {name: entry(raw_tool(name, "song"), "s") for name in ("find", "make", "drop")}
    row = row_of("p1", "find", "drop", "find")
    assert set(names(draw_candidates(row, pool, 1))) == {"find_song", "drop_song"}
    assert len(draw_candidates(row, pool, 3)) == 3
    assert names(draw_candidates(row, pool, 3, gold=False)) == ["make_song"]


def test_a_row_of_no_call_shows_what_it_was_offered_and_nothing_that_could_serve_it():
    things = ("song", "note", "page", "photo", "flight", "recipe", "ticket", "file", "issue",
              "album", "letter", "parcel")  # fmt: skip
    pool = {thing: entry(raw_tool("find", thing), thing) for thing in things}
    row = row_of("p1", own="song", offered='["song", "gone"]', instruction="Which photo is best?")
    for how in DISTRACTORS:
        assert names(draw_candidates(row, pool, 1, distractors=how)) == ["find_song"]
        full = set(names(draw_candidates(row, pool, 100, distractors=how)))
        assert full == {f"find_{thing}" for thing in things if thing != "photo"}


def test_a_train_prompt_shows_train_tools_alone(made):
    shown = select_split_pool(made.pool, TRAIN)
    assert {made.pool[name]["split"] for name in shown} == {TRAIN}
    row = next(row for row in made.rows if row["split"] == UNSEEN_SERVER)
    with pytest.raises(BadOffer, match=rf"pair {row['pair_id']}: the pool of 23 contracts lacks"):
        draw_candidates(row, shown, 10)


def test_an_unknown_kind_of_distractors_is_refused(made):
    with pytest.raises(BadOffer, match="distractors 'easy': expected one of random, hard, mixed"):
        draw_candidates(made.rows[0], made.pool, 10, distractors="easy")


def test_a_pool_is_kept_and_one_that_is_not_there_or_broken_is_told(made, tmp_path):
    path = save_pool(tmp_path, "set-1", made.pool)
    assert load_pool(tmp_path, "set-1") == made.pool
    with pytest.raises(
        BadOffer, match=r"training set set-2 has no pool .* materialize training_set"
    ):
        load_pool(tmp_path, "set-2")
    path.write_bytes(path.read_bytes()[:100])
    with pytest.raises(BadOffer, match=r"not a pool .* remove the file"):
        load_pool(tmp_path, "set-1")


def test_another_process_draws_the_same_offers(made, tmp_path):
    save_pool(tmp_path, "set-1", made.pool)
    rows = [row for row in made.rows if row["split"] == UNSEEN_SERVER]
    (tmp_path / "rows.json").write_text(json.dumps(rows))
    code = (
        "import json, sys; from pathlib import Path; from training.sets.pool import *\n"
        "from training.sets.pool import *\n"
        "home = Path(sys.argv[1])\n"
        "pool = select_split_pool(load_pool(home, 'set-1'), 'unseen_server')\n"
        "rows = json.loads((home / 'rows.json').read_text())\n"
        "print(json.dumps([[c['name'] for c in draw_candidates(r, pool, 10, distractors=d)]\n"
        "                  for r in rows for d in DISTRACTORS]))"
    )
    command = [sys.executable, "-c", code, str(tmp_path)]
    root = ROOT
    out = subprocess.run(command, cwd=root, capture_output=True, text=True, check=True,
                          env={"PYTHONHASHSEED": "12345", "PATH": ""}).stdout  # fmt: skip
    pool = select_split_pool(made.pool, UNSEEN_SERVER)
    drawn = [names(draw_candidates(r, pool, 10, distractors=d)) for r in rows for d in DISTRACTORS]
    assert json.loads(out) == drawn
    assert RANDOM in DISTRACTORS
