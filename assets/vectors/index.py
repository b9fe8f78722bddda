"""Texts of tools and servers, their embedding into the vector store, and nearest tools."""

import json
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from assets.columns import read_table_spec
from assets.contracts.canonical import tool_text
from assets.vectors.encoders.embedder import Embedder, QueryEmbedder
from warehouse.item_failure import try_item
from warehouse.json_types import JsonObject, Row
from warehouse.progress import Progress, SilentProgress
from warehouse.storage.digest import digest
from warehouse.storage.lance import TEXTS, LanceStore, make_vector_key

TOOL, SERVER = "tool", "server"
INSTRUCTIONS = "instructions"  # the table of requests that were written
_CHUNK = 256  # texts embedded between two writes: what a kill can cost
_SERVER_TOOLS = 40  # tool names that a server's text lists

VECTORS = read_table_spec(__file__, "contract_vectors")


def read_contract(row: Row) -> dict[str, Any]:
    """The contract in a snapshot row, where it is stored as JSON text."""
    contract = row["contract"]
    return json.loads(contract) if isinstance(contract, str) else dict(contract)


def digest_text(text: str) -> str:
    """The name of one embedded text."""
    return digest({"text": text})


def build_server_text(server_id: str, contracts: Sequence[JsonObject]) -> str:
    """The one text of a server, made from its id and its tools, in an order of its own."""
    kind, _, name = server_id.partition(":")
    tools = sorted(tool_text(contract, "name") for contract in contracts)
    names = ", ".join(tools[:_SERVER_TOOLS])
    return f"{(name or kind).replace('/', ' ').lstrip('@')} server\ntools: {names}"


def build_texts(rows: Iterable[Row]) -> list[dict[str, Any]]:
    """Membership rows without `embedder`, with `text`: one per tool and one per server. rows:
    snapshot rows; a tool whose text fails is known by its name alone."""
    out: list[dict[str, Any]] = []
    servers: dict[tuple[str, str], list[dict[str, Any]]] = defaultdict(list)
    for row in rows:
        contract, text = read_text(row)
        servers[row["marketplace"], row["server_id"]].append(contract)
        out.append(_build_member(row, TOOL, row["tool"], row["contract_digest"], text))
    for (marketplace, server_id), contracts in servers.items():
        owner = {"marketplace": marketplace, "server_id": server_id}
        out.append(_build_member(owner, SERVER, "", None, build_server_text(server_id, contracts)))
    return out


def read_text(row: Row) -> tuple[dict[str, Any], str]:
    """(contract, text to embed) of a snapshot row; its name alone where nobody foresaw why not."""

    def read() -> tuple[dict[str, Any], str]:
        contract = read_contract(row)
        return contract, tool_text(contract)

    return try_item(read, lambda _: ({"name": row["tool"]}, row["tool"]))


def embed_contracts(
    rows: Iterable[Row], embedder: Embedder, store: LanceStore, progress: Progress | None = None
) -> list[dict[str, Any]]:
    """Rows of VECTORS for snapshot rows; embeds only the texts that the store lacks."""
    members = build_texts(rows)
    texts = {make_vector_key(m["text_digest"], embedder.id): m for m in members}
    due = {key: texts[key] for key in store.find_missing(texts)}
    progress = progress or SilentProgress()
    _fill_store(due, embedder, store, TEXTS, lambda at, due: progress.update("embed", at, due))
    columns = [name for name in VECTORS.columns if name != "embedder"]
    return [{**{name: m[name] for name in columns}, "embedder": embedder.id} for m in members]


def embed_texts(
    texts: Sequence[str],
    embedder: Embedder,
    store: LanceStore,
    *,
    table: str = TEXTS,
    on_done: Callable[[int, int], None] | None = None,
) -> np.ndarray:
    """Vectors of any texts, float32 [len(texts), dim], through the store's `table`; `on_done(done,
    due)` after each write."""
    names = [digest_text(text) for text in texts]
    keys = [make_vector_key(name, embedder.id) for name in names]
    members = {
        key: {"text_digest": name, "kind": TOOL, "text": text}
        for key, name, text in zip(keys, names, texts, strict=True)
    }
    vectors = store.find_vectors(keys, table)
    due = {key: member for key, member in members.items() if key not in vectors}
    vectors |= _fill_store(due, embedder, store, table, on_done or (lambda done, due: None))
    return np.stack([vectors[key] for key in keys]) if keys else np.zeros((0, 0), np.float32)


def embed_either_kind(
    texts: Sequence[str], is_query: bool, embedder: Embedder, store: LanceStore
) -> np.ndarray:
    """Vectors of requests or of tools, float32 [len(texts), dim], through the table of their sort;
    an embedder that reads questions otherwise is asked them each time."""
    if is_query and isinstance(embedder, QueryEmbedder):
        return embedder.embed_queries(texts)
    return embed_texts(texts, embedder, store, table=INSTRUCTIONS if is_query else TEXTS)


def _fill_store(
    due: Mapping[str, Row],
    embedder: Embedder,
    store: LanceStore,
    table: str,
    on_done: Callable[[int, int], None],
) -> dict[str, np.ndarray]:
    """Embeds and stores texts by key; returns their vectors, float32 [dim], by key."""
    vectors_by_key: dict[str, np.ndarray] = {}
    ordered = sorted(due.items(), key=lambda entry: entry[1]["text_digest"])
    for start in range(0, len(ordered), _CHUNK):
        chunk = ordered[start : start + _CHUNK]
        vectors = embedder.embed([member["text"] for _, member in chunk]).astype(np.float32)
        rows = [
            {**{name: member[name] for name in ("text_digest", "kind", "text")},
             "key": key, "embedder": embedder.id, "vector": vector}
            for (key, member), vector in zip(chunk, vectors, strict=True)
        ]  # fmt: skip
        store.insert(rows, table)
        vectors_by_key.update(zip([key for key, _ in chunk], vectors, strict=True))
        on_done(start + len(chunk), len(due))
    return vectors_by_key


def find_norm_flaws(members: Iterable[Row], store: LanceStore) -> list[str]:
    """The audit's question: which member rows have no vector in the store, or not a unit one."""
    member_rows = list(members)
    keys = [make_vector_key(member["text_digest"], member["embedder"]) for member in member_rows]
    lacking = store.find_missing(keys)
    if lacking:
        return sorted(f"{key}: no vector" for key in lacking)
    norms = np.linalg.norm(store.vectors(keys), axis=1) if keys else np.zeros(0)
    return [f"{key}: norm {n:.4f}" for key, n in zip(keys, norms, strict=True) if abs(n - 1) > 1e-3]


def _build_member(
    owner: Row, kind: str, tool: str, contract: str | None, text: str
) -> dict[str, Any]:
    return {
        "marketplace": owner["marketplace"],
        "server_id": owner["server_id"],
        "tool": tool,
        "kind": kind,
        "contract_digest": contract,
        "text_digest": digest_text(text),
        "text": text,
    }


# Above the first two texts are one tool under two names: nobody could tell them apart. Below the
# second (of MiniLM) tools have nothing in common, and choosing among them proves nothing.
TWIN, ALIKE = 0.97, 0.3
_MOST = 8
_BLOCK = 256  # rows whose products are computed together


class NearTools:
    """Contracts most like one of `rows`, twins left out; matrix: float32 unit vectors [rows,
    dim]."""

    def __init__(self, rows: Sequence[Row], matrix: np.ndarray) -> None:
        self._rows, self._matrix = list(rows), matrix
        self._place = {(row["server_id"], row["tool"]): at for at, row in enumerate(rows)}
        self._nearest: dict[int, list[int]] = {}

    def __call__(self, row: Row) -> list[Row]:
        place = self._place[row["server_id"], row["tool"]]
        if place not in self._nearest:
            self._nearest |= self._rank_block(place - place % _BLOCK)
        return [self._rows[at] for at in self._nearest[place]]

    def _rank_block(self, start: int) -> dict[int, list[int]]:
        """Place -> the places nearest to it, of the rows from `start` on."""
        # Rounded, because the last bits of a product depend on the machine and on its neighbours.
        products = np.round(self._matrix[start : start + _BLOCK] @ self._matrix.T, 4)
        return {start + at: self._rank(start + at, alike) for at, alike in enumerate(products)}

    def _rank(self, place: int, alike: np.ndarray) -> list[int]:
        fits = np.flatnonzero((alike >= ALIKE) & (alike < TWIN))
        fits = fits[fits != place]
        if len(fits) > _MOST:  # only these need an order; what equals the last of them among them
            fits = fits[alike[fits] >= np.partition(alike[fits], -_MOST)[-_MOST]]
        return sorted(fits.tolist(), key=lambda at: (-alike[at], self._name(at)))[:_MOST]

    def _name(self, at: int) -> tuple[str, str]:
        return self._rows[at]["server_id"], self._rows[at]["tool"]


def find_near_rows(rows: Sequence[Row], embedder: Embedder, store: LanceStore) -> NearTools:
    """`NearTools` over snapshot rows, through the vector store."""
    texts = [read_text(row)[1] for row in rows]
    matrix = embed_texts(texts, embedder, store) if rows else np.zeros((0, embedder.dim))
    return NearTools(rows, matrix)
