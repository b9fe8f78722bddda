"""What the sum is made of, and that no strategy answers with more than it may."""

import math
from collections.abc import Callable, Sequence
from dataclasses import replace
from fnmatch import fnmatchcase
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexSource, RouterIndex
from serving.ranking.overlays import BlockedTools, ReliabilityOverlay, ToolReliability
from serving.ranking.query import STRATEGIES, BadQuery, ToolQuery, check_ask
from serving.ranking.signals import QuerySignals, choose_candidates
from serving.ranking.strategies import find_top
from serving.router import Router
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.support.cases import cases
from tests.support.examples import examples
from tests.vectors.conftest import WordEmbedder, snapshot

POOL = [
    snapshot("npm:disk", "read_file", "Read one text file from disk"),
    snapshot("npm:disk", "write_file", "Write one text file to disk"),
    snapshot("npm:clock", "get_time", "Tell the time in a city"),
    snapshot("npm:mail", "send_email", "Send an email to somebody"),
]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Callable[..., Router]:
    place, embedder = tmp_path_factory.mktemp("router"), WordEmbedder()

    def make(rows: list[dict], described: dict[str, str] | None = None, **facts: Any) -> Router:
        servers = {name: {"description": of} for name, of in (described or {}).items()}
        source = IndexSource(rows, servers, **facts)
        version = build_index(place, source, embedder.embed, embedder="words")
        return Router(load_index(place, version), embedder)

    return make


def read_features(router: Router, text: str) -> tuple[RouterIndex, dict[str, np.ndarray]]:
    ask, _ = check_ask(ToolQuery(text))
    vector = router.encoder.embed([ask.query or ""])[0]
    candidates = choose_candidates(QuerySignals(router.index, ask, vector, vector), None)
    order = np.argsort(candidates.places)
    return router.index, {name: values[order] for name, values in candidates.features.items()}


def test_a_server_and_its_words_count_only_where_it_is_described(make):
    router = make(POOL, {"npm:disk": "Files on a disk", "npm:mail": " "})
    index, features = read_features(router, "read a file from disk")
    by_tool = dict(zip([tool.tool_id for tool in index.tools], features["server"], strict=True))
    assert by_tool["npm:mail::send_email"] == by_tool["npm:clock::get_time"] == 0
    assert by_tool["npm:disk::read_file"] == by_tool["npm:disk::write_file"] != 0
    text = "harbour"  # stands in one server's name alone
    rows = [snapshot("npm:harbour", "get_time", "Tell the time in a city"), *POOL]
    _, bare = read_features(make(rows), text)
    index, features = read_features(make(rows, {"npm:harbour": "Ships"}), text)
    at = index.places["npm:harbour::get_time"]
    assert (bare["joint words"].max(), features["joint words"][at]) == (0, 1)
    assert (np.delete(features["joint words"], at) == 0).all()


@given(st.text(max_size=60))
def test_every_feature_is_a_number_and_every_share_within_its_bounds(make, text):
    _, features = read_features(make(POOL, {"npm:disk": "Files"}), f"read {text}")
    assert all(np.isfinite(values).all() for values in features.values())
    for name in ("joint words", "coverage", "about words", "name"):
        assert ((features[name] >= 0) & (features[name] <= 1 + 1e-6)).all()


class LatinReader(WordEmbedder):
    """Reads Latin letters alone, as MiniLM."""

    def measure_reading(self, texts: Sequence[str]) -> np.ndarray:
        letters = [[char for char in text if char.isalpha()] for text in texts]
        shares = [sum(map(str.isascii, of)) / len(of) if of else 1.0 for of in letters]
        return np.array(shares, np.float32)


@cases(
    "text, share", ("read a file", 1), ("abcd 天", 1), ("ab вг", 0.5), ("a 天气的", 0), ("天气", 0)
)
def test_a_cosine_counts_as_far_as_the_encoder_reads_the_question(make, text, share):
    plain = make(POOL, {"npm:disk": "Files on a disk", "npm:clock": "Time"})
    ask = ToolQuery(text, k=4)
    whole, read = plain.find(ask), Router(plain.index, LatinReader()).find(ask)
    every = {hit.tool_id: hit.why["scores"] for hit in whole.hits}
    for hit in read.hits:
        scores = every[hit.tool_id] | {"unread joint words": hit.why["scores"]["joint words"]}
        for name, value in scores.items():
            part = {"full": share, "server": share, "unread joint words": 1 - share}
            assert hit.why["scores"][name] == pytest.approx(value * part.get(name, 1), abs=2e-4)


def test_each_side_of_a_question_is_read_by_itself_and_every_tool_scored_as_found(make):
    plain = make(POOL, {"npm:disk": "Files on a disk", "npm:clock": "Time"})
    ask = ToolQuery(server="диск", tool="read a file", k=4)
    scores = [hit.why["scores"] for hit in Router(plain.index, LatinReader()).find(ask).hits]
    assert any(of["full"] for of in scores)
    assert not any(of["server"] for of in scores)
    router, text = Router(make(POOL).index, LatinReader()), "прочитай time файл"
    [scores] = router.score_tools([text])
    for hit in router.find(ToolQuery(text, k=4)).hits:
        assert scores[router.index.places[hit.tool_id]] == pytest.approx(hit.score, abs=1e-4)


@examples(40)
@given(
    st.sampled_from(["read one text file from disk", "прочитай файл file", "天气 time in a city"]),
    st.text("дж天ばあ 🙂\u0301", min_size=1, max_size=200),
    st.booleans(),
)
def test_a_description_stuffed_with_unread_letters_gains_no_rank(make, text, odd, before):
    ranks = []
    for stuffing in ("", f" {odd} "):
        about = f"{stuffing}{text}" if before else f"{text}{stuffing}"
        rows = [*POOL, snapshot("npm:evil", "best_tool", about)]
        hits = Router(make(rows).index, LatinReader()).find(ToolQuery(text, k=5)).hits
        ranks.append([hit.tool_id for hit in hits].index("npm:evil::best_tool"))
    assert ranks[1] >= ranks[0]


@given(st.text("дж天ばあ", min_size=1, max_size=60))
@example("дばжばばば")  # a tool that repeats ば leads by .07%
def test_a_question_stuffed_with_letters_that_are_not_read_finds_the_same_tool(make, odd):
    evil = [snapshot(f"npm:evil{at}", "x", f"{letter} " * 40) for at, letter in enumerate("дж天ば")]
    router = Router(make([*POOL, *evil]).index, LatinReader())
    hits = router.find(ToolQuery(f"send an email to somebody {odd}", k=2)).hits
    scores = {hit.tool_id: hit.score for hit in hits}
    assert scores["npm:mail::send_email"] >= 0.99 * hits[0].score


def test_a_tool_that_repeats_requests_gains_nothing_and_stands_behind_the_honest_one(make):
    topics = ["invoice", "weather", "ticket", "train", "recipe", "song", "photo", "parcel", "visa",
              "garden", "rocket", "museum", "guitar", "doctor", "bridge", "island"]  # fmt: skip
    honest = [snapshot(f"npm:{of}", f"find_{of}", f"Find one {of} by its number") for of in topics]
    asked = [f"find one {of} by number" for of in topics]
    hostile = snapshot("npm:evil", "best_tool", "\n".join(asked))
    for described in ({}, {"npm:evil": "\n".join(asked)}):
        router = make([*honest, hostile], described)
        for topic, text in zip(topics, asked, strict=True):
            assert router.find(ToolQuery(text, k=1)).hits[0].tool_id == f"npm:{topic}::find_{topic}"
    text = "send an email to somebody"
    ranks = []
    for times in (1, 40):
        evil = snapshot("npm:evil", "best_tool", f"{text}. " * times)
        _, features = read_features(make([*POOL, evil]), text)
        ranks.append(features["coverage"][1])  # after npm:clock, before npm:mail and npm:disk
    assert ranks[1] <= ranks[0] * 1.6


@cases(
    "rows",
    POOL[:1],
    [snapshot("npm:one", f"tool_{at}", f"Does {at}") for at in range(5)],
    [snapshot(f"npm:s{at}", f"name_{at}", "Send an email to somebody") for at in range(50)],
    [snapshot("npm:odd", name, "Mail") for name in ("🙂", "__", "天气", "ชื่อ", "1")],
    [snapshot(f"npm:s{at}", f"tool_{at}", "") for at in range(4)],
    ids=["one tool", "one server", "fifty names", "names without words", "no descriptions"],
)
def test_odd_pools_are_answered(make, rows):
    router = make(rows)
    for text in ("send an email", "送信", "x " * 10_000, "tool 3"):
        for strategy in STRATEGIES:
            answer = router.find(ToolQuery(text, k=3, strategy=strategy))
            assert len(answer.hits) == min(3, len(rows))
            assert 0 <= answer.suitable <= 1


def test_neither_long_names_nor_ten_tools_of_one_server_win(make):
    rows = [*POOL, snapshot("npm:evil", "send_email_file_time_disk_city_read_write_text", "All")]
    index, features = read_features(make(rows), "send an email")
    names = dict(zip([tool.tool for tool in index.tools], features["name"], strict=True))
    assert names["send_email"] == max(names.values()) > 0
    rows, asked = make_goods(30)
    planted = [
        snapshot("npm:attacker", f"best_{at}", "\n".join(asked[at:] + asked[:at]))
        for at in range(10)
    ]
    attacked = make([*rows, *planted])
    result = [attacked.find(ToolQuery(text, k=1)).hits[0].tool_id for text in asked]
    assert result == [f"npm:s{at}::tool_{at}" for at in range(30)]


def make_goods(count: int) -> tuple[list[dict], list[str]]:
    """(rows of tools, a request of each)."""
    rows = [
        snapshot(f"npm:s{at}", f"tool_{at}", f"Look after goods of place{at} by date")
        for at in range(count)
    ]
    asked = "please look after the goods of place{0} for my sister{0}"
    return rows, [asked.format(at) for at in range(count)]


@cases("count", 1, 4)
def test_tools_that_repeat_every_request_gain_no_rank(make, count):
    rows, asked = make_goods(120)
    planted = [
        snapshot(f"npm:attacker-{at}", "best_tool", "\n".join(asked[at::count]))
        for at in range(count)
    ]
    alone, attacked = make(rows), make([*rows, *planted])
    for at in range(0, 120, 7):
        for router in (alone, attacked):
            [hit] = router.find(ToolQuery(asked[at], k=1)).hits
            assert hit.tool_id == f"npm:s{at}::tool_{at}"


@cases("floor", 0.5, 0.9)
def test_an_encoder_whose_cosines_lie_high_and_close_ranks_the_same(make, tmp_path, floor):
    class Pressed(WordEmbedder):
        def embed(self, texts: Sequence[str], **more: object) -> np.ndarray:
            rows = WordEmbedder().embed(texts) * np.float32((1 - floor) ** 0.5)
            return np.concatenate([rows, np.full((len(rows), 1), floor**0.5, np.float32)], 1)

    embedder, about = Pressed(), {"npm:disk": "Files on a disk"}
    embedder.dim += 1
    source = IndexSource(POOL, {"npm:disk": {"description": about["npm:disk"]}})
    version = build_index(tmp_path, source, embedder.embed, embedder="words")
    pressed, plain = Router(load_index(tmp_path, version), embedder), make(POOL, about)
    texts = ("send a text", "which time is it in the city", "read what is on the disk", "zebra")
    for query in texts:
        ours, same = (router.find(ToolQuery(query, k=4)) for router in (pressed, plain))
        assert [hit.tool_id for hit in ours.hits] == [hit.tool_id for hit in same.hits]
        assert ours.hits[0].score == pytest.approx(same.hits[0].score, abs=0.02)
        assert ours.suitable == pytest.approx(same.suitable, abs=0.01)


MARKET = [
    *SNAPSHOT_ROWS,
    snapshot("npm:disk", "Read-File", "Read one text file from disk"),
    snapshot("npm:disk", "readFile", "Read one text file from a remote disk"),
    snapshot("pypi:post", "send_email", "Send an email to somebody"),
    snapshot("pypi:post", "list_folders", "List the folders of a mail account"),
]
IDS = sorted({f"{row['server_id']}::{row['tool']}" for row in MARKET})


@pytest.fixture(scope="module")
def router(make: Any) -> Router:
    return make(MARKET)


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
        assert visible <= {name for name in IDS for glob in ask.allowed if fnmatchcase(name, glob)}
    assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
    assert all(math.isfinite(value) for hit in hits for value in hit.why["scores"].values())


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_blocked_tools_are_never_answered_and_where_nothing_is_allowed_nothing_is(router, strategy):
    digest = next(row["contract_digest"] for row in MARKET if row["tool"] == "get_time")
    held = BlockedTools(frozenset([digest]), frozenset(["npm:files::read_file"]))
    blocked = router.renew(held, None)
    visible = named(blocked, ToolQuery("tell the time, read a file", k=100, strategy=strategy))
    assert "npm:files::read_file" not in visible
    assert "pypi:clock::get_time" not in visible
    assert len(visible) == len(IDS) - 2
    answer = router.find(ToolQuery("read a file", allowed=(), strategy=strategy))
    assert (answer.hits, answer.suitable, answer.no_tool) == ([], 0.0, True)


def test_twins_are_one_hit_and_look_alikes_are_not(router):
    hits = {hit.tool_id: hit for hit in router.find(ToolQuery("read one text file", k=20)).hits}
    both = {"npm:files::read_file", "npm:disk::Read-File"}
    visible = both & set(hits)
    assert (len(visible), set(hits[visible.pop()].twins)) == (1, both - set(hits))
    # The same name but for case, and another meaning.
    assert hits["npm:disk::readFile"].twins == ()


def test_server_and_tool_are_weighed_apart_and_context_tips_the_scales_lightly(router):
    tool_query = ToolQuery(server="a post office", tool="send an email to somebody", k=1)
    assert router.find(tool_query).hits[0].tool_id == "pypi:post::send_email"
    other = router.find(replace(tool_query, server="the mail server")).hits[0]
    assert other.tool_id == "pypi:mail::send_email"
    assert router.find(ToolQuery(server="clock", k=1)).hits[0].tool_id == "pypi:clock::get_time"
    plain = router.find(ToolQuery("send an email", k=3)).hits
    tipped = router.find(ToolQuery("send an email", context="the time in a city", k=3)).hits
    assert plain[0].tool_id.endswith("send_email")
    assert tipped[0].tool_id == plain[0].tool_id
    assert [hit.score for hit in tipped] != [hit.score for hit in plain]


def test_reliability_tips_equal_tools_and_not_whether_one_suits(make):
    same = [snapshot(f"npm:{name}", name, "Search the web for pages") for name in ("aa", "bb")]
    router, ask = make([*same, *MARKET]), ToolQuery("search the web", k=2)
    plain = router.find(ask)
    first = plain.hits[0].tool_id
    known = np.full(len(router.index.tools), np.nan, np.float32)
    known[router.index.places[first]] = 0.1
    overlay = ReliabilityOverlay(known, known, known, known, 0.8)
    tipped = router.renew(router.blocked, overlay).find(ask)
    assert [hit.tool_id for hit in tipped.hits] == [hit.tool_id for hit in plain.hits][::-1]
    assert tipped.hits[1].reliability == ToolReliability(0.1, 0.1, 0.1, n=0.1)
    assert (tipped.hits[0].reliability, tipped.suitable) == (None, plain.suitable)


def test_requests_written_for_a_tool_help_it_to_be_found(make):
    ask = ToolQuery("am I too late for the train", k=1)
    place = next(row for row in MARKET if row["tool"] == "get_time")
    expected = {place["contract_digest"]: ["Will I be late for the train to Paris?"]}
    hit = make(MARKET, instructions=expected).find(ask).hits[0]
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
    hits = make(rows).find(ToolQuery("thing number 7", k=400)).hits
    assert (len({hit.tool_id for hit in hits}), hits[0].tool_id) == (400, "npm:s7::tool_7")
    assert hits[-1].why["scores"] == {}
