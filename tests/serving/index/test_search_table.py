"""A large index is searched through LanceDB, with the answers of one in memory."""

import json
import random
import shutil
from collections.abc import Callable
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.index.build import build_index, move_pointer
from serving.index.folder import load_index, read_served_version
from serving.index.model import BLOCK, IndexBroken, IndexSource
from serving.index.search_table import SERVERS, TOOLS, WORD_FIELDS, SearchTables, write_table
from serving.ranking.overlays import BlockedTools
from serving.ranking.query import STRATEGIES, ToolQuery
from serving.router import Router
from tests.serving.conftest import tell_sizes
from tests.support.cases import cases
from tests.support.examples import examples
from tests.vectors.conftest import WordEmbedder, snapshot

VERBS = ("read", "write", "send", "list", "delete", "find", "draw", "count", "rename", "copy")
NOUNS = ("file", "email", "city", "invoice", "image", "branch", "table", "user", "song", "meeting")
PLACES = ("disk", "cloud", "mailbox", "calendar", "map", "ledger", "repository", "database")
QUERIES = [f"please {verb} a {noun}" for verb in VERBS for noun in NOUNS[:4]]


def make_rows(tools: int) -> list[dict]:
    rng = random.Random(3)
    rows = []
    for at in range(tools):
        verb, noun, place = rng.choice(VERBS), rng.choice(NOUNS), rng.choice(PLACES)
        about = f"{verb} the {noun} number {at} of a {place} with {rng.choice(NOUNS)}"
        rows.append(snapshot(f"npm:{place}-{at % 40}", f"{verb}_{noun}_{at}", about))
    return rows


def make_source(rows: list[dict]) -> IndexSource:
    names = {row["server_id"] for row in rows}
    facts = {name: {"name": name[4:], "description": f"Works on {name}"} for name in names}
    return IndexSource(rows, {name: of for name, of in facts.items() if name[-1] in "02468"})


@pytest.fixture
def build(tmp_path: Path, embedder: WordEmbedder) -> Callable[..., str]:
    def build_version(rows: list[dict], search_from: int = 1, **named: object) -> str:
        source = make_source(rows)
        options = {"embedder": "words", "search_from": search_from, **named}
        version = build_index(tmp_path, source, embedder.embed, **options)
        move_pointer(tmp_path, version)
        return version

    return build_version


@pytest.fixture(scope="module")
def routers(tmp_path_factory: pytest.TempPathFactory) -> tuple[Router, Router]:
    """Routers of the same 600 tools: in memory, and through LanceDB."""
    place, embedder = tmp_path_factory.mktemp("search"), WordEmbedder()
    source = make_source(make_rows(600))
    versions = [
        build_index(place, source, embedder.embed, embedder="words", search_from=search_from)
        for search_from in (601, 600)
    ]
    in_memory, through_lance = (Router(load_index(place, name), embedder) for name in versions)
    return in_memory, through_lance


def rank(router: Router, ask: ToolQuery) -> list[tuple[str, float]]:
    return [(hit.tool_id, round(hit.score, 3)) for hit in router.find(ask).hits]


def test_below_the_size_nothing_changes(tmp_path, build):
    rows = make_rows(30)
    version = build(rows, search_from=31)
    embed = WordEmbedder().embed
    assert version == build_index(tmp_path, make_source(rows), embed, embedder="words")
    assert not (tmp_path / "router" / version / "search").exists()
    index = load_index(tmp_path, version)
    assert index.search is None
    assert index.block is not None


def test_a_large_index_is_on_disk_and_finds_rare_allowed_tools_but_no_held_ones(routers):
    index = routers[1].index
    assert (index.block, index.sketch) == (None, None)
    assert all(isinstance(index.views[name].vectors, np.memmap) for name in BLOCK)
    assert not any(field.weights.flags.owndata for field in index.fields.values())
    name = routers[1].index.tools[7].tool_id
    [hit] = routers[1].find(ToolQuery("zzz", allowed=(name,))).hits
    assert hit.tool_id == name
    best = routers[1].find(ToolQuery(QUERIES[0])).hits[0].tool_id
    held = routers[1].renew(BlockedTools(tools=frozenset({best})), None)
    assert best not in {hit.tool_id for hit in held.find(ToolQuery(QUERIES[0], k=20)).hits}


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_answers_agree_with_those_from_memory(routers, strategy):
    asks = [ToolQuery(text, k=10, strategy=strategy) for text in QUERIES]
    asks.append(ToolQuery(server="a mailbox", tool="sends an email", k=10, strategy=strategy))
    answers = [[dict(rank(router, ask)) for router in routers] for ask in asks]
    first = [[*one.items()][:1] == [*other.items()][:1] for one, other in answers]
    assert np.mean(first) >= 0.95
    assert np.mean([len(one.keys() & other.keys()) for one, other in answers]) >= 9.8
    ask = ToolQuery(QUERIES[3], k=40, strategy=strategy)
    one, other = (router.find(ask) for router in routers)
    assert len(one.hits) == len(other.hits) == 40
    assert abs(one.suitable - other.suitable) < 0.05


IDS = sorted(f"{row['server_id']}::{row['tool']}" for row in make_rows(600))

questions = st.builds(
    ToolQuery,
    query=st.sampled_from(QUERIES),
    k=st.integers(1, 700),
    allowed=st.none() | st.sampled_from([("npm:disk-*",), ("*email*",), ()]),
    exclude=st.frozensets(st.sampled_from(IDS), max_size=5),
    strategy=st.sampled_from(STRATEGIES),
)


@examples(20)
@given(questions)
def test_no_answer_leaves_what_is_allowed(routers, ask):
    hits = routers[1].find(ask).hits
    assert len(hits) <= ask.k
    names = [hit.tool_id for hit in hits]
    assert len(set(names)) == len(names)
    globs = ask.allowed or ()
    allowed = {name for name in IDS if any(fnmatchcase(name, glob) for glob in globs)}
    allowed = (set(IDS) if ask.allowed is None else allowed) - ask.exclude
    assert set(names) <= allowed
    assert bool(names) == bool(allowed)


@examples(8)
@given(seed=st.integers(0, 2**16), rows=st.integers(1, 2_500), dim=st.sampled_from([16, 33, 128]))
def test_candidates_hold_the_exact_top_ten(tmp_path_factory, seed, rows, dim):
    rng, folder = np.random.default_rng(seed), tmp_path_factory.mktemp("tables")
    centres = rng.standard_normal((20, dim))
    vectors = centres[rng.integers(0, 20, rows)] + 0.3 * rng.standard_normal((rows, dim))
    vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
    keys = [f"npm:it's-{at}::tool" for at in range(rows)]
    words = {name: [f"w{at % 13} x{at}" for at in range(rows)] for name in WORD_FIELDS}
    assert write_table(folder, TOOLS, keys, vectors, words) == rows
    write_table(folder, SERVERS, [f"server|{key}" for key in keys], vectors, {})
    tables = SearchTables(folder, probes=1_000)
    for at in rng.integers(0, rows, 3):
        top = np.argsort(-(vectors @ vectors[at]), kind="stable")[:10]
        assert {keys[place] for place in top} <= set(tables.find_near_tools(vectors[at], 300))
        assert keys[at] in tables.find_near_servers(vectors[at], 40)
        assert tables.match_words(WORD_FIELDS[0], ["nothing", f"x{at}"], 5) == [keys[at]]
    assert tables.match_words(WORD_FIELDS[0], [], 5) == []


def test_a_changed_contract_is_one_row(tmp_path, build, written):
    rows = make_rows(200)
    first = build(rows)
    before = load_index(tmp_path, first)
    changed = snapshot(rows[0]["server_id"], rows[0]["tool"], "Weigh a walrus in its harbour")
    second = build([changed, *rows[2:], snapshot("npm:disk-0", "feed_walrus", "Feed a walrus")])
    assert (written[:2], written[2]) == ([(TOOLS, 200), (SERVERS, written[1][1])], (TOOLS, 2))
    embedder = WordEmbedder()
    new, old = (Router(load_index(tmp_path, name), embedder) for name in (second, first))
    hits = {hit.tool for hit in new.find(ToolQuery("weigh or feed a walrus", k=2)).hits}
    assert hits == {rows[0]["tool"], "feed_walrus"}
    gone = ToolQuery(tool=json.loads(rows[1]["contract"])["description"], k=200)
    assert rows[1]["tool"] in {hit.tool for hit in old.find(gone).hits}
    assert rows[1]["tool"] not in {hit.tool for hit in new.find(gone).hits}
    assert before.search is not None
    assert before.search.count_rows()[0] == 200  # what an open router reads is not moved
    # The same as written whole, by another program that never saw the first version.
    incremental = [rank(new, ToolQuery(text, k=10)) for text in QUERIES]
    shutil.rmtree(tmp_path / "router")
    whole = build([changed, *rows[2:], snapshot("npm:disk-0", "feed_walrus", "Feed a walrus")])
    assert whole == second
    router = Router(load_index(tmp_path, whole), embedder)
    assert [rank(router, ToolQuery(text, k=10)) for text in QUERIES] == incremental


def test_many_changes_or_another_encoder_write_the_tables_again(build, written, tmp_path):
    build(make_rows(100))
    build([*make_rows(100)[:50], *(snapshot("npm:new", f"t{at}", "New") for at in range(60))])
    assert written[2] == (TOOLS, 110)
    build(make_rows(50))
    steps: list[str] = []
    build(make_rows(50), embedder="others", progress=lambda step, *_: steps.append(step))
    assert any("are of words" in step or "tables of words" in step for step in steps)
    index = load_index(tmp_path, read_served_version(tmp_path))
    with pytest.raises(IndexBroken, match="was made by others, the encoder is words"):
        Router(index, WordEmbedder())


@pytest.fixture
def written(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int]]:
    """(table, rows) of each that is written."""
    counts: list[tuple[str, int]] = []

    def count(folder: Path, name: str, *more: Any, **named: Any) -> None:
        counts.append((name, write_table(folder, name, *more, **named)))

    monkeypatch.setattr("serving.index.build.write_table", count)
    return counts


@cases("damage", "cut", "gone", "rows")
def test_half_written_tables_are_refused_and_written_again(tmp_path, build, damage):
    version = build(make_rows(50))
    folder = tmp_path / "router" / version
    data = min(path for path in folder.rglob("search/**/*.lance") if path.is_file())
    if damage == "cut":
        data.write_bytes(data.read_bytes()[:100])
    elif damage == "gone":
        data.unlink()
    else:
        shutil.rmtree(folder / "search" / "tools.lance")
        shutil.copytree(folder / "search" / "servers.lance", folder / "search" / "tools.lance")
        files = [path for path in folder.rglob("*") if path.is_file()]
        names = [str(path.relative_to(folder)) for path in files if path.name != "index.json"]
        tell_sizes(folder, names)
    with pytest.raises(IndexBroken, match="build it again"):
        load_index(tmp_path, version)
    assert build(make_rows(50)) == version
    assert load_index(tmp_path, version).search is not None


def test_no_tables_can_be_told_from_a_broken_base(tmp_path, build):
    (tmp_path / "router" / build(make_rows(50)) / "twins.npy").write_bytes(b"")
    steps: list[str] = []
    other = build(make_rows(51), progress=lambda step, *_: steps.append(step))
    assert any("written whole" in step and "twins.npy" in step for step in steps)
    assert load_index(tmp_path, other).search is not None
