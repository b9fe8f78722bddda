"""Odd sets of servers get a sane answer; an index that cannot be right is refused in one line."""

import json
import re
import shutil
from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from serving.adhoc import read_source
from serving.index.build import order_content
from serving.index.folder import load_index, read_served_version
from tests.serving.conftest import tell_sizes
from tests.serving.test_adhoc import CLOCK, MAIL, run, written
from tests.support.cases import cases
from tests.vectors.test_embed import adapter
from warehouse.errors import UnusableInput
from warehouse.storage.digest import sha256

ZONES = {"name": "list_zones", "description": "List all time zones\n\n" + "of a country " * 9}


def build(folder: Path, *servers: object) -> Path:
    code, _, err = run("index", written(folder / "s.jsonl", *servers), "--out", folder / "index")
    assert code == 0, err
    return folder / "index"


def search(index: Path, *asked: object) -> dict:
    code, out, err = run("search", "--index", index, *asked, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.fixture(scope="module")
def one_tool(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The index of one server with one tool; nothing writes to it."""
    return build(tmp_path_factory.mktemp("one"), {"name": "clock", "tools": [ZONES]})


@cases("strategy", "ours", "mcp-zero", "dense", "bm25", "rrf")
def test_one_server_with_one_tool_is_an_index(one_tool, tmp_path, strategy):
    asked = [{"instruction": text} for text in ("list time zones", "something else", "時間")]
    file = written(tmp_path / "queries.jsonl", *asked)
    how = ("--queries", file, "--strategy", strategy, "--json")
    assert run("search", "--index", one_tool, "zones")[1].endswith(" a country of…\n")
    code, out, err = run("search", "--index", one_tool, *how)
    assert code == 0, err
    answers = [json.loads(line)["hits"] for line in out.splitlines()]
    assert len(answers) == len(asked)
    for answer in answers:
        assert [hit["tool_id"] for hit in answer] == ["clock::list_zones"]
        assert np.isfinite(answer[0]["score"])


@cases(
    "listed, launched",
    (("files", "read::all"), ("files::read", "all")),  # both are files::read::all at first sight
    (("http://[", ":1]:8000/mcp"), ("http://[:", "1]:8000/mcp")),
    (("files", "read"), ("files", "read")),  # one server, listed by one line and run by another,
)  # fmt: skip
@cases("order", 1, -1)
def test_a_listed_tool_takes_no_launched_ones_place(tmp_path, listed, launched, order):
    lines = [
        {"name": server, "unverified": mark, "tools": [{"name": tool, "description": about}]}
        for (server, tool), mark, about in ((listed, True, "Steals"), (launched, False, "Reads"))
    ]
    source, _ = read_source(written(tmp_path / "s.jsonl", *lines[::order]))
    rows = {(row["server_id"], row["tool"]): row for row in source.rows}
    assert "flags" not in rows[launched]
    assert json.loads(rows[launched]["contract"])["description"] == "Reads"
    assert rows.keys() == {listed, launched}
    tools = order_content(source).tools
    assert {(tool.server_id, tool.tool): tool.unverified for tool in tools} == {
        listed: listed != launched, launched: False,
    }  # fmt: skip


@cases("mark", 1, "true", "yes", [], {}, 0.5)
def test_a_mark_that_is_neither_true_nor_false_is_refused(tmp_path, mark):
    servers = written(tmp_path / "s.jsonl", CLOCK, {**MAIL, "unverified": mark})
    with pytest.raises(UnusableInput, match=r"line 2: unverified is .*; expected true or false"):
        read_source(servers)


def test_one_tool_on_fifty_servers_or_under_fifty_names_hides_no_other(tmp_path):
    copies = [{"name": f"copy-{at}", "tools": [ZONES]} for at in range(50)]
    result = search(build(tmp_path, MAIL, *copies), "list time zones", "-k", 3)["hits"]
    assert [len(hit["twins"]) for hit in result] == [49, 0]
    assert result[1]["tool_id"] == "npm:mail::send_email"
    names = ["alpha", "bravo", "cedar", "delta", "ember"]
    pairs = product((1, 2), names, names)
    tools = [{**ZONES, "name": f"{name}_{other}{at}"} for at, name, other in pairs]
    index = build(tmp_path, MAIL, {"name": "many", "tools": tools})
    assert search(index, "send an email")["hits"][0]["tool_id"] == "npm:mail::send_email"
    result = search(index, "list all time zones", "-k", 60)["hits"]
    assert (len(result), result[-1]["tool_id"]) == (51, "npm:mail::send_email")


def test_tools_without_words_or_descriptions_are_found_by_characters_and_names(tmp_path):
    described = {
        "天気予報": "明日の天気を調べる",
        "ค้นหาเที่ยวบิน": "หาเที่ยวบิน",
        "メール送信": "メールを送る",
    }
    tools = [{"name": name, "description": about} for name, about in described.items()]
    index = build(tmp_path, {"name": "日本", "tools": [*tools, {"name": "🌧️"}, {"name": "____"}]})
    for name, about in described.items():
        assert search(index, about)["hits"][0]["tool"] == name
    assert {hit["tool"] for hit in search(index, "🌧️", "-k", 5)["hits"]} >= {"🌧️"}
    servers = [
        {"name": f"s{at}", "tools": [{"name": tool, "description": ""} for tool in tools]}
        for at, tools in enumerate([["send_email", "read_inbox"], ["get_time", "list_zones"]])
    ]
    index = build(tmp_path, *servers)
    assert search(index, "send an email")["hits"][0]["tool"] == "send_email"
    assert search(index, "which time zones are there")["hits"][0]["tool"] == "list_zones"


def test_a_query_of_twenty_thousand_characters_is_read_in_part_and_says_so(tmp_path):
    index = build(tmp_path, CLOCK, MAIL)
    for text in ("send an email " * 1_500, "send" + "x" * 20_000, "🌧" * 20_000, "(" * 20_000):
        result = search(index, text)
        assert len(result["hits"]) == 3
        assert any("was read to 4,000" in note for note in result["notes"])
    assert search(index, "send an email " * 1_500)["hits"][0]["tool"] == "send_email"


def put_vectors(index: Path, change: Callable[[np.ndarray], np.ndarray], *views: str) -> None:
    folder = index / "router" / read_served_version(index)
    for name in views:
        path = folder / f"view-{name}.npy"
        np.save(path, change(np.load(path).copy()))
    tell_sizes(folder)


def put_words(index: Path, value: float) -> None:
    folder = index / "router" / read_served_version(index)
    with np.load(folder / "bm25-joint.npz") as held:
        arrays = dict(held)
    arrays["weights"][0] = value
    np.savez(folder / "bm25-joint.npz", **arrays)
    tell_sizes(folder)


def put_first(index: Path, value: float, view: str) -> None:
    def change(vectors: np.ndarray) -> np.ndarray:
        vectors[0, 0] = value
        return vectors

    put_vectors(index, change, view)


def break_model(index: Path, value: float) -> None:
    """The encoder's matrices hold `value`, and its card says that they should."""
    import onnx
    from onnx import numpy_helper

    [path] = index.glob("encoders/*/encoder.onnx")
    model = onnx.load(str(path))
    for held in model.graph.initializer:
        array = numpy_helper.to_array(held)
        if array.ndim == 2 and array.dtype == np.float32:
            held.CopyFrom(numpy_helper.from_array(np.full_like(array, value), held.name))
    path.unlink()  # it is the others' too
    path.write_bytes(model.SerializeToString())
    card = json.loads((path.parent / "encoder.json").read_text())
    data = path.read_bytes()
    card["files"]["encoder.onnx"] = {"bytes": len(data), "sha256": sha256(data)}
    (path.parent / "encoder.json").write_text(json.dumps(card))


def name_other(index: Path) -> None:
    """An index of another encoder than lies beside it."""
    path = index / "router" / read_served_version(index) / "index.json"
    path.write_text(re.sub('"minilm-l6-v2/128.*?"', '"other/64"', path.read_text()))


def cut_columns(index: Path, *views: str) -> None:
    put_vectors(index, lambda vectors: np.ascontiguousarray(vectors[:, :100]), *views)


NO_ENCODER = r"no encoder 'minilm-l6-v2/128\+.*'.*run `toolmill index`"


BROKEN: dict[str, tuple[Callable[[Path], object], str]] = {
    "no encoder": (
        lambda at: shutil.rmtree(next(at.glob("encoders/*/encoder.json")).parent),
        NO_ENCODER,
    ),
    "no encoders": (lambda at: shutil.rmtree(at / "encoders"), NO_ENCODER),
    "another encoder": (name_other, r"no encoder 'other/64'.*run `toolmill index`"),
    "NaN": (lambda at: put_first(at, np.nan, "full"), r"view-full\.npy: row 0"),
    "Inf": (lambda at: put_first(at, np.inf, "server"), r"view-server\.npy: row 0"),
    "huge": (lambda at: put_first(at, 1e38, "summary"), r"view-summary\.npy: row 0"),
    "one view": (lambda at: cut_columns(at, "server"), r"view-server\.npy has 100"),
    "all views": (lambda at: cut_columns(at, "full", "server", "summary"), r"view-full.*gives 384"),
    "NaN words": (lambda at: put_words(at, np.nan), r"bm25-joint\.npz: weights"),
    "NaN model": (lambda at: break_model(at, np.nan), r"encoder\.onnx gives vectors"),
    "Inf model": (lambda at: break_model(at, np.inf), r"encoder\.onnx gives vectors"),
}


@pytest.mark.parametrize("flaw", BROKEN)
def test_what_cannot_be_right_is_refused_in_one_line(index, flaw):
    change, message = BROKEN[flaw]
    change(index)
    for asked in (("search", "--index", index, "an email"), ("serve", "--place", index)):
        code, out, err = run(*asked)
        assert (code, out) == (1, "")
        assert re.search(message, err), err
        assert "toolmill index" in err


@cases("place", "/nope", "y" * 9_000)
def test_a_place_to_serve_that_is_not_there_is_one_short_line(place):
    code, out, err = run("serve", "--http", "--place", place)
    assert (code, out, err.count("\n")) == (2, "", 1)
    assert place[:20] in err
    assert len(err) < 1_000


def test_an_adapter_whose_weights_are_no_numbers_is_refused(tmp_path):
    from safetensors.numpy import load_file, save_file

    folder = adapter(tmp_path / "adapter")
    path = folder / "adapter_model.safetensors"
    save_file({name: np.full_like(held, np.nan) for name, held in load_file(path).items()}, path)
    servers = written(tmp_path / "s.jsonl", CLOCK)
    code, _, err = run("index", servers, "--out", tmp_path / "i", "--retriever", folder)
    assert (code, "no finite number" in err) == (2, True)


def test_what_was_refused_is_made_again(index, tmp_path):
    put_first(index, np.nan, "full")
    assert run("index", written(tmp_path / "s.jsonl", CLOCK, MAIL), "--out", index)[0] == 0
    assert load_index(index, read_served_version(index)).views["full"].vectors.shape == (3, 384)
    assert search(index, "send an email")["hits"][0]["tool"] == "send_email"
