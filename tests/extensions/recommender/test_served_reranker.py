"""An index with a trained reranker: the order, the scores, and a file that is not whole."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import polars as pl
import pytest

from serving.index.build import build_index
from serving.index.folder import load_index
from serving.index.model import IndexBroken, IndexSource
from serving.ranking.overlays import BlockedTools
from serving.ranking.query import ToolQuery
from serving.router import Router
from tests.support.reranked import ROWS, draw_calls, train
from tests.vectors.conftest import WordEmbedder


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, str, str]:
    """(place, version with the reranker, version without)."""
    home, embedder = tmp_path_factory.mktemp("home"), WordEmbedder()
    card = train(home, draw_calls(200), embedder)
    file = home / "models" / card["name"] / "reranker.npz"
    versions = [
        build_index(home, IndexSource(ROWS), embedder.embed, embedder="words", reranker=one)
        for one in (file, None)
    ]
    return home, versions[0], versions[1]


def open_version(place: Path, version: str) -> Router:
    return Router(load_index(place, version), WordEmbedder())


def test_of_two_tools_that_say_the_same_the_one_that_works_comes_first(
    place: tuple[Path, str, str],
) -> None:
    home, ranked, plain = place
    assert ranked != plain
    router = open_version(home, ranked)
    for job in ("weather", "train", "mail"):
        hits = router.find(ToolQuery(f"tell the {job} of a city", k=10)).hits
        assert hits[0].tool_id == f"npm:good::good_{job}"
        assert [hit.score for hit in hits] == sorted((hit.score for hit in hits), reverse=True)
        assert 0 < hits[0].why["scores"]["success"] == hits[0].score <= 1
    before = open_version(home, plain).find(ToolQuery("tell the mail of a city", k=10)).hits
    assert before[0].tool_id == "npm:bad::bad_mail"
    assert {hit.tool_id for hit in before} == {hit.tool_id for hit in hits}


def test_an_index_with_a_reranker_of_an_earlier_version_is_served_without_it(
    place: tuple[Path, str, str], tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    home, ranked, plain = place
    index = replace(load_index(home, ranked), folder=tmp_path)
    with np.load(load_index(home, ranked).folder / "reranker.npz") as held:
        arrays = {name: held[name] for name in held.files}
    about = json.loads(arrays["about"].tobytes()) | {"format": 1}
    arrays["about"] = np.frombuffer(json.dumps(about).encode(), np.uint8)
    np.savez(tmp_path / "reranker.npz", **arrays)
    ask = ToolQuery("tell the mail of a city", k=10)
    served = Router(index, WordEmbedder()).find(ask).hits
    assert [hit.tool_id for hit in served] == [
        hit.tool_id for hit in open_version(home, plain).find(ask).hits
    ]
    assert "format 1, read is 3; fit it again" in caplog.text
    (tmp_path / "reranker.npz").unlink()
    assert Router(index, WordEmbedder()).find(ask).hits == served


def test_a_client_for_whom_other_tools_work_is_shown_those_first(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    own = draw_calls(200, seed=1).with_columns(client=pl.lit("shell 2"), success=~pl.col("success"))
    card = train(tmp_path, pl.concat([draw_calls(400), own]), embedder)
    file = tmp_path / "models" / card["name"] / "reranker.npz"
    source = IndexSource(ROWS)
    router = open_version(
        tmp_path,
        build_index(tmp_path, source, embedder.embed, embedder="words", reranker=file),
    )

    def find_first(client: str | None) -> str:
        return (
            router.find(ToolQuery("tell the mail of a city", k=10, client=client)).hits[0].tool_id
        )

    assert find_first("token:ann shell 2") == "npm:bad::bad_mail"
    assert find_first("token:bo shell 2") == find_first(None) == "npm:good::good_mail"


def test_the_other_strategies_stay_as_they_are_and_what_is_held_is_not_shown(
    place: tuple[Path, str, str],
) -> None:
    home, ranked, plain = place
    routers = [open_version(home, version) for version in (ranked, plain)]
    ask = ToolQuery("tell the mail of a city", k=10, strategy="bm25")
    assert len({tuple(hit.tool_id for hit in router.find(ask).hits) for router in routers}) == 1
    held = routers[0].renew(BlockedTools(tools=frozenset({"npm:good::good_mail"})), None)
    assert held.ranker is routers[0].ranker
    hits = held.find(ToolQuery("tell the mail of a city", k=10)).hits
    assert "npm:good::good_mail" not in {hit.tool_id for hit in hits}


def test_a_reranker_that_cannot_be_read_is_a_broken_index(tmp_path: Path) -> None:
    embedder = WordEmbedder()
    card = train(tmp_path, draw_calls(60), WordEmbedder("other words"))
    file = tmp_path / "models" / card["name"] / "reranker.npz"
    version = build_index(
        tmp_path, IndexSource(ROWS), embedder.embed, embedder="words", reranker=file
    )
    with pytest.raises(IndexBroken, match="other words"):
        open_version(tmp_path, version)
    held = tmp_path / "router" / version / "reranker.npz"
    held.write_bytes(held.read_bytes()[:-40])
    with pytest.raises(IndexBroken, match=r"reranker\.npz has"):
        open_version(tmp_path, version)
