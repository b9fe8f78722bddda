"""What outcomes have shown of tools stands beside the index, and holds back nothing when broken."""

import json
import logging
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from assets.outcomes.reliability.table import write_overlay
from serving.index.folder import load_index, read_served_version
from serving.ranking.overlays import (
    OverlayBroken,
    ReliabilityOverlay,
    ToolReliability,
    read_overlay,
    write_blocklist,
)
from serving.ranking.query import ToolQuery
from serving.router import Router, ServedRouter
from tests.serving.conftest import SNAPSHOT_ROWS
from tests.vectors.conftest import WordEmbedder

READ, MAIL = SNAPSHOT_ROWS[0], SNAPSHOT_ROWS[4]


def row(snapshot: dict[str, Any], mean: float = 0.5, **more: Any) -> dict[str, Any]:
    named = {name: snapshot[name] for name in ("server_id", "tool", "contract_digest")}
    return {**named, "mean": mean, "low": 0.2, "high": 0.9, "n": 3.0, **more}


def read(home: Path) -> ReliabilityOverlay | None:
    return read_overlay(home, load_index(home, read_served_version(home)))


def test_rows_stand_at_their_tools_under_their_contract(home: Path) -> None:
    old = row(MAIL, contract_digest="c1:old")
    gone = row(MAIL, tool="gone")
    assert write_overlay(home, [row(READ), old, gone], 0.75, 1.0) == 3
    found = read(home)
    assert found is not None
    index = load_index(home, read_served_version(home))
    place = index.places["npm:files::read_file"]
    assert found.tell(place) == ToolReliability(0.5, 0.2, 0.9, 3.0)
    assert found.lift[place] == np.float32(-0.25)
    others = [at for at in range(len(index.tools)) if at != place]
    assert [found.tell(at) for at in others] == [None] * len(others)
    assert not found.lift[others].any()


def test_without_an_overlay_nothing_is_known(home: Path) -> None:
    assert write_overlay(home, [], 0.5, 1.0) == 0
    assert read(home) is None


BROKEN = [
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
]


@pytest.mark.parametrize("text", BROKEN)
def test_a_broken_overlay_is_named_with_its_fix(home: Path, text: str) -> None:
    (home / "router" / "RELIABILITY.json").write_text(text)
    with pytest.raises(OverlayBroken, match=r"RELIABILITY\.json.*toolmill run"):
        read(home)


def test_outcomes_reach_a_running_router_and_a_broken_file_holds_back_nothing(
    home: Path, embedder: WordEmbedder, caplog: pytest.LogCaptureFixture
) -> None:
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
