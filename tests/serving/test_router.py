"""The router answers from the served index, says why, and imports no torch."""

import subprocess
import sys
from pathlib import Path

import pytest

from serving.byhand import search_command
from serving.index import IndexBroken, load_index, make_router_index, point_to, served_version
from serving.router import BadQuery, Router, ServedRouter
from tests.serving.conftest import WORLD, build
from tests.vectors.conftest import WordEmbedder
from warehouse.lance import LanceStore


@pytest.fixture
def router(home: Path, embedder: WordEmbedder) -> Router:
    return Router(load_index(home, served_version(home)), embedder)


def test_the_best_tool_comes_first_with_the_reason(router: Router) -> None:
    hits = router.search("send an email", 2)
    assert hits[0].tool_id == "pypi:mail::send_email"
    assert set(hits[0].why["words"]) == {"send", "email"}
    assert hits[0].score > hits[1].score
    assert hits[0].description.startswith("Send")


def test_k_beyond_the_pool_gives_the_whole_pool(router: Router) -> None:
    assert len(router.search("file", 10_000)) == 4


@pytest.mark.parametrize("query", ["", "   \n"])
def test_an_empty_query_is_refused(router: Router, query: str) -> None:
    with pytest.raises(BadQuery, match="empty"):
        router.search(query)


def test_k_below_one_is_refused(router: Router) -> None:
    with pytest.raises(BadQuery, match="k is 0"):
        router.search("file", 0)


def test_a_megabyte_of_query_is_answered(router: Router) -> None:
    assert router.search("read a file " * 90_000, 1)[0].tool_id == "npm:files::read_file"


def test_a_batch_gives_what_single_queries_give(router: Router) -> None:
    queries = ["tell me the time", "write a file", "天气"]
    assert router.search_many(queries, 3) == [router.search(query, 3) for query in queries]


def test_an_index_of_another_embedder_is_refused(home: Path) -> None:
    with pytest.raises(IndexBroken, match="materialize router_index again"):
        Router(load_index(home, served_version(home)), WordEmbedder("other"))


def test_a_served_router_follows_the_pointer(tmp_path: Path) -> None:
    store = LanceStore(tmp_path / "lance")
    first = make_router_index(tmp_path, WORLD[:3], store, "base", "r1")
    served = ServedRouter(tmp_path)
    assert served.current().index.version == first
    assert served.current() is served.current()
    second = make_router_index(tmp_path, WORLD, store, "base", "r2")
    assert served.current().index.version == second


def test_search_by_hand_answers_with_plain_data(tmp_path: Path) -> None:
    make_router_index(tmp_path, WORLD, LanceStore(tmp_path / "lance"), "base", "r1")
    found = search_command(tmp_path, "which hour is it in Paris?", 2)
    assert found["hits"][0]["tool_id"] == "pypi:clock::get_time"
    assert found["tools"] == 4
    assert found["release"] == "r1"
    assert len(found["hits"]) == 2


def test_pointing_at_the_served_version_again_changes_nothing(
    home: Path, embedder: WordEmbedder
) -> None:
    before = (home / "router" / "HEAD.json").read_bytes()
    point_to(home, build(home, WORLD, embedder))
    assert (home / "router" / "HEAD.json").read_bytes() == before


def test_a_search_imports_neither_torch_nor_dagster(tmp_path: Path) -> None:
    make_router_index(tmp_path, WORLD, LanceStore(tmp_path / "lance"), "base", "r1")
    program = (
        "import sys, pathlib; from serving.byhand import search_command;"
        f"search_command(pathlib.Path({str(tmp_path)!r}), 'send mail', 1);"
        "print([n for n in ('torch', 'dagster', 'transformers', 'lancedb') if n in sys.modules])"
    )
    run = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True)
    assert run.stdout.strip() == "[]", run.stderr
