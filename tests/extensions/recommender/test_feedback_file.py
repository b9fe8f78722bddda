import contextlib
import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from extensions.recommender.feedback_file import BadFeedback, read_feedback, read_tools

ROW = {
    "task": "find the report",
    "selected": {"server_id": "files", "tool_name": "search"},
    "rating": {"success": True, "reason": "found it"},
    "retriever_candidates": [
        {"server_id": "files", "tool_name": "search", "score": 0.7},
        {"server_id": "web", "tool_name": "fetch"},
    ],
}
SERVER = {"id": "files", "tools": [{"name": "search", "description": "Finds files."}]}


def write(folder: Path, value: Any, lines: bool = False) -> Path:
    path = folder / "file.json"
    text = "\n".join(map(json.dumps, value)) if lines else json.dumps(value)
    path.write_text(text, encoding="utf-8")
    return path


@pytest.mark.parametrize("shape", ["list", "lines", "held"])
def test_the_released_format_is_read_as_list_lines_or_held_in_an_object(
    tmp_path: Path, shape: str
) -> None:
    rows = [ROW, {**ROW, "query": "find it", "rating": {"success": 0}}]
    value = {"executions": rows, "version": 1} if shape == "held" else rows
    [first, second] = read_feedback(write(tmp_path, value, lines=shape == "lines")).rows
    assert (first.task, first.query, first.tool_id) == (
        "find the report", "find the report", "files::search",
    )  # fmt: skip
    assert first.success is True
    assert first.candidates == ("files::search", "web::fetch")
    assert (second.task, second.query, second.success) == ("find the report", "find it", False)


@pytest.mark.parametrize(
    ("change", "said"),
    [
        ({"task": ""}, "`query` or `task` is ''"),
        ({"task": 7}, "`query` or `task` is 7"),
        ({"selected": None}, "`selected` is absent"),
        ({"selected": {"server_id": "files"}}, "`selected.tool_name` is absent"),
        ({"rating": "good"}, "`rating` is 'good'"),
        ({"rating": {"success": "maybe"}}, "`rating.success` is 'maybe'"),
        ({"rating": {"success": float("nan")}}, "`rating.success` is nan"),
        ({"rating": {"success": 0.5}}, "`rating.success` is 0.5"),
        ({"rating": None}, "`rating` is absent: nobody judged it"),
        ({"retriever_candidates": {"a": 1}}, "`retriever_candidates` is {'a': 1}"),
        ({"retriever_candidates": [3]}, "`retriever_candidates` is 3"),
    ],
)
def test_a_file_of_another_shape_is_refused_in_one_line_that_says_where(
    tmp_path: Path, change: dict[str, Any], said: str
) -> None:
    with pytest.raises(BadFeedback) as caught:
        read_feedback(write(tmp_path, [{**ROW, **change}]))
    message = str(caught.value)
    assert f"file.json: row 1: {said}" in message
    assert "expected rows of `query` or `task`" in message
    assert "\n" not in message


def test_few_flawed_rows_are_left_out_and_counted(tmp_path: Path) -> None:
    flawed = {**ROW, "rating": {"success": "perhaps"}}
    unjudged = [{**ROW, "rating": {"success": None}}] * 9
    found = read_feedback(write(tmp_path, [*[ROW] * 20, flawed, *unjudged]))
    assert len(found.rows) == 20
    assert found.left_out == {"rating": 1, "not judged": 9}
    assert found.first_flaw.startswith("row 21: ")


@pytest.mark.parametrize("text", ["", "[]", "{}", "3", '"x"', "[1,", '{"a": [], "b": []}'])
@pytest.mark.parametrize("read", [read_feedback, read_tools])
def test_no_rows_are_one_line_of_error(tmp_path: Path, text: str, read: Any) -> None:
    path = tmp_path / "file.json"
    path.write_text(text)
    with pytest.raises(BadFeedback, match=r"file\.json: ") as caught:
        read(path)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("read", [read_feedback, read_tools])
def test_a_file_that_is_not_there_or_no_text_is_named(tmp_path: Path, read: Any) -> None:
    with pytest.raises(BadFeedback, match=r"none\.json: FileNotFoundError"):
        read(tmp_path / "none.json")
    (tmp_path / "raw.json").write_bytes(b"\xff\xfe\x00")
    with pytest.raises(BadFeedback, match=r"raw\.json: UnicodeDecodeError"):
        read(tmp_path / "raw.json")


def test_tools_of_servers_are_read_each_once(tmp_path: Path) -> None:
    other = {"id": "web", "tools": ["fetch", {"name": "post", "input_schema": {"type": "object"}}]}
    tools = read_tools(write(tmp_path, [SERVER, SERVER, other]))
    assert [tool.tool_id for tool in tools] == ["files::search", "web::fetch", "web::post"]
    assert tools[0].contract["description"] == "Finds files."


@pytest.mark.parametrize(
    ("row", "said"),
    [
        ({"tools": []}, "`id` is absent"),
        ({"id": "x"}, "`tools` is absent"),
        ({"id": "x", "tools": [{"description": "no name"}]}, r"`tools\[\].name` is absent"),
        ({"id": "x", "tools": [4]}, "`tools` holds 4"),
        ([], r"found \[\]"),
    ],
)
def test_tools_of_another_shape_are_refused(tmp_path: Path, row: Any, said: str) -> None:
    with pytest.raises(BadFeedback, match=f"row 2: {said}"):
        read_tools(write(tmp_path, [SERVER, row]))


JSON = st.recursive(
    st.none() | st.booleans() | st.floats(allow_nan=False) | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(
        st.sampled_from(["task", "selected", "rating", "success", "tools", "id", "server_id"]),
        inner, max_size=4,
    ),
    max_leaves=8,
)  # fmt: skip


@given(value=JSON)
@settings(max_examples=60, deadline=None)
def test_any_json_is_read_or_refused(tmp_path_factory: pytest.TempPathFactory, value: Any) -> None:
    path = write(tmp_path_factory.mktemp("any"), value)
    for read in (read_feedback, read_tools):
        found: Any = None
        with contextlib.suppress(BadFeedback):
            found = read(path)
        assert found is None or found
