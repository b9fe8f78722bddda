"""Folders of BFCL-format files, in the form of each version, and every way of being none."""

import json
from pathlib import Path
from typing import Any

import pytest

from extensions.bench.bfcl_command import match_bfcl, read_bfcl
from warehouse.errors import UnusableInput

ADD = {"name": "add", "parameters": {"properties": {"a": {"type": "integer"}}, "required": ["a"]}}


def question(name: str, **more: Any) -> dict[str, Any]:
    asked = [[{"role": "user", "content": "Add five."}]]
    return {"id": name, "question": asked, "function": [ADD], **more}


def truth(name: str, value: int = 5) -> dict[str, Any]:
    return {"id": name, "ground_truth": [{"add": {"a": [value]}}]}


def write(folder: Path, name: str, rows: list[Any], truths: list[Any] | None = None) -> Path:
    places = [(folder / name, rows)]
    if truths is not None:
        places.append((folder / "possible_answer" / name, truths))
    for path, lines in places:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("\n".join(x if isinstance(x, str) else json.dumps(x) for x in lines))
    return folder


def test_ast_and_relevance_categories_are_read_and_others_named(tmp_path: Path):
    for category in ("simple_python", "live_parallel", "multiple"):
        name = f"{category}_0"
        write(tmp_path, f"BFCL_v4_{category}.json", [question(name)], [truth(name)])
    write(tmp_path, "BFCL_v4_live_irrelevance.json", [question("live_irrelevance_0-0-0")])
    for category in ("multi_turn_base", "simple_java"):
        write(tmp_path, f"BFCL_v4_{category}.json", ["not even JSON"])
    (tmp_path / "README.md").write_text("no data")
    skipped: list[str] = []
    items = {item.category: item for item in read_bfcl(tmp_path, skipped)}
    assert sorted(items) == [
        "live_irrelevance",
        "live_parallel",
        "multiple",
        "simple_python",
    ]
    assert skipped == [
        f"BFCL_v4_{category}.json: {category} is not judged by AST match of Python calls"
        for category in ("multi_turn_base", "simple_java")
    ]
    item = items["simple_python"]
    assert item.messages == [{"role": "user", "content": "Add five."}]
    assert (item.functions, item.truth) == ([ADD], [{"add": {"a": [5]}}])
    assert items["live_irrelevance"].truth == []
    assert match_bfcl(item.functions, item.truth, [{"name": "add", "arguments": {"a": 5}}]).match


def test_the_third_version_and_older_forms_are_read(tmp_path: Path):
    old = question("simple_0", question="Add five.", function=ADD)
    write(
        tmp_path,
        "BFCL_v3_simple.json",
        [old, ""],
        [{**truth("simple_0"), "ground_truth": {"add": {"a": [5]}}}],
    )
    (item,) = read_bfcl(tmp_path)
    assert item.category == "simple"
    assert item.messages == [{"role": "user", "content": "Add five."}]
    assert item.truth == [{"add": {"a": [5]}}]


def test_the_newest_version_of_a_category_is_taken(tmp_path: Path):
    for version, value in ((4, 4), (3, 3)):
        name = f"BFCL_v{version}_parallel.json"
        write(tmp_path, name, [question("parallel_0")], [truth("parallel_0", value)])
    skipped: list[str] = []
    (item,) = read_bfcl(tmp_path, skipped)
    assert item.truth == [{"add": {"a": [4]}}]
    assert skipped == ["BFCL_v3_parallel.json: a newer version stands beside it"]


def test_truths_go_by_id_else_by_place(tmp_path: Path):
    rows = [question("parallel_0"), question("parallel_1")]
    write(tmp_path, "BFCL_v4_parallel.json", rows, [truth("parallel_1", 1), truth("parallel_0", 0)])
    assert [one.truth[0]["add"]["a"] for one in read_bfcl(tmp_path)] == [[0], [1]]
    write(tmp_path, "BFCL_v4_parallel.json", rows, [truth("other_0", 7), truth("other_1", 8)])
    assert [one.truth[0]["add"]["a"] for one in read_bfcl(tmp_path)] == [[7], [8]]


@pytest.mark.parametrize(
    ("rows", "truths", "message"),
    [
        ([question("a"), "{"], [truth("a")], "BFCL_v4_simple_python.json, line 2: not JSON"),
        (["[1]"], [], "line 1: list, expected a JSON object"),
        ([{"id": 7}], [truth("a")], "line 1: found no text as id; expected"),
        ([{"id": "a", "function": 7}], [truth("a")], "line 1 (a): no list of functions; expected"),
        ([question("a")], None, "no such file; each AST category needs its truth there"),
        ([question("a")], [{"id": "a"}], "line 1: found no ground_truth; expected"),
        ([question("a")], [{"id": "a", "ground_truth": [{"f": 1}]}], "found no ground_truth"),
        ([question("a"), question("b")], [truth("a")], "no truth for 'b' (1 truths, 2 questions)"),
        ([question("a"), question("a")], [truth("a")], "id 'a' stands in simple_python and"),
    ],
)
def test_a_bad_file_is_one_line_that_says_where(tmp_path: Path, rows, truths, message):
    write(tmp_path, "BFCL_v4_simple_python.json", rows, truths)
    with pytest.raises(UnusableInput) as error:
        read_bfcl(tmp_path)
    assert message in str(error.value)
    assert str(tmp_path) in str(error.value)


def test_a_folder_that_is_none_of_bfcls_says_what_one_is(tmp_path: Path):
    for path, found in ((tmp_path / "none", "no such folder"), (tmp_path, "no BFCL file")):
        with pytest.raises(UnusableInput, match=f"{found}.*possible_answer/.*bfcl-eval"):
            read_bfcl(path)
    (tmp_path / "data").mkdir()
    with pytest.raises(UnusableInput, match="data looks like it"):
        read_bfcl(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(UnusableInput, match=": a file;"):
        read_bfcl(tmp_path / "file")
