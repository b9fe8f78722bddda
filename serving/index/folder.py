"""Reading the router's index: one immutable folder a version, and the pointer to the served one.

router/<version>/index.json        format, version, release, embedder, adapter, counts, files
                 tools.jsonl       what a hit says about each tool
                 servers.jsonl     name, description and summary of each server
                 contracts.jsonl   the whole contracts;  contracts.starts.npy  their byte offsets
                 recipes.jsonl     how each server is launched, if known
                 twins.npy         place of the first tool with the same text
                 view-<name>.npy   float32 [rows, dim], unit rows;  .owner.npy  whose they are
                 bm25-<field>.npz  an inverted index a field;  .terms.json  its words
                 search/           of a large index: what finds candidates (`search_table.py`)
                 history.json      optional: contract history (`assets/contracts/rename_history.py`)
                 reranker.npz      optional: a trained reranker
router/HEAD.json                   {version, release, at}: moves after the folder is complete
"""

import io
import json
import mmap
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.tool_id import ToolId
from assets.vectors.lexical import BM25
from assets.vectors.texts import SERVER_VIEWS
from serving.index.model import (
    BLOCK,
    FORMAT,
    SERVER,
    TOOL,
    IndexBroken,
    IndexedServer,
    IndexedTool,
    IndexMissing,
    RouterIndex,
    VectorView,
)
from serving.index.search_table import FOLDER as SEARCH_FOLDER
from serving.index.search_table import SearchTables
from warehouse.errors import describe_unreadable
from warehouse.storage.files import PointerBroken, read_pointer

_ROWS = 8_192  # rows looked at together: a view that is mapped stays out of memory
_LONGEST = 1.02  # of a unit row's square, after rounding
_HEADER = 65_600  # bytes that the longest header of an array's file has


def read_array(path: Path) -> np.ndarray:
    """A read-only .npy array. Raises OSError, ValueError for a header beyond the file."""
    return _parse_array(path.read_bytes(), path.name)


def read_arrays(path: Path, names: Sequence[str], *, mapped: bool = False) -> list[np.ndarray]:
    """These arrays of a .npz file, in their order, read only; mapped, not read, if asked for.
    Raises ValueError, KeyError, OSError, BadZipFile."""
    most, arrays = path.stat().st_size, []
    with zipfile.ZipFile(path) as archive:
        for name in names:
            about = archive.getinfo(f"{name}.npy")
            if about.compress_type != zipfile.ZIP_STORED or about.file_size > most:
                raise ValueError(
                    f"{path.name}: {name} is compressed, expected it as np.savez writes"
                )
            member = f"{path.name}: {name}"
            data = _map_member(path, about) if mapped else archive.read(about)
            arrays.append(_parse_array(data, member))
    return arrays


def _map_member(path: Path, about: zipfile.ZipInfo) -> memoryview:
    """The bytes of a member that is stored as it is, mapped."""
    with path.open("rb") as file:
        data = memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))
    head = about.header_offset
    name, extra = (int.from_bytes(data[head + at : head + at + 2], "little") for at in (26, 28))
    start = head + 30 + name + extra
    return data[start : start + about.file_size]


def _parse_array(data: bytes | memoryview, name: str) -> np.ndarray:
    file = io.BytesIO(data[:_HEADER])
    if np.lib.format.read_magic(file) != (1, 0):
        raise ValueError(f"{name}: no array of format 1.0")
    shape, by_column, kind = np.lib.format.read_array_header_1_0(file)
    if by_column or kind.hasobject:
        raise ValueError(f"{name}: {kind} by column or of objects, expected numbers by row")
    return np.frombuffer(data, kind, offset=file.tell()).reshape(shape)


def check_places(places: np.ndarray, rows: int, most: int, name: str) -> np.ndarray:
    """`places` [rows] where each is one of `most`. Raises ValueError."""
    if places.shape != (rows,) or places.dtype.kind != "i":
        raise ValueError(f"{name}: {places.dtype} {places.shape}, expected integers ({rows},)")
    if rows and not 0 <= int(places.min()) <= int(places.max()) < most:
        raise ValueError(f"{name}: {places.min()} to {places.max()}, expected 0 to {most - 1}")
    return places


def check_starts(starts: np.ndarray, rows: int, end: int, name: str) -> np.ndarray:
    """`starts` [rows + 1] where they rise from 0 to `end`. Raises ValueError."""
    check_places(starts, rows + 1, end + 1, name)
    if starts[0] != 0 or starts[-1] != end or (np.diff(starts) < 1).any():
        raise ValueError(f"{name}: does not rise from 0 to {end}")
    return starts


def check_vectors(vectors: np.ndarray, rows: int, name: str) -> np.ndarray:
    """`vectors` [rows, dim] of float32, none longer than 1. Raises ValueError."""
    if vectors.ndim != 2 or len(vectors) != rows or vectors.dtype != np.float32:
        raise ValueError(f"{name}: {vectors.dtype} {vectors.shape}, expected float32 ({rows}, dim)")
    for start in range(0, rows, _ROWS):
        squares = np.square(vectors[start : start + _ROWS]).sum(1)
        wrong = np.flatnonzero(~(squares <= _LONGEST))  # not a number is not less either
        if len(wrong):
            norm = float(squares[wrong[0]]) ** 0.5
            raise ValueError(f"{name}: row {start + wrong[0]} has norm {norm}, expected 1")
    return vectors


def check_finite(values: np.ndarray, name: str) -> np.ndarray:
    if values.dtype.kind != "f" or not np.isfinite(values).all():
        raise ValueError(f"{name}: holds what is no finite number")
    return values


def check_texts(row: Mapping[str, Any], names: Sequence[str]) -> None:
    for name in names:
        if not isinstance(row[name], str):
            raise ValueError(f"{name} is {row[name]!r:.60}, expected a text")


# What reading JSON, NumPy's files and archives raises for a file that somebody else wrote.
_UNREADABLE = (
    OSError, ValueError, LookupError, TypeError, AttributeError, EOFError, RuntimeError,
    MemoryError, ArithmeticError, zipfile.BadZipFile,
)  # fmt: skip
REBUILD = (
    "build it again: materialize router_index, or `toolmill index SERVERS.jsonl --out` this folder"
)


def read_served_version(place: Path) -> str:
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


def load_index(place: Path, version: str) -> RouterIndex:
    """Reads one version. Raises IndexMissing or IndexBroken naming what is wrong and the fix. Views
    that a query looks at for some hundred tools are mapped, not read."""
    folder = place / "router" / version
    if not folder.is_dir():
        raise IndexMissing(f"no router index {version[:12]} under {place}/router; {REBUILD}")
    name = f"router index {version[:12]} in {folder}"
    try:
        meta = json.loads((folder / "index.json").read_bytes())
        if meta.get("format") != FORMAT:
            actual = f"format {meta.get('format')}, expected {FORMAT}"
            raise IndexBroken(f"{name}: {actual}; {REBUILD}")
        for file, size in meta["files"].items():
            if (actual := (folder / file).stat().st_size) != size:
                raise ValueError(f"{file} has {actual} bytes, expected {size}")
        index = _read_version(folder, meta)
        index.warm()
        return index
    except IndexBroken:
        raise
    except _UNREADABLE as error:
        message = describe_unreadable(error)
        raise IndexBroken(f"{name}: {message}; delete the folder and {REBUILD}") from error


def _read_version(folder: Path, meta: Mapping[str, Any]) -> RouterIndex:
    tools = [_read_tool(row) for row in _read_lines(folder / "tools.jsonl")]
    servers = [_read_server(row) for row in _read_lines(folder / "servers.jsonl")]
    if len(tools) != meta["counts"]["tools"] or len(servers) != meta["counts"]["servers"]:
        raise ValueError(f"{len(tools)} tools, expected {meta['counts']['tools']}")
    check_places(np.array([tool.server for tool in tools]), len(tools), len(servers), "tools.jsonl")
    large = bool(meta.get("search"))
    sizes = {TOOL: len(tools), SERVER: len(servers)}
    block, views = _read_views(folder, meta["views"], sizes, large)
    starts = read_array(folder / "contracts.starts.npy")
    end = (folder / "contracts.jsonl").stat().st_size
    return RouterIndex(
        **{name: meta[name] for name in ("version", "release", "embedder", "adapter")},
        tools=tools,
        servers=servers,
        views=views,
        block=block,
        fields={
            name: _read_field(folder, name, mapped=large, **facts)
            for name, facts in meta["fields"].items()
        },
        twins=check_places(read_array(folder / "twins.npy"), len(tools), len(tools), "twins.npy"),
        recipes={row["server_id"]: row["recipe"] for row in _read_lines(folder / "recipes.jsonl")},
        contracts=(folder / "contracts.jsonl").open("rb"),
        contract_starts=check_starts(starts, len(tools), end, "contracts.starts.npy"),
        reranker=meta.get("reranker"),
        folder=folder,
        search=_open_search(folder, sizes) if large else None,
    )


def _open_search(folder: Path, sizes: Mapping[str, int]) -> SearchTables:
    """The search tables. Raises ValueError where they hold other rows than the index."""
    tables = SearchTables(folder / SEARCH_FOLDER)
    rows, expected = tables.count_rows(), (sizes[TOOL], sizes[SERVER] * len(SERVER_VIEWS))
    if rows != expected:
        raise ValueError(f"{SEARCH_FOLDER}: tables of {rows} rows, expected {expected}")
    return tables


def _read_lines(path: Path) -> list[dict[str, Any]]:
    with path.open(encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def _read_server(row: dict[str, Any]) -> IndexedServer:
    check_texts(row, ("server_id", "name", "description", "summary"))
    return IndexedServer(**row)


def _read_tool(row: dict[str, Any]) -> IndexedTool:
    check_texts(row, ("tool_id", "server_id", "tool", "description", "contract_digest"))
    if row["tool_id"] != str(ToolId.of_row(row)):
        raise ValueError(f"tools.jsonl: {row['tool_id'][:120]!r} is not the id of its row's tool")
    row |= {name: tuple(row[name]) for name in ("marketplaces", "flags")}
    return IndexedTool(**row)


def _read_views(
    folder: Path, facts: Mapping[str, Mapping[str, Any]], sizes: Mapping[str, int], large: bool
) -> tuple[np.ndarray | None, dict[str, VectorView]]:
    """The block, and the views (its slices); a large index has all mapped and no block."""
    vectors = {}
    for name, of_view in facts.items():
        mapped = np.load(folder / f"view-{name}.npy", mmap_mode="r")
        vectors[name] = check_vectors(mapped, of_view["rows"], f"view-{name}.npy")
    dim = vectors[BLOCK[0]].shape[1]
    for name, rows in vectors.items():
        if rows.shape[1] != dim:
            raise ValueError(f"view-{name}.npy has {rows.shape[1]} numbers a row, expected {dim}")
    block, end = None if large else np.concatenate([vectors[name] for name in BLOCK]), 0
    if block is not None:
        for name in BLOCK:
            start, end = end, end + len(vectors[name])
            vectors[name] = block[start:end]
    views = {}
    for name, of_view in facts.items():
        file, level = f"view-{name}.owner.npy", of_view["level"]
        owners = check_places(read_array(folder / file), of_view["rows"], sizes[level], file)
        views[name] = VectorView(vectors[name], owners, level)
    return block, views


def _read_field(folder: Path, name: str, size: int, stemmed: bool, *, mapped: bool) -> BM25:
    terms = json.loads((folder / f"bm25-{name}.terms.json").read_bytes())
    path = folder / f"bm25-{name}.npz"
    names = ("starts", "documents", "weights")
    starts, documents, weights = read_arrays(path, names, mapped=mapped)
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
