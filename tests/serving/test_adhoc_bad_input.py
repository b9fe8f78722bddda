"""Odd sets of servers get a sane answer; an index that cannot be right is refused in one line."""

import json
import os
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from serving.adhoc import read_source
from serving.index.build import order_content
from serving.index.folder import read_served_version
from tests.serving.test_adhoc import CLOCK, MAIL, run, written
from tests.vectors.test_embed import adapter


def build(folder: Path, *servers: object) -> Path:
    code, _, err = run("index", written(folder / "s.jsonl", *servers), "--out", folder / "index")
    assert code == 0, err
    return folder / "index"


def search(index: Path, *asked: object) -> dict:
    code, out, err = run("search", "--index", index, *asked, "--json")
    assert code == 0, err
    return json.loads(out)


@pytest.mark.parametrize(("listed", "launched"), [
    (("files", "read::all"), ("files::read", "all")),  # both are files::read::all at first sight
    (("http://[", ":1]:8000/mcp"), ("http://[:", "1]:8000/mcp")),
    (("files", "read"), ("files", "read")),  # one server, listed by one line and run by another
])  # fmt: skip
@pytest.mark.parametrize("order", [1, -1])
def test_a_listed_tool_takes_no_launched_ones_place(
    tmp_path: Path, listed: tuple[str, str], launched: tuple[str, str], order: int
) -> None:
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


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return build(tmp_path_factory.mktemp("odd"), CLOCK, MAIL)


@pytest.fixture
def index(made: Path, tmp_path: Path) -> Path:
    """A copy whose large files are the same ones."""

    def copy(one: str, other: str) -> None:
        (os.link if os.path.getsize(one) > 1 << 20 else shutil.copyfile)(one, other)

    shutil.copytree(made, tmp_path / "index", copy_function=copy)
    return tmp_path / "index"


def put_vectors(index: Path, name: str, change: Callable[[np.ndarray], np.ndarray]) -> None:
    folder = index / "router" / read_served_version(index)
    vectors = change(np.load(folder / f"view-{name}.npy").copy())
    np.save(folder / f"view-{name}.npy", vectors)
    tell_sizes(folder)


def put_words(index: Path, value: float) -> None:
    folder = index / "router" / read_served_version(index)
    with np.load(folder / "bm25-joint.npz") as held:
        arrays = dict(held)
    arrays["weights"][0] = value
    np.savez(folder / "bm25-joint.npz", **arrays)
    tell_sizes(folder)


def tell_sizes(folder: Path) -> None:
    """As somebody who writes an index would: sizes are as told, only the content is wrong."""
    meta = json.loads((folder / "index.json").read_text())
    meta["files"] = {file: (folder / file).stat().st_size for file in meta["files"]}
    (folder / "index.json").write_text(json.dumps(meta))


def put_first(value: float) -> Callable[[np.ndarray], np.ndarray]:
    def change(vectors: np.ndarray) -> np.ndarray:
        vectors[0, 0] = value
        return vectors

    return change


def break_model(index: Path, value: float) -> None:
    """The encoder's matrices hold `value`, and its card says that they should."""
    import onnx
    from onnx import numpy_helper

    from warehouse.storage.digest import sha256

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


def drop_encoder(index: Path) -> None:
    [folder] = index.glob("encoders/*/encoder.json")
    shutil.rmtree(folder.parent)


def drop_encoders(index: Path) -> None:
    drop_encoder(index)
    (index / "encoders" / ".lock").unlink()
    (index / "encoders").rmdir()


def name_other(index: Path) -> None:
    """An index of another encoder than lies beside it."""
    path = index / "router" / read_served_version(index) / "index.json"
    path.write_text(re.sub('"minilm-l6-v2/128.*?"', '"other/64"', path.read_text()))


def cut_columns(vectors: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(vectors[:, :100])


def cut_all(index: Path) -> None:
    for name in ("full", "server", "summary"):
        put_vectors(index, name, cut_columns)


BROKEN: dict[str, tuple[Callable[[Path], None], str]] = {
    "no encoder": (drop_encoder, r"no encoder 'minilm-l6-v2/128\+.*'.*run `toolmill index`"),
    "no encoders": (drop_encoders, r"no encoder 'minilm-l6-v2/128\+.*'.*run `toolmill index`"),
    "another encoder": (name_other, r"no encoder 'other/64'.*run `toolmill index`"),
    "NaN": (lambda at: put_vectors(at, "full", put_first(np.nan)), r"view-full\.npy: row 0"),
    "Inf": (lambda at: put_vectors(at, "server", put_first(np.inf)), r"view-server\.npy: row 0"),
    "huge": (lambda at: put_vectors(at, "summary", put_first(1e38)), r"view-summary\.npy: row 0"),
    "one view": (lambda at: put_vectors(at, "server", cut_columns), r"view-server\.npy has 100"),
    "all views": (cut_all, r"view-full\.npy has 100 numbers.*gives 384"),
    "NaN words": (lambda at: put_words(at, np.nan), r"bm25-joint\.npz: weights"),
    "NaN model": (lambda at: break_model(at, np.nan), r"encoder\.onnx gives vectors"),
    "Inf model": (lambda at: break_model(at, np.inf), r"encoder\.onnx gives vectors"),
}


@pytest.mark.parametrize("flaw", BROKEN)
def test_what_cannot_be_right_is_refused_in_one_line(index: Path, flaw: str) -> None:
    change, message = BROKEN[flaw]
    change(index)
    for asked in (("search", "--index", index, "an email"), ("serve", "--place", index)):
        code, out, err = run(*asked)
        assert (code, out) == (1, "")
        assert re.search(message, err), err
        assert "toolmill index" in err


@pytest.mark.parametrize(
    "named",
    [f"other/bert@{'a' * 16}", "/models/bert@0123456789abcdef", "org/multi-qa-MiniLM-L6-cos-v1"],
)
def test_an_adapter_of_another_base_is_refused(index: Path, tmp_path: Path, named: str) -> None:
    folder = adapter(tmp_path / "adapter")
    config = json.loads((folder / "adapter_config.json").read_text())
    (folder / "adapter_config.json").write_text(
        json.dumps({**config, "base_model_name_or_path": named})
    )
    servers = tmp_path / "s.jsonl"
    written(servers, MAIL)
    for asked in (
        ("search", "--index", index, "--retriever", folder, "an email"),
        ("index", servers, "--out", tmp_path / "new", "--retriever", folder),
    ):
        code, out, err = run(*asked)
        assert (code, out) == (2, "")
        assert "belongs to another base model" in err
        assert named in err
    assert not (tmp_path / "new").exists()
