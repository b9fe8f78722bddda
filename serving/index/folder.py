"""The router's index: one immutable folder a version, and the pointer to the version served.

router/<version>/index.json        format, version, release, embedder, adapter, counts, files
                 tools.jsonl       what a hit says about each tool
                 servers.jsonl     name, description and summary of each server
                 contracts.jsonl   the whole contracts;  contracts.starts.npy  where each begins
                 recipes.jsonl     how each server is launched, where that is known
                 twins.npy         the first tool that says the same as each
                 view-<name>.npy   float32 [rows, dim], unit rows;  .owner.npy  whose they are
                 bm25-<field>.npz  an inverted index a field;  .terms.json  its words
                 history.json      optional: contract history (`assets/contracts/rename_history.py`)
                 reranker.npz      optional: a trained reranker
router/HEAD.json                   {version, release, at}: moves after the folder is whole
"""

import json
import shutil
import time
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.tool_id import ToolId
from assets.vectors.lexical import BM25
from serving.index.arrays import (
    check_finite,
    check_places,
    check_starts,
    check_texts,
    check_vectors,
    read_array,
    read_arrays,
)
from serving.index.build import Embed, Step, compute_version, order_content, write_version
from serving.index.model import (
    BLOCK,
    FORMAT,
    SERVER,
    TOOL,
    Index,
    IndexBroken,
    IndexMissing,
    Server,
    Source,
    Tool,
    View,
)
from warehouse.storage.files import PointerBroken, read_pointer, write_pointer

# What reading JSON, NumPy's files and archives raises for a file that somebody else wrote.
_UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError,
    MemoryError, ArithmeticError, zipfile.BadZipFile,
)  # fmt: skip
REBUILD = (
    "build it again: materialize router_index, or `toolmill index SERVERS.jsonl --out` this folder"
)


def build_index(
    place: Path,
    source: Source,
    embed: Embed,
    *,
    embedder: str,
    adapter: str | None = None,
    release: str = "-",
    reranker: Path | None = None,
    progress: Step | None = None,
) -> str:
    """Writes `<place>/router/<version>/` and returns the version; an existing version is kept, one
    that cannot be read is written again.

    `embed` is called once a view with all its texts and gives unit rows by `embedder`; `adapter`
    is the digest of the model that the embedder merges, None for the base model; `reranker` is
    the file of a trained one, in the folder that is named as its model is. The same source in any
    order makes the same version. Raises ValueError for a source without tools.
    """
    content = order_content(source)
    if not content.tools:
        raise ValueError("router index: 0 tools given, expected at least one clear contract")
    ranker = reranker.parent.name if reranker else None
    version = compute_version(content, embedder, release, ranker)
    if _is_whole(place, version):
        return version
    named = {"version": version, "release": release, "embedder": embedder, "adapter": adapter}
    named |= {"reranker": ranker}
    write_version(place, content, embed, {"format": FORMAT, **named}, reranker, progress)
    return version


def _is_whole(place: Path, version: str) -> bool:
    """Whether the version is there and can be read; what is broken is cleared away."""
    try:
        load_index(place, version)
    except IndexMissing:
        return False
    except IndexBroken:
        shutil.rmtree(place / "router" / version)
        return False
    return True


def move_pointer(place: Path, version: str) -> None:
    """Serves `version` from now on; a running router notices at its next query."""
    index = load_index(place, version)
    path = place / "router" / "HEAD.json"
    if (read_pointer(path, REBUILD) or {}).get("version") != version:
        write_pointer(path, {"version": version, "release": index.release, "at": time.time()})


def read_served_version(place: Path) -> str:
    """The version that HEAD names. Raises IndexMissing or IndexBroken with the fix."""
    path = place / "router" / "HEAD.json"
    try:
        head = read_pointer(path, REBUILD)
    except PointerBroken as error:
        if place.is_file():
            raise IndexMissing(
                f"{place}: is a file; give the folder that `toolmill index` wrote"
            ) from None
        raise IndexBroken(str(error)) from None
    if head is None:
        raise IndexMissing(
            f"no router index under {place}: found no router/HEAD.json, expected the one that a"
            " run publishes; use `make run` or `toolmill index SERVERS.jsonl --out DIR` first,"
            " or point TOOLMILL_HOME (or --index, --place) at the folder that holds one"
        )
    version = head.get("version")
    if not isinstance(version, str) or not version.isalnum():
        raise IndexBroken(f"{path}: version is {version!r:.80}, expected a digest; {REBUILD}")
    return version


def load_index(place: Path, version: str) -> Index:
    """Reads one version. Raises IndexMissing or IndexBroken naming what is wrong and the fix.

    Views that a query looks at for some hundred tools are mapped, not read.
    """
    folder = place / "router" / version
    if not folder.is_dir():
        raise IndexMissing(f"no router index {version[:12]} under {place}/router; {REBUILD}")
    try:
        meta = json.loads((folder / "index.json").read_bytes())
        if meta.get("format") != FORMAT:
            found = f"format {meta.get('format')}, expected {FORMAT}"
            raise IndexBroken(f"router index {version[:12]} in {folder}: {found}; {REBUILD}")
        _check_sizes(folder, meta["files"])
        index = _read(folder, meta)
        index.warm()
        return index
    except IndexBroken:
        raise
    except _UNREADABLE as error:
        message = f"{type(error).__name__}: {error}"
        raise IndexBroken(
            f"router index {version[:12]} in {folder}: {message}; delete the folder and {REBUILD}"
        ) from error


def _check_sizes(folder: Path, files: Mapping[str, int]) -> None:
    for name, size in files.items():
        found = (folder / name).stat().st_size
        if found != size:
            raise ValueError(f"{name} has {found} bytes, expected {size}")


def _read(folder: Path, meta: Mapping[str, Any]) -> Index:
    tools = [_read_tool(row) for row in _read_lines(folder / "tools.jsonl")]
    servers = [_read_server(row) for row in _read_lines(folder / "servers.jsonl")]
    if len(tools) != meta["counts"]["tools"] or len(servers) != meta["counts"]["servers"]:
        raise ValueError(f"{len(tools)} tools, expected {meta['counts']['tools']}")
    named = {name: meta[name] for name in ("version", "release", "embedder", "adapter")}
    sizes = {TOOL: len(tools), SERVER: len(servers)}
    check_places(np.array([tool.server for tool in tools]), len(tools), len(servers), "tools.jsonl")
    block, views = _read_views(folder, meta["views"], sizes)
    starts = read_array(folder / "contracts.starts.npy")
    end = (folder / "contracts.jsonl").stat().st_size
    return Index(
        **named,
        tools=tools,
        servers=servers,
        views=views,
        block=block,
        fields={name: _read_field(folder, name, **of) for name, of in meta["fields"].items()},
        twins=check_places(read_array(folder / "twins.npy"), len(tools), len(tools), "twins.npy"),
        recipes={row["server_id"]: row["recipe"] for row in _read_lines(folder / "recipes.jsonl")},
        contracts=(folder / "contracts.jsonl").open("rb"),
        contract_starts=check_starts(starts, len(tools), end, "contracts.starts.npy"),
        reranker=meta.get("reranker"),
        folder=folder,
    )


def _read_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _read_server(row: dict[str, Any]) -> Server:
    check_texts(row, ("server_id", "name", "description", "summary"))
    return Server(**row)


def _read_tool(row: dict[str, Any]) -> Tool:
    check_texts(row, ("tool_id", "server_id", "tool", "description", "contract_digest"))
    if row["tool_id"] != str(ToolId.of_row(row)):
        raise ValueError(f"tools.jsonl: {row['tool_id'][:120]!r} is not the id of its row's tool")
    listed = {name: tuple(row[name]) for name in ("marketplaces", "flags")}
    row.pop("reliability", None)  # of folders written before it stood beside the index
    return Tool(**{**row, **listed})


def _read_views(
    folder: Path, held: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int]
) -> tuple[np.ndarray, dict[str, View]]:
    """The views, and the one array that those every query is held against are slices of."""
    found = {}
    for name, of in held.items():
        mapped = np.load(folder / f"view-{name}.npy", mmap_mode="r")
        found[name] = check_vectors(mapped, of["rows"], f"view-{name}.npy")
    dim = found[BLOCK[0]].shape[1]
    for name, vectors in found.items():
        if vectors.shape[1] != dim:
            raise ValueError(
                f"view-{name}.npy has {vectors.shape[1]} numbers a row, expected {dim}"
            )
    block = np.concatenate([found[name] for name in BLOCK])
    end = 0
    for name in BLOCK:
        start, end = end, end + len(found[name])
        found[name] = block[start:end]
    owners = {}
    for name, of in held.items():
        places = read_array(folder / f"view-{name}.owner.npy")
        owners[name] = check_places(
            places, of["rows"], sizes[of["level"]], f"view-{name}.owner.npy"
        )
    return block, {name: View(found[name], owners[name], of["level"]) for name, of in held.items()}


def _read_field(folder: Path, name: str, size: int, stemmed: bool) -> BM25:
    terms = json.loads((folder / f"bm25-{name}.terms.json").read_bytes())
    path = folder / f"bm25-{name}.npz"
    starts, documents, weights = read_arrays(path, ("starts", "documents", "weights"))
    check_starts(starts, len(terms), len(documents), path.name)
    check_places(documents, len(weights), size, path.name)
    return BM25(
        terms={term: place for place, term in enumerate(terms)},
        starts=starts,
        documents=documents,
        weights=check_finite(weights, f"{path.name}: weights"),
        size=size,
        stemmed=stemmed,
    )
