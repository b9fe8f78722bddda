"""The router answers from the served index, says why, and imports no torch."""

import json
import logging
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.outcomes.reliability.table import write_overlay
from serving.index.build import make_router_index
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexBroken, IndexMissing, IndexSource
from serving.ranking.overlays import (
    OverlayBroken,
    ReliabilityOverlay,
    ToolReliability,
    read_overlay,
    write_blocklist,
)
from serving.ranking.query import STRATEGIES, BadQuery, ToolQuery
from serving.router import Router, ServedRouter, open_router
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.support.cases import cases
from tests.vectors.conftest import WordEmbedder, snapshot
from warehouse.storage.lance import LanceStore


@pytest.fixture
def router(home: Path, embedder: WordEmbedder) -> Router:
    return Router(load_index(home, read_served_version(home)), embedder)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_the_best_tool_comes_first_with_the_reason(router, strategy):
    answer = router.find(ToolQuery("send an email to somebody", k=2, strategy=strategy))
    hits = answer.hits
    assert hits[0].tool_id == "pypi:mail::send_email"
    assert {"send", "email"} <= set(hits[0].why["words"])
    assert hits[0].score >= hits[1].score
    assert hits[0].description.startswith("Send")
    assert (answer.strategy, answer.index) == (strategy, router.index.version)


def test_k_beyond_the_pool_gives_the_whole_pool(router):
    assert len(router.find(ToolQuery("file", k=1_000)).hits) == 4


@cases(
    "ask, message",
    *((ToolQuery(query), "empty") for query in ("", "   \n", None)),
    *((ToolQuery("file", k=k), f"k is {k}; expected 1 to 1,000") for k in (0, -1, 10_000)),
    (ToolQuery("file", strategy="best"), "'best'; expected one of ours"),
)
def test_a_bad_question_is_refused(router, ask, message):
    with pytest.raises(BadQuery, match=message):
        router.find(ask)


def test_a_batch_gives_what_single_queries_give(router):
    asks = [
        ToolQuery("tell me the time", k=3),
        ToolQuery("write a file", strategy="rrf"),
        ToolQuery("天气"),
    ]
    assert [a.hits for a in router.find_many(asks)] == [router.find(ask).hits for ask in asks]
    assert router.find_many([]) == []


def test_an_index_of_another_embedder_is_refused(home):
    with pytest.raises(IndexBroken, match=r"made by words, the encoder is other.*toolmill index"):
        Router(load_index(home, read_served_version(home)), WordEmbedder("other"))


def test_a_served_router_follows_the_pointer(tmp_path):
    store = LanceStore(tmp_path / "lance")
    first = make_router_index(tmp_path, IndexSource(SNAPSHOT_ROWS[:3]), store, "base", "r1")
    served = ServedRouter(tmp_path)
    observed: list[str] = []
    served.on_change(observed.append)
    assert served.current().index.version == first
    assert served.current() is served.current()
    second = make_router_index(tmp_path, IndexSource(SNAPSHOT_ROWS), store, "base", "r2")
    assert served.settle(30).index.version == second
    assert observed == [second]


def test_a_search_imports_neither_torch_nor_dagster(tmp_path):
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


def test_a_question_may_be_asked_by_its_parts(router):
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


SMALL, GROWN = (
    SNAPSHOT_ROWS[:3],
    [*SNAPSHOT_ROWS, snapshot("pypi:mail", "read_email", "Read the newest email")],
)


def publish(place: Path, rows: list[dict], release: str = "r1") -> str:
    return make_router_index(place, IndexSource(rows), LanceStore(place / "lance"), "base", release)


def test_a_broken_new_version_keeps_the_old_and_is_told_of_once(tmp_path, caplog):
    old = publish(tmp_path, SMALL)
    served = ServedRouter(tmp_path)
    served.current()
    (tmp_path / "router" / publish(tmp_path, GROWN) / "view-full.npy").write_bytes(b"half")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert served.settle(30).index.version == old
    assert [record.getMessage().count("view-full.npy") for record in caplog.records] == [1]


def test_what_is_held_takes_effect_without_a_new_version(tmp_path):
    publish(tmp_path, SNAPSHOT_ROWS)
    served = ServedRouter(tmp_path)
    assert served.current().find(ToolQuery("send an email", k=1)).hits[0].tool == "send_email"
    path = tmp_path / "router" / "BLOCKED.json"
    path.write_text(json.dumps({"digests": [SNAPSHOT_ROWS[4]["contract_digest"]], "tools": []}))
    served.settle(30)
    assert served.current().find(ToolQuery("send an email", k=1)).hits[0].tool != "send_email"
    path.write_text("{half")
    served.settle(30)
    # What cannot be read must not set free what was held.
    assert served.current().find(ToolQuery("send an email", k=1)).hits[0].tool != "send_email"


def test_an_unreadable_list_of_what_is_held_opens_nothing(tmp_path):
    publish(tmp_path, SMALL)
    (tmp_path / "router" / "BLOCKED.json").write_text('["x"]')
    with pytest.raises(IndexBroken, match=r"BLOCKED\.json"):
        open_router(tmp_path)


def test_nothing_published_yet_is_an_error_and_then_an_answer(tmp_path):
    served = ServedRouter(tmp_path)
    with pytest.raises(IndexMissing, match="toolmill index"):
        served.current()
    version = publish(tmp_path, SMALL)
    assert served.current().index.version == version


READ, MAIL = SNAPSHOT_ROWS[0], SNAPSHOT_ROWS[4]


def row(snapshot: dict[str, Any], mean: float = 0.5, **more: Any) -> dict[str, Any]:
    named = {name: snapshot[name] for name in ("server_id", "tool", "contract_digest")}
    return {**named, "mean": mean, "low": 0.2, "high": 0.9, "n": 3.0, **more}


def read(home: Path) -> ReliabilityOverlay | None:
    return read_overlay(home, load_index(home, read_served_version(home)))


def test_rows_stand_at_their_tools_under_their_contract(home):
    old = row(MAIL, contract_digest="c1:old")
    gone = row(MAIL, tool="gone")
    assert write_overlay(home, [row(READ), old, gone], 0.75, 1.0) == 3
    result = read(home)
    assert result is not None
    index = load_index(home, read_served_version(home))
    place = index.places["npm:files::read_file"]
    assert result.tell(place) == ToolReliability(0.5, 0.2, 0.9, 3.0)
    assert result.lift[place] == np.float32(-0.25)
    others = [at for at in range(len(index.tools)) if at != place]
    assert [result.tell(at) for at in others] == [None] * len(others)
    assert not result.lift[others].any()


def test_without_an_overlay_nothing_is_known(home):
    assert write_overlay(home, [], 0.5, 1.0) == 0
    assert read(home) is None


@cases(
    "text",
    "{half",
    "[]",
    '{"format": 2, "overall": 0.5, "rows": []}',
    '{"format": 1, "overall": 7, "rows": []}',
    '{"format": 1, "overall": 0.5, "rows": [["a", "b", 2, 0, 1, 1]]}',
    '{"format": 1, "overall": 0.5, "rows": [["a", "b", NaN, 0, 1, 1]]}',
    '{"format": 1, "overall": 0.5, "rows": [["a", "b", 1, 0, 1, -1]]}',
    '{"format": 1, "overall": 0.5, "rows": [["a", "b"]]}',
    '{"format": 1, "overall": 0.5, "rows": [[["a"], "b", 1, 0, 1, 1]]}',
    "[" * 100_000,
)
def test_a_broken_overlay_is_named_with_its_fix(home, text):
    (home / "router" / "RELIABILITY.json").write_text(text)
    with pytest.raises(OverlayBroken, match=r"RELIABILITY\.json.*toolmill run"):
        read(home)


def test_outcomes_reach_a_running_router_whatever_a_broken_file_holds(home, embedder, caplog):
    from serving.ranking.overlays import read_blocked
    from serving.router import _read_overlay

    def opened(place: Path, version: str | None) -> Router:
        index = load_index(place, version or read_served_version(place))
        return Router(index, embedder, read_blocked(place), _read_overlay(place, index, None))

    served, ask = ServedRouter(home, opened), ToolQuery("read one text file", k=1)
    assert served.current().find(ask).hits[0].reliability is None
    write_overlay(home, [row(READ, 0.7)], 0.7, 1.0)
    [hit] = served.settle(30).find(ask).hits
    assert hit.reliability == ToolReliability(0.7, 0.2, 0.9, 3.0)
    (home / "router" / "RELIABILITY.json").write_text(json.dumps([]))
    write_blocklist(home, [MAIL["contract_digest"]])
    with caplog.at_level(logging.ERROR):
        router = served.settle(30)
    assert router.find(ask).hits[0].reliability == hit.reliability
    assert MAIL["contract_digest"] in router.blocked.digests
    assert "RELIABILITY.json" in caplog.text
