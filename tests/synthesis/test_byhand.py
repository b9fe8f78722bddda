"""`toolmill verify`: files in, one verdict per row, in order; and the corpus when it is there."""

import json
from collections import Counter
from pathlib import Path

import pytest

from assets.synthesis.byhand import UnreadableInput, verify_file
from tests.synthesis.contracts import CITY_TIME, READ_FILE

SHARED = Path(__file__).parents[2].parent / "shared" / "data"


def write(path: Path, rows: list) -> Path:
    path.write_text("\n".join(r if isinstance(r, str) else json.dumps(r) for r in rows))
    return path


@pytest.fixture
def tools(tmp_path: Path) -> Path:
    servers = [
        {"qualified_name": "@a/time", "tools": [CITY_TIME, {"name": None}]},
        {"qualified_name": "@a/files", "tools": [READ_FILE]},
    ]
    return write(tmp_path / "servers.jsonl", servers)


def test_one_verdict_per_row_in_order_and_labels_are_not_read(tools: Path, tmp_path: Path) -> None:
    rows = [
        {"tool_id": "@a/time::get_current_time", "instruction": "What time is it in Tokyo?",
         "arguments": {"timezone": "Asia/Tokyo"}, "flaw": "wrong_type"},
        {"tool_id": "@a/files::read_text_file", "instruction": "Open my notes.",
         "arguments": {"path": "/home/me/notes.md"}},
        {"tool_id": "@a/time::get_current_time", "instruction": "What time is it in Tokyo?",
         "arguments": {"timezone": 9}},
        {"tool_id": "@a/none::nothing", "instruction": "Hello?", "arguments": {}},
    ]  # fmt: skip
    verdicts = list(verify_file(write(tmp_path / "p.jsonl", rows), tools, judge=True))
    assert [v["tool_id"] for v in verdicts] == [row["tool_id"] for row in rows]
    assert [v["verdict"] for v in verdicts] == ["accept", "unsure", "reject", "reject"]
    assert verdicts[0]["score"] >= 6 > verdicts[1]["score"]
    assert verdicts[3]["flaws"] == ["unknown_tool"]


@pytest.mark.parametrize(
    ("line", "says"),
    [("{oops", "line 1: not JSON"), ("[1]", "line 1: expected a JSON object"), ("{}", "tool_id")],
)
def test_a_file_of_another_kind_is_named_with_its_line(
    tools: Path, tmp_path: Path, line: str, says: str
) -> None:
    with pytest.raises(UnreadableInput, match=says):
        list(verify_file(write(tmp_path / "p.jsonl", [line]), tools))


def test_a_file_that_is_not_there_is_named(tools: Path, tmp_path: Path) -> None:
    with pytest.raises(UnreadableInput, match=r"absent\.jsonl"):
        list(verify_file(tmp_path / "absent.jsonl", tools))


@pytest.mark.shared
def test_the_labelled_corpus_is_sorted_as_its_labels_say(tmp_path: Path) -> None:
    corpus, servers = SHARED / "corpus", SHARED / "smithery" / "servers.jsonl"
    if not corpus.is_dir():
        pytest.skip(f"no development data at {corpus}")
    rows = [json.loads(x) for p in sorted(corpus.glob("*.jsonl")) for x in p.open()]
    shown = [{k: row[k] for k in ("tool_id", "instruction", "arguments")} for row in rows]
    verdicts = list(verify_file(write(tmp_path / "p.jsonl", shown), servers))
    counts: dict[str, Counter] = {}
    for row, verdict in zip(rows, verdicts, strict=True):
        counts.setdefault(row["flaw"] or row["kind"], Counter())[verdict["verdict"]] += 1
    for kind in ("wrong_type", "unknown_argument", "missing_required_argument"):
        assert set(counts[kind]) == {"reject"}, kind
    assert counts["names_the_tool"]["reject"] >= 0.95 * counts["names_the_tool"].total()
    for kind in ("missing_required_value", "ungrounded_value"):
        assert counts[kind]["accept"] <= 0.2 * counts[kind].total(), kind
    for kind in ("direct", "detailed"):
        assert counts[kind]["accept"] >= 0.85 * counts[kind].total(), kind
    assert counts["implicit"]["reject"] <= 0.05 * counts["implicit"].total()
