"""An index that somebody else wrote: one clear error, whatever its files ask for."""

import io
import json
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from serving.export import BadExport, check_export
from serving.index.folder import load_index, read_served_version
from serving.index.model import IndexBroken

DEEP = "[" * 200_000


def ask_for(count: int) -> bytes:
    """A .npy file that is its header alone."""
    file = io.BytesIO()
    facts = {"descr": "<i4", "fortran_order": False, "shape": (count,)}
    np.lib.format.write_array_header_1_0(file, facts)
    return file.getvalue()


def put_fields(folder: Path, save: Callable = np.savez, **changed: np.ndarray) -> None:
    path = folder / "bm25-all.npz"
    with np.load(path) as held:
        save(path, **{**held, **changed})


def shift_documents(folder: Path) -> None:
    put_fields(
        folder, documents=np.full(np.load(folder / "bm25-all.npz")["documents"].shape, 10**6)
    )


def rename_tool(folder: Path) -> None:
    """Gives a tool the id of another server's."""
    path = folder / "tools.jsonl"
    first, *rest = path.read_text().splitlines(True)
    row = {**json.loads(first), "tool_id": "npm:trusted::read_file"}
    path.write_text("".join([json.dumps(row) + "\n", *rest]))


HOSTILE: dict[str, Callable[[Path], object]] = {
    "deep facts": lambda at: (at / "index.json").write_text(DEEP),
    "deep tools": lambda at: (at / "tools.jsonl").write_text(DEEP),
    "deep terms": lambda at: (at / "bm25-all.terms.json").write_text(DEEP),
    "an id of another server": rename_tool,
    "terabytes": lambda at: (at / "twins.npy").write_bytes(ask_for(10**12)),
    "more than a word": lambda at: (at / "twins.npy").write_bytes(ask_for(10**30)),
    "terabytes of vectors": lambda at: (at / "view-full.npy").write_bytes(ask_for(10**12)),
    "objects": lambda at: np.save(at / "twins.npy", np.array([{}] * 4), allow_pickle=True),
    "twins elsewhere": lambda at: np.save(at / "twins.npy", np.full(4, 10**9)),
    "twins before": lambda at: np.save(at / "twins.npy", np.full(4, -1)),
    "contracts elsewhere": lambda at: np.save(
        at / "contracts.starts.npy", np.array([-5, 1, 2, 3, 10**12])
    ),
    "owners elsewhere": lambda at: np.save(at / "view-full.owner.npy", np.full(4, 4)),
    "vectors of one axis": lambda at: np.save(at / "view-full.npy", np.zeros(4, np.float32)),
    "documents elsewhere": shift_documents,
    "compressed": lambda at: put_fields(at, np.savez_compressed),
    "starts that fall": lambda at: put_fields(at, starts=np.zeros(5, np.int64)),
}


@pytest.mark.parametrize("name", HOSTILE)
def test_a_hostile_file_is_one_clear_error(home: Path, name: str) -> None:
    version = read_served_version(home)
    folder = home / "router" / version
    HOSTILE[name](folder)
    if name != "deep facts":  # the sizes are as told: only the content is wrong
        meta = json.loads((folder / "index.json").read_text())
        meta["files"] = {file: (folder / file).stat().st_size for file in meta["files"]}
        (folder / "index.json").write_text(json.dumps(meta))
    with pytest.raises(IndexBroken, match="build it again") as refused:
        load_index(home, version)
    assert len(str(refused.value)) < 600


def test_a_contract_that_cannot_be_read_is_named(home: Path) -> None:
    index = load_index(home, version := read_served_version(home))
    held = home / "router" / version / "contracts.jsonl"
    held.write_text("x" * held.stat().st_size)
    with pytest.raises(IndexBroken, match=r"contracts.jsonl: 'npm:files"):
        index.contract(0)


@pytest.mark.parametrize("text", [DEEP, "[]", '{"files": {"a": 1}}'])
def test_a_hostile_manifest_is_one_clear_error(tmp_path: Path, text: str) -> None:
    (tmp_path / "RELEASE.json").write_text(text)
    with pytest.raises(BadExport):
        check_export(tmp_path)
