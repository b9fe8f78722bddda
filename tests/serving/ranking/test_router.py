"""The router answers from the served index, says why, and imports no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from serving.index.build import make_router_index
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexBroken, IndexSource
from serving.ranking.query import STRATEGIES, BadQuery, ToolQuery
from serving.router import Router, ServedRouter
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.vectors.conftest import WordEmbedder
from warehouse.storage.lance import LanceStore


@pytest.fixture
def router(home: Path, embedder: WordEmbedder) -> Router:
    return Router(load_index(home, read_served_version(home)), embedder)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_best_tool_comes_first_with_the_reason(router: Router, strategy: str) -> None:
    answer = router.find(ToolQuery("send an email to somebody", k=2, strategy=strategy))
    hits = answer.hits
    assert hits[0].tool_id == "pypi:mail::send_email"
    assert {"send", "email"} <= set(hits[0].why["words"])
    assert hits[0].score >= hits[1].score
    assert hits[0].description.startswith("Send")
    assert (answer.strategy, answer.index) == (strategy, router.index.version)


def test_k_beyond_the_pool_gives_the_whole_pool(router: Router) -> None:
    assert len(router.find(ToolQuery("file", k=1_000)).hits) == 4


@pytest.mark.parametrize("query", ["", "   \n", None])
def test_an_empty_query_is_refused(router: Router, query: str | None) -> None:
    with pytest.raises(BadQuery, match="empty"):
        router.find(ToolQuery(query))


@pytest.mark.parametrize("k", [0, -1, 10_000])
def test_k_out_of_range_is_refused(router: Router, k: int) -> None:
    with pytest.raises(BadQuery, match=f"k is {k}; expected 1 to 1,000"):
        router.find(ToolQuery("file", k=k))


def test_an_unknown_strategy_is_refused(router: Router) -> None:
    with pytest.raises(BadQuery, match="'best'; expected one of ours"):
        router.find(ToolQuery("file", strategy="best"))


def test_a_megabyte_of_query_is_read_to_its_bound(router: Router) -> None:
    answer = router.find(ToolQuery("read a file " * 90_000, k=1))
    assert answer.hits[0].tool_id == "npm:files::read_file"
    assert answer.notes == ("query was read to 4,000 of 1,080,000 characters",)


def test_a_batch_gives_what_single_queries_give(router: Router) -> None:
    asks = [
        ToolQuery("tell me the time", k=3),
        ToolQuery("write a file", strategy="rrf"),
        ToolQuery("天气"),
    ]
    batch = router.find_many(asks)
    assert [a.hits for a in batch] == [router.find(ask).hits for ask in asks]
    assert router.find_many([]) == []


def test_an_index_of_another_embedder_is_refused(home: Path) -> None:
    with pytest.raises(IndexBroken, match=r"made by words, the encoder is other.*toolmill index"):
        Router(load_index(home, read_served_version(home)), WordEmbedder("other"))


def test_a_served_router_follows_the_pointer(tmp_path: Path) -> None:
    store = LanceStore(tmp_path / "lance")
    first = make_router_index(tmp_path, IndexSource(SNAPSHOT_ROWS[:3]), store, "base", "r1")
    served = ServedRouter(tmp_path)
    seen: list[str] = []
    served.on_change(seen.append)
    assert served.current().index.version == first
    assert served.current() is served.current()
    second = make_router_index(tmp_path, IndexSource(SNAPSHOT_ROWS), store, "base", "r2")
    assert served.settle(30).index.version == second
    assert seen == [second]


def test_a_search_imports_neither_torch_nor_dagster(tmp_path: Path) -> None:
    make_router_index(
        tmp_path, IndexSource(SNAPSHOT_ROWS), LanceStore(tmp_path / "lance"), "base", "r1"
    )
    heavy = ("torch", "dagster", "transformers", "lancedb", "polars", "pandas", "pyarrow")
    program = (
        "import sys, pathlib; from serving.router import ToolQuery, open_router;"
        f"open_router(pathlib.Path({str(tmp_path)!r})).find(ToolQuery('send mail', k=1));"
        f"print([n for n in {heavy!r} if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr


def test_a_question_may_be_asked_by_its_parts(router: Router) -> None:
    whole = router.find(
        ToolQuery("send an email", k=2, exclude=frozenset({"npm:files::read_file"}))
    )
    parts = router.find(query="send an email", k=2, exclude=["npm:files::read_file"])
    assert parts.hits == whole.hits
    assert router.find(ToolQuery("send an email"), k=1).hits == whole.hits[:1]
    with pytest.raises(
        BadQuery, match="a question has no 'limit'; expected allowed, client, context"
    ):
        router.find(query="send an email", limit=3)
