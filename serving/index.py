"""The router's index: one immutable folder a version, and the pointer to the version served.

    router/<version>/index.json    version, release, embedder, adapter, counts
                     tools.jsonl   what a hit says about each tool
                     vectors.npy   float32 [tools, dim], unit rows
                     lexical.npz   BM25 arrays;  terms.json  its words
    router/HEAD.json               {version, release, at}: moves after the folder is whole

What belongs here: building, loading and pointing. What does not: scoring (`router.py`), and what
goes into a release (`training/champion.py`). No torch and no dagster here, nor below.
"""

import io
import json
import shutil
import time
import uuid
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import tool_text
from assets.vectors.embed import MiniLM
from assets.vectors.index import contract_of, embed_texts, text_digest
from assets.vectors.lexical import BM25
from warehouse.digest import digest
from warehouse.files import write_atomically
from warehouse.lance import LanceStore

FORMAT = 1
_DESCRIPTION = 400  # characters of a description that a hit carries


class IndexMissing(RuntimeError):
    """There is no router index to search."""


class IndexBroken(RuntimeError):
    """An index folder is incomplete, or was made by another format or embedder."""


@dataclass(frozen=True)
class Entry:
    """One tool in the index."""

    tool_id: str  # "<server_id>::<tool>"
    server_id: str
    tool: str
    description: str
    contract_digest: str
    text: str
    marketplaces: tuple[str, ...]


@dataclass(frozen=True)
class Index:
    """A loaded version: everything a query needs except the encoder."""

    version: str
    release: str
    embedder: str
    adapter: str | None
    entries: list[Entry]
    vectors: np.ndarray
    lexical: BM25


def entries_of(rows: Iterable[Mapping[str, Any]]) -> list[Entry]:
    """Index entries from snapshot rows; a tool listed on several marketplaces is one entry."""
    found: dict[str, Entry] = {}
    for row in sorted(rows, key=lambda r: (r["server_id"], r["tool"], r["marketplace"])):
        tool_id = f"{row['server_id']}::{row['tool']}"
        known = found.get(tool_id)
        if known:
            where = (*known.marketplaces, row["marketplace"])
            found[tool_id] = Entry(**{**known.__dict__, "marketplaces": where})
            continue
        contract = contract_of(row)
        found[tool_id] = Entry(
            tool_id=tool_id,
            server_id=row["server_id"],
            tool=row["tool"],
            description=contract.get("description", "")[:_DESCRIPTION],
            contract_digest=row["contract_digest"],
            text=tool_text(contract),
            marketplaces=(row["marketplace"],),
        )
    return list(found.values())


def index_version(entries: Sequence[Entry], embedder: str, release: str) -> str:
    """The name of the index these inputs make: by what went in, not by floating-point rounding."""
    facts = [[e.tool_id, e.contract_digest, text_digest(e.text)] for e in entries]
    return digest({"format": FORMAT, "tools": facts, "embedder": embedder, "release": release})


def build_index(
    home: Path,
    entries: Sequence[Entry],
    vectors: np.ndarray,
    *,
    embedder: str,
    adapter: str | None = None,
    release: str = "-",
) -> str:
    """Writes `<home>/router/<version>/` and returns the version; an existing version is kept.

    `vectors` [len(entries), dim] are unit rows by `embedder`; `adapter` is the digest of the model
    under `<home>/models` that the embedder merges, or None for the base model.
    """
    if vectors.shape[0] != len(entries) or not len(entries):
        raise ValueError(f"router index: {len(entries)} tools but {vectors.shape[0]} vectors")
    version = index_version(entries, embedder, release)
    target = home / "router" / version
    if (target / "index.json").exists():
        return version
    beside = home / "router" / f".{version}.{uuid.uuid4().hex[:8]}"
    beside.mkdir(parents=True)
    try:
        _write(beside, entries, vectors)
        facts = {"embedder": embedder, "adapter": adapter, "release": release}
        meta = {"format": FORMAT, "version": version, **facts, "tools": len(entries)}
        (beside / "index.json").write_text(json.dumps(meta, indent=1))
        if target.exists():  # a folder without index.json: what a kill left
            shutil.rmtree(target)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)
    return version


def make_router_index(
    home: Path, rows: Iterable[Mapping[str, Any]], store: LanceStore, retriever: str, release: str
) -> str:
    """Builds the index of a release from snapshot rows and serves it; returns its version.

    `retriever` is "base" or the digest of an adapter under `<home>/models`. Only texts whose
    vector the store lacks are embedded.
    """
    adapter = None if retriever == "base" else retriever
    embedder = MiniLM(home / "models" / adapter if adapter else None)
    entries = entries_of(rows)
    vectors = embed_texts([entry.text for entry in entries], embedder, store)
    version = build_index(
        home, entries, vectors, embedder=embedder.id, adapter=adapter, release=release
    )
    point_to(home, version)
    return version


def point_to(home: Path, version: str) -> None:
    """Serves `version` from now on; a running router notices at its next query."""
    index = load_index(home, version)
    path = home / "router" / "HEAD.json"
    if path.exists() and json.loads(path.read_bytes())["version"] == version:
        return
    head = {"version": version, "release": index.release, "at": time.time()}
    write_atomically(path, json.dumps(head).encode())


def served_version(home: Path) -> str:
    """The version that HEAD names. Raises IndexMissing with the mend."""
    head = home / "router" / "HEAD.json"
    if not head.exists():
        raise IndexMissing(
            f"no router index under {home}: found no router/HEAD.json, expected the one that a"
            " night publishes; run `make run` first, or point TOOLMILL_HOME at the data folder"
        )
    return json.loads(head.read_bytes())["version"]


def load_index(home: Path, version: str) -> Index:
    """Reads one version into memory. Raises IndexBroken naming what is wrong."""
    folder = home / "router" / version
    try:
        meta = json.loads((folder / "index.json").read_bytes())
        if meta["format"] != FORMAT:
            raise IndexBroken(f"router index {version[:12]}: format {meta['format']}, not {FORMAT}")
        lines = (folder / "tools.jsonl").read_text().splitlines()
        rows = [json.loads(line) for line in lines]
        vectors = np.load(folder / "vectors.npy")
        with np.load(folder / "lexical.npz") as arrays:
            lexical = BM25(
                terms=json.loads((folder / "terms.json").read_bytes()),
                starts=arrays["starts"],
                documents=arrays["documents"],
                weights=arrays["weights"],
                size=len(rows),
            )
    except (OSError, ValueError, KeyError) as error:
        raise IndexBroken(
            f"router index {version[:12]} in {folder}: {error}; delete the folder and materialize"
            " router_index again"
        ) from error
    if len(vectors) != len(rows):
        raise IndexBroken(
            f"router index {version[:12]}: {len(vectors)} vectors for {len(rows)} tools"
        )
    entries = [Entry(**{**row, "marketplaces": tuple(row["marketplaces"])}) for row in rows]
    named = {name: meta[name] for name in ("version", "release", "embedder", "adapter")}
    return Index(**named, entries=entries, vectors=vectors, lexical=lexical)


def _write(folder: Path, entries: Sequence[Entry], vectors: np.ndarray) -> None:
    rows = "".join(json.dumps(asdict(e), ensure_ascii=False) + "\n" for e in entries)
    (folder / "tools.jsonl").write_text(rows)
    np.save(folder / "vectors.npy", np.ascontiguousarray(vectors, np.float32))
    lexical = BM25.build([f"{entry.tool}\n{entry.text}" for entry in entries])
    buffer = io.BytesIO()
    np.savez(buffer, starts=lexical.starts, documents=lexical.documents, weights=lexical.weights)
    (folder / "lexical.npz").write_bytes(buffer.getvalue())
    (folder / "terms.json").write_text(json.dumps(lexical.terms, ensure_ascii=False))
