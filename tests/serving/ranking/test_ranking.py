"""Under every strategy: only eligible tools, at most k, twins as one; weights read whole."""

import math
from collections.abc import Callable
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexSource
from serving.ranking.overlays import BlockedTools, ReliabilityOverlay, ToolReliability
from serving.ranking.query import STRATEGIES, BadQuery, ToolQuery
from serving.ranking.strategies import find_top
from serving.router import Router
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.support.cases import cases
from tests.support.examples import examples
from tests.vectors.conftest import WordEmbedder, snapshot

POOL = [
    *SNAPSHOT_ROWS,
    snapshot("npm:disk", "Read-File", "Read one text file from disk"),
    snapshot("npm:disk", "readFile", "Read one text file from a remote disk"),
    snapshot("pypi:post", "send_email", "Send an email to somebody"),
    snapshot("pypi:post", "list_folders", "List the folders of a mail account"),
]
IDS = sorted({f"{row['server_id']}::{row['tool']}" for row in POOL})
Make = Callable[..., Router]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    place, embedder = tmp_path_factory.mktemp("router"), WordEmbedder()

    def made(source: IndexSource | None = None, **settings: object) -> Router:
        version = build_index(
            place, source or IndexSource(POOL), embedder.embed, embedder="words", **settings
        )
        return Router(load_index(place, version), embedder)

    return made


@pytest.fixture(scope="module")
def router(make: Make) -> Router:
    return make()


def named(router: Router, ask: ToolQuery) -> set[str]:
    hits = router.find(ask).hits
    return {hit.tool_id for hit in hits} | {twin for hit in hits for twin in hit.twins}


questions = st.builds(
    ToolQuery,
    query=st.sampled_from(["read a file", "send mail", "which time is it", "天气 ?", "zzz"]),
    k=st.integers(1, 12),
    exclude=st.frozensets(st.sampled_from([*IDS, "npm:gone::tool"]), max_size=5),
    allowed=st.none() | st.lists(st.sampled_from(["npm:*", "*mail*", *IDS]), max_size=3).map(tuple),
    strategy=st.sampled_from(STRATEGIES),
)


@examples(150)
@given(questions)
def test_no_strategy_leaks_a_tool_or_gives_more_than_k(router, ask):
    hits = router.find(ask).hits
    visible = named(router, ask)
    assert len(hits) <= ask.k
    assert not visible & ask.exclude
    if ask.allowed is not None:
        kept = {name for name in IDS if any(_matches(name, glob) for glob in ask.allowed)}
        assert visible <= kept
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(math.isfinite(value) for hit in hits for value in hit.why["scores"].values())


def _matches(name: str, glob: str) -> bool:
    start, star, end = glob.partition("*")
    if not star:
        return name == glob
    return name.startswith(start) and end.strip("*") in name


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_blocked_tools_are_never_answered_and_no_query_reaches_them(router, strategy):
    digest = next(row["contract_digest"] for row in POOL if row["tool"] == "get_time")
    blocked = router.renew(
        BlockedTools(frozenset([digest]), frozenset(["npm:files::read_file"])), None
    )
    visible = named(blocked, ToolQuery("tell the time, read a file", k=100, strategy=strategy))
    assert "npm:files::read_file" not in visible
    assert "pypi:clock::get_time" not in visible
    assert len(visible) == len(IDS) - 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_nothing_allowed_is_answered_with_nothing(router, strategy):
    answer = router.find(ToolQuery("read a file", allowed=(), strategy=strategy))
    assert (answer.hits, answer.suitable, answer.no_tool) == ([], 0.0, True)


def test_twins_are_one_hit_and_look_alikes_are_not(router):
    hits = {hit.tool_id: hit for hit in router.find(ToolQuery("read one text file", k=20)).hits}
    both = {"npm:files::read_file", "npm:disk::Read-File"}
    visible = both & set(hits)
    assert len(visible) == 1
    assert set(hits[visible.pop()].twins) == both - set(hits)
    # The same name but for case, and another meaning.
    assert hits["npm:disk::readFile"].twins == ()


def test_what_a_model_wants_of_server_and_tool_is_weighed_apart(router):
    tool_query = ToolQuery(server="a post office", tool="send an email to somebody", k=1)
    assert router.find(tool_query).hits[0].tool_id == "pypi:post::send_email"
    other = router.find(replace(tool_query, server="the mail server")).hits[0]
    assert other.tool_id == "pypi:mail::send_email"
    assert router.find(ToolQuery(server="clock", k=1)).hits[0].tool_id == "pypi:clock::get_time"


def test_context_tips_the_scales_lightly(router):
    plain = router.find(ToolQuery("send an email", k=3)).hits
    tipped = router.find(ToolQuery("send an email", context="the time in a city", k=3)).hits
    assert plain[0].tool_id.endswith("send_email")
    assert tipped[0].tool_id == plain[0].tool_id
    assert [hit.score for hit in tipped] != [hit.score for hit in plain]


def test_reliability_tips_equal_tools_and_not_whether_one_suits(make):
    same = [snapshot(f"npm:{name}", name, "Search the web for pages") for name in ("aa", "bb")]
    router, ask = make(IndexSource([*same, *POOL])), ToolQuery("search the web", k=2)
    plain = router.find(ask)
    first = plain.hits[0].tool_id
    known = np.full(len(router.index.tools), np.nan, np.float32)
    known[router.index.places[first]] = 0.1
    tipped = router.renew(router.blocked, ReliabilityOverlay(known, known, known, known, 0.8)).find(
        ask
    )
    assert [hit.tool_id for hit in tipped.hits] == [hit.tool_id for hit in plain.hits][::-1]
    assert tipped.hits[1].reliability == ToolReliability(0.1, 0.1, 0.1, n=0.1)
    assert tipped.hits[0].reliability is None
    assert tipped.suitable == plain.suitable


def test_requests_written_for_a_tool_help_it_to_be_found(make):
    ask = ToolQuery("am I too late for the train", k=1)
    place = next(row for row in POOL if row["tool"] == "get_time")
    expected = {place["contract_digest"]: ["Will I be late for the train to Paris?"]}
    hit = make(IndexSource(POOL, instructions=expected)).find(ask).hits[0]
    assert hit.tool_id == "pypi:clock::get_time"
    assert hit.why["scores"]["asked"] > 0


@given(st.lists(st.floats(-5, 5, width=32), min_size=1, max_size=30), st.integers(1, 40))
def test_top_is_the_head_of_the_whole_order(scores, most):
    values = np.array(scores, np.float32)
    whole = sorted(range(len(values)), key=lambda i: (-round(float(values[i]), 6), i))
    assert find_top(values, None, most).tolist() == whole[:most]


@cases("text", "a" * 1_000_000, "\ud800 file", "\x00", "🙂" * 5_000, "- - -")
def test_odd_texts_are_answered(router, text):
    for strategy in STRATEGIES:
        assert len(router.find(ToolQuery(text, k=3, strategy=strategy)).hits) == 3


def test_one_text_where_lists_are_due_is_refused(router):
    with pytest.raises(BadQuery, match="lists of tool ids"):
        router.find(ToolQuery("file", allowed="npm:*"))  # pyright: ignore[reportArgumentType]


def test_more_hits_than_candidates_come_in_the_order_of_first_sight(make):
    rows = [snapshot(f"npm:s{i}", f"tool_{i}", f"Does thing number {i}") for i in range(420)]
    hits = make(IndexSource(rows)).find(ToolQuery("thing number 7", k=400)).hits
    assert len({hit.tool_id for hit in hits}) == 400
    assert hits[0].tool_id == "npm:s7::tool_7"
    assert hits[-1].why["scores"] == {}
