"""The plot of executions is drawn whatever third parties call their servers and tools."""

import struct
from pathlib import Path
from typing import Any

import pytest

from assets.outcomes.outcome import OUTCOMES
from assets.outcomes.report import _measure_shares, draw_executions, embed_plot
from assets.outcomes.table import EXECUTIONS
from assets.servers.probe.failure_kinds import BLAMES

Row = dict[str, Any]
HOSTILE = ("npm:$\\frac{", "npm:\n\x1b[31m", "npm:" + "x" * 500, "npm:日本語", "npm:$$^_", "")


def executed(
    server: str = "npm:a", tool: str = "look", outcome: str | None = "useful", **facts: Any
) -> Row:
    names = {"server_id": server, "tool": tool, "outcome": outcome, "status": "ok"}
    return {**dict.fromkeys(EXECUTIONS.columns), **names, **facts}


def measure_image(png: bytes) -> tuple[int, int]:
    assert png.startswith(b"\x89PNG\r\n\x1a\n")
    return struct.unpack(">II", png[16:24])


@pytest.mark.filterwarnings("error::UserWarning")
def test_any_name_outcome_and_blame_can_be_drawn() -> None:
    rows = [executed(name) for name in HOSTILE]
    rows += [executed("npm:b", outcome=item, blame=two) for item in OUTCOMES for two in BLAMES]
    rows.append(executed(outcome=None))
    width, height = measure_image(draw_executions(rows))
    assert 600 < width < 1200
    assert 400 < height < 1600


def test_calls_none_of_which_was_sent_have_a_plot_too(tmp_path: Path) -> None:
    rows = [executed(outcome="refused", status="failed", blame="credentials")]
    assert measure_image(draw_executions(rows))[1] > 100
    visible = embed_plot(rows, tmp_path, "registry")
    assert visible.startswith("![outcomes of executed calls](data:image/png;base64,")
    assert "data:" not in embed_plot([], tmp_path, "registry")
    assert embed_plot(rows, tmp_path, "registry") == visible
    assert embed_plot([*rows, executed()], tmp_path, "registry") != visible


def test_shares_are_of_servers_or_of_the_tools_of_the_only_one() -> None:
    rows = [executed(tool="a"), executed(tool="a", outcome="empty"), executed(tool="b")]
    assert _measure_shares(rows) == [("a", 1, 2), ("b", 1, 1)]
    assert _measure_shares([*rows, executed("npm:b")]) == [("npm:a", 2, 3), ("npm:b", 1, 1)]
    many = [executed(f"npm:{n}") for n in range(60)]
    assert len(_measure_shares(many)) == 24
