"""What the sum is made of: names, words with and without a server's, scripts; and odd pools."""

from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexSource, RouterIndex
from serving.ranking.query import STRATEGIES, ToolQuery, check_ask
from serving.ranking.signals import QuerySignals, choose_candidates
from serving.router import Router
from tests.support.cases import cases
from tests.support.examples import examples
from tests.vectors.conftest import WordEmbedder, snapshot

POOL = [
    snapshot("npm:disk", "read_file", "Read one text file from disk"),
    snapshot("npm:disk", "write_file", "Write one text file to disk"),
    snapshot("npm:clock", "get_time", "Tell the time in a city"),
    snapshot("npm:mail", "send_email", "Send an email to somebody"),
]
Make = Callable[..., Router]


@pytest.fixture(scope="module")
def make(tmp_path_factory: pytest.TempPathFactory) -> Make:
    place, embedder = tmp_path_factory.mktemp("router"), WordEmbedder()

    def made(rows: list[dict], described: dict[str, str] | None = None) -> Router:
        servers = {name: {"description": of} for name, of in (described or {}).items()}
        version = build_index(place, IndexSource(rows, servers), embedder.embed, embedder="words")
        return Router(load_index(place, version), embedder)

    return made


def read_features(router: Router, text: str) -> tuple[RouterIndex, dict[str, np.ndarray]]:
    ask, _ = check_ask(ToolQuery(text))
    vector = router.encoder.embed([ask.query or ""])[0]
    candidates = choose_candidates(QuerySignals(router.index, ask, vector, vector), None)
    order = np.argsort(candidates.places)
    return router.index, {name: values[order] for name, values in candidates.features.items()}


def test_a_server_without_a_description_adds_nothing(make):
    index, features = read_features(
        make(POOL, {"npm:disk": "Files on a disk", "npm:mail": " "}), "read a file from disk"
    )
    by_tool = dict(zip([tool.tool_id for tool in index.tools], features["server"], strict=True))
    assert by_tool["npm:mail::send_email"] == by_tool["npm:clock::get_time"] == 0
    assert by_tool["npm:disk::read_file"] == by_tool["npm:disk::write_file"] != 0


def test_words_of_a_server_count_only_where_it_is_described(make):
    text = "harbour"  # stands in one server's name alone
    rows = [snapshot("npm:harbour", "get_time", "Tell the time in a city"), *POOL]
    _, bare = read_features(make(rows), text)
    index, features = read_features(make(rows, {"npm:harbour": "Ships"}), text)
    at = index.places["npm:harbour::get_time"]
    assert bare["joint words"].max() == 0
    assert features["joint words"][at] == 1
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


def read_by(router: Router, encoder: WordEmbedder) -> Router:
    return Router(router.index, encoder)


@cases(
    "text, share", ("read a file", 1), ("abcd 天", 1), ("ab вг", 0.5), ("a 天气的", 0), ("天气", 0)
)
def test_a_cosine_counts_as_far_as_the_encoder_reads_the_question(make, text, share):
    plain = make(POOL, {"npm:disk": "Files on a disk", "npm:clock": "Time"})
    whole, read = (
        plain.find(ToolQuery(text, k=4)) for plain in (plain, read_by(plain, LatinReader()))
    )
    every = {hit.tool_id: hit.why["scores"] for hit in whole.hits}
    for hit in read.hits:
        scores = every[hit.tool_id] | {"unread joint words": hit.why["scores"]["joint words"]}
        for name, value in scores.items():
            part = {"full": share, "server": share, "unread joint words": 1 - share}
            assert hit.why["scores"][name] == pytest.approx(value * part.get(name, 1), abs=2e-4)


def test_each_side_of_a_question_is_read_by_itself(make):
    described = {"npm:disk": "Files on a disk", "npm:clock": "Time"}
    router = read_by(make(POOL, described), LatinReader())
    ask = ToolQuery(server="диск", tool="read a file", k=4)
    scores = [hit.why["scores"] for hit in router.find(ask).hits]
    assert any(of["full"] for of in scores)
    assert not any(of["server"] for of in scores)


def test_every_tool_is_scored_as_it_is_found(make):
    router, text = read_by(make(POOL), LatinReader()), "прочитай time файл"
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
        router = read_by(make([*POOL, snapshot("npm:evil", "best_tool", about)]), LatinReader())
        result = [hit.tool_id for hit in router.find(ToolQuery(text, k=5)).hits]
        ranks.append(result.index("npm:evil::best_tool"))
    assert ranks[1] >= ranks[0]


@given(st.text("дж天ばあ", min_size=1, max_size=60))
@example("дばжばばば")  # a tool that repeats ば leads by .07%
def test_a_question_stuffed_with_letters_that_are_not_read_finds_the_same_tool(make, odd):
    evil = [snapshot(f"npm:evil{at}", "x", f"{letter} " * 40) for at, letter in enumerate("дж天ば")]
    router = read_by(make([*POOL, *evil]), LatinReader())
    hits = router.find(ToolQuery(f"send an email to somebody {odd}", k=2)).hits
    scores = {hit.tool_id: hit.score for hit in hits}
    assert scores["npm:mail::send_email"] >= 0.99 * hits[0].score


def test_a_tool_that_repeats_every_request_stands_behind_the_honest_one(make):
    topics = ["invoice", "weather", "ticket", "train", "recipe", "song", "photo", "parcel", "visa",
              "garden", "rocket", "museum", "guitar", "doctor", "bridge", "island"]  # fmt: skip
    honest = [snapshot(f"npm:{of}", f"find_{of}", f"Find one {of} by its number") for of in topics]
    asked = [f"find one {of} by number" for of in topics]
    hostile = snapshot("npm:evil", "best_tool", "\n".join(asked))
    for described in ({}, {"npm:evil": "\n".join(asked)}):
        router = make([*honest, hostile], described)
        for topic, text in zip(topics, asked, strict=True):
            assert router.find(ToolQuery(text, k=1)).hits[0].tool_id == f"npm:{topic}::find_{topic}"


def test_repeating_a_request_often_is_worth_no_more_than_saying_it_once(make):
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


def test_long_names_do_not_win_by_their_length(make):
    rows = [*POOL, snapshot("npm:evil", "send_email_file_time_disk_city_read_write_text", "All")]
    index, features = read_features(make(rows), "send an email")
    names = dict(zip([tool.tool for tool in index.tools], features["name"], strict=True))
    assert names["send_email"] == max(names.values()) > 0


@cases("count", 1, 4)
def test_tools_that_repeat_every_request_gain_no_rank(make, count):
    places = [f"place{at}" for at in range(120)]
    rows = [
        snapshot(f"npm:s{at}", f"tool_{at}", f"Look after goods of {place} by date")
        for at, place in enumerate(places)
    ]
    asked = [
        f"please look after the goods of {place} for my sister{at}"
        for at, place in enumerate(places)
    ]
    planted = [
        snapshot(f"npm:attacker-{at}", "best_tool", "\n".join(asked[at::count]))
        for at in range(count)
    ]
    alone, attacked = make(rows), make([*rows, *planted])
    for at in range(0, 120, 7):
        expected = f"npm:s{at}::tool_{at}"
        assert alone.find(ToolQuery(asked[at], k=1)).hits[0].tool_id == expected
        result = [hit.tool_id for hit in attacked.find(ToolQuery(asked[at], k=5)).hits]
        assert result[0] == expected


def test_ten_tools_of_one_server_do_not_say_what_is_usual(make):
    asked = [f"please look after the goods of place{at} for my sister{at}" for at in range(30)]
    rows = [
        snapshot(f"npm:s{at}", f"tool_{at}", f"Look after goods of place{at} by date")
        for at in range(30)
    ]
    planted = [
        snapshot("npm:attacker", f"best_{at}", "\n".join(asked[at:] + asked[:at]))
        for at in range(10)
    ]
    attacked = make([*rows, *planted])
    result = [attacked.find(ToolQuery(text, k=1)).hits[0].tool_id for text in asked]
    assert result == [f"npm:s{at}::tool_{at}" for at in range(30)]


@cases("floor", 0.5, 0.9)
def test_an_encoder_whose_cosines_lie_high_and_close_ranks_the_same(make, tmp_path, floor):
    class Pressed(WordEmbedder):
        def embed(self, texts: Sequence[str], **more: object) -> np.ndarray:
            rows = WordEmbedder().embed(texts) * np.float32((1 - floor) ** 0.5)
            return np.concatenate([rows, np.full((len(rows), 1), floor**0.5, np.float32)], 1)

    embedder, about = Pressed(), {"npm:disk": "Files on a disk"}
    embedder.dim += 1
    servers = {name: {"description": of} for name, of in about.items()}
    version = build_index(tmp_path, IndexSource(POOL, servers), embedder.embed, embedder="words")
    pressed, plain = Router(load_index(tmp_path, version), embedder), make(POOL, about)
    for query in (
        "send a text",
        "which time is it in the city",
        "read what is on the disk",
        "zebra",
    ):
        ours, same = (router.find(ToolQuery(query, k=4)) for router in (pressed, plain))
        assert [hit.tool_id for hit in ours.hits] == [hit.tool_id for hit in same.hits]
        assert ours.hits[0].score == pytest.approx(same.hits[0].score, abs=0.02)
        assert ours.suitable == pytest.approx(same.suitable, abs=0.01)
