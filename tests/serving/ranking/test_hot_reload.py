"""A served router swaps versions under running queries and keeps the old when the new is bad."""

import json
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from threading import Event

import pytest

from serving.index.build import make_router_index, move_pointer
from serving.index.model import IndexBroken, IndexMissing, IndexSource
from serving.ranking.query import ToolQuery
from serving.router import ServedRouter, open_router
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.vectors.conftest import snapshot
from warehouse.storage.lance import LanceStore

SMALL, GROWN = (
    SNAPSHOT_ROWS[:3],
    [*SNAPSHOT_ROWS, snapshot("pypi:mail", "read_email", "Read the newest email")],
)


def publish(place: Path, rows: list[dict], release: str = "r1") -> str:
    return make_router_index(place, IndexSource(rows), LanceStore(place / "lance"), "base", release)


def test_thirty_two_threads_ask_while_versions_move(tmp_path: Path) -> None:
    versions = {publish(tmp_path, SMALL): 3, publish(tmp_path, GROWN): 5}
    served, done = ServedRouter(tmp_path), Event()

    seen = set[tuple[str, int]]()

    def ask() -> None:
        while not done.is_set():
            answer = served.current().find(ToolQuery("file", k=10, strategy="bm25"))
            seen.add((answer.index, len(answer.hits)))
            time.sleep(0.05)  # threads that never rest keep the new version from being read

    def wait_for_an_answer_of(version: str) -> None:
        """On a busy machine none of the threads may have asked between two moves."""
        deadline = time.monotonic() + 120
        while version not in {name for name, _ in tuple(seen)} and time.monotonic() < deadline:
            time.sleep(0.02)

    with ThreadPoolExecutor(32) as pool:
        running = [pool.submit(ask) for _ in range(32)]
        for version in versions:
            move_pointer(tmp_path, version)
            served.settle(30)
            wait_for_an_answer_of(version)
        done.set()
        [item.result() for item in running]
    assert seen == set(versions.items())  # both answered, neither ever with the other's tools


def test_a_broken_new_version_keeps_the_old_and_is_told_of_once(
    tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    old = publish(tmp_path, SMALL)
    served = ServedRouter(tmp_path)
    served.current()
    new = publish(tmp_path, GROWN)
    (tmp_path / "router" / new / "view-full.npy").write_bytes(b"half")
    with caplog.at_level(logging.ERROR):
        for _ in range(3):
            assert served.settle(30).index.version == old
    assert [record.getMessage().count("view-full.npy") for record in caplog.records] == [1]


def test_what_is_held_takes_effect_without_a_new_version(tmp_path: Path) -> None:
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


def test_an_unreadable_list_of_what_is_held_opens_nothing(tmp_path: Path) -> None:
    publish(tmp_path, SMALL)
    (tmp_path / "router" / "BLOCKED.json").write_text('["x"]')
    with pytest.raises(IndexBroken, match=r"BLOCKED\.json"):
        open_router(tmp_path)


def test_nothing_published_yet_is_an_error_and_then_an_answer(tmp_path: Path) -> None:
    served = ServedRouter(tmp_path)
    with pytest.raises(IndexMissing, match="toolmill index"):
        served.current()
    version = publish(tmp_path, SMALL)
    assert served.current().index.version == version
