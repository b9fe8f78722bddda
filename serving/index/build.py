"""Building a version of the index: its content in one order, every file or nothing, the pointer."""

import json
import re
import shutil
import time
import uuid
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np

from assets.contracts.canonical import iterate_parameters
from assets.contracts.rename_history import HISTORY_FILE, write_history
from assets.contracts.tool_id import ToolId
from assets.vectors.encoders.embedder import Embedder
from assets.vectors.encoders.minilm import MiniLM
from assets.vectors.encoders.saved import save_encoder
from assets.vectors.index import digest_text, embed_texts
from assets.vectors.lexical import BM25, split_words, stem_words
from assets.vectors.texts import (
    ASKED,
    FULL,
    PLAIN_FIELDS,
    SERVER_FIELD,
    SERVER_VIEWS,
    TOOL_FIELDS,
    TOOL_VIEWS,
    build_server_field,
    build_server_views,
    build_tool_fields,
    build_tool_views,
    split_id,
)
from serving.index.folder import REBUILD, load_index, read_served_version
from serving.index.model import (
    DESCRIPTION,
    FORMAT,
    RERANKER_FILE,
    SERVER,
    TOOL,
    UNVERIFIED,
    IndexBroken,
    IndexedServer,
    IndexedTool,
    IndexMissing,
    IndexSource,
    RouterIndex,
)
from serving.index.search_table import FOLDER as SEARCH_FOLDER
from serving.index.search_table import SEARCH_FROM, SERVERS, TOOLS, WORD_FIELDS, write_table
from warehouse.progress import Progress, SilentProgress
from warehouse.sanitize.markdown import Markdown, make_markdown_table
from warehouse.storage.digest import digest
from warehouse.storage.files import read_pointer, write_pointer
from warehouse.storage.lance import TEXTS, LanceStore, make_vector_key

Embed = Callable[[Sequence[str]], np.ndarray]
ReportStep = Callable[[str, int, int], None]  # what is done, how much of it, of how much
_SEPARATORS = re.compile(r"[\W_]+")
_MOST_REQUESTS = 8  # requests of one contract that become vectors


@dataclass(frozen=True)
class IndexContent:
    """A source in its one order. `asked`: (place, request); `moves`: history file, or empty."""

    tools: list[IndexedTool]
    contracts: list[dict[str, Any]]
    servers: list[IndexedServer]
    asked: list[tuple[int, str]]
    recipes: dict[str, Mapping[str, Any]]
    moves: bytes = b""


def build_index(
    place: Path,
    source: IndexSource,
    embed: Embed,
    *,
    embedder: str,
    adapter: str | None = None,
    release: str = "-",
    reranker: Path | None = None,
    progress: ReportStep | None = None,
    search_from: int = SEARCH_FROM,
) -> str:
    """Writes `<place>/router/<version>/` unless whole already, and returns the version, which the
    source in any order names. `embed` gives a view's texts unit rows by `embedder`; `adapter`:
    digest of its model, None for the base; `reranker`: its file, in a folder of the model's name;
    from `search_from` tools on LanceDB searches. Raises ValueError for a source without tools."""
    content = order_content(source)
    if not content.tools:
        raise ValueError("router index: 0 tools given, expected at least one clear contract")
    ranker = reranker.parent.name if reranker else None
    large = len(content.tools) >= search_from
    version = compute_version(content, embedder, release, ranker, large)
    try:
        load_index(place, version)
        return version
    except IndexMissing:
        pass
    except IndexBroken:
        shutil.rmtree(place / "router" / version)
    facts = {"format": FORMAT, "version": version, "release": release, "embedder": embedder}
    facts |= {"adapter": adapter, "reranker": ranker, "search": large}
    _write_version(place, content, embed, facts, reranker, progress or (lambda *_: None))
    return version


def move_pointer(place: Path, version: str) -> None:
    """Serves `version` from now on; a running router notices at its next query."""
    index = load_index(place, version)
    path = place / "router" / "HEAD.json"
    if (read_pointer(path, REBUILD) or {}).get("version") != version:
        write_pointer(path, {"version": version, "release": index.release, "at": time.time()})


def order_content(source: IndexSource) -> IndexContent:
    """Tools ordered by id; a tool listed on several marketplaces is one tool."""
    tools: dict[str, IndexedTool] = {}
    contracts: dict[str, dict[str, Any]] = {}
    columns = ("server_id", "tool", "marketplace", "contract_digest")
    for row in sorted(source.rows, key=lambda row: tuple(row[name] for name in columns)):
        tool_id, flags = str(ToolId.of_row(row)), row.get("flags") or ()
        if (tool := tools.get(tool_id)) is not None:
            marketplaces = tuple(sorted({*tool.marketplaces, row["marketplace"]}))
            flags = tuple(sorted({*tool.flags, *flags}))
            tools[tool_id] = replace(tool, marketplaces=marketplaces, flags=flags)
            continue
        contract = row["contract"]
        contract = json.loads(contract) if isinstance(contract, str) else dict(contract)
        hint = (contract.get("annotations") or {}).get("readOnlyHint")
        contracts[tool_id] = contract
        tools[tool_id] = IndexedTool(
            tool_id=tool_id,
            server_id=row["server_id"],
            tool=row["tool"],
            description=contract.get("description", "")[:DESCRIPTION],
            contract_digest=row["contract_digest"],
            marketplaces=(row["marketplace"],),
            flags=tuple(sorted(flags)),
            read_only=hint if isinstance(hint, bool) else None,
        )
    ids = sorted({tool.server_id for tool in tools.values()})
    places = {server_id: place for place, server_id in enumerate(ids)}
    ordered = [replace(tool, server=places[tool.server_id]) for tool in tools.values()]
    requests = [
        (place, text)
        for place, tool in enumerate(ordered)
        for text in list(source.instructions.get(tool.contract_digest, ()))[:_MOST_REQUESTS]
        # A copy that nobody launched would take the requests of the tool it copies.
        if text.strip() and UNVERIFIED not in tool.flags
    ]
    recipes = {name: source.recipes[name] for name in ids if name in source.recipes}
    servers = [_make_server(name, source.servers.get(name, {})) for name in ids]
    moves = write_history(source.moves) if source.moves else b""
    return IndexContent(ordered, list(contracts.values()), servers, requests, recipes, moves)


def _make_server(server_id: str, facts: Mapping[str, str]) -> IndexedServer:
    name = facts.get("name") or split_id(server_id)
    about, summary = facts.get("description") or "", facts.get("summary") or ""
    return IndexedServer(server_id, name, about, summary)


def compute_version(
    content: IndexContent, embedder: str, release: str, reranker: str | None, large: bool = False
) -> str:
    """The name of the index: a digest of its inputs, free of floating-point rounding."""
    facts = {
        "format": FORMAT,
        "tools": [asdict(tool) for tool in content.tools],
        "contracts": digest(content.contracts),
        "servers": [asdict(server) for server in content.servers],
        "asked": [[place, text] for place, text in content.asked],
        "recipes": content.recipes,
        "embedder": embedder,
        "release": release,
        "reranker": reranker,
        **({"moves": content.moves.decode()} if content.moves else {}),
        **({"search": True} if large else {}),
    }
    return digest(facts)


def find_twin_places(
    tools: Sequence[IndexedTool], contracts: Sequence[Mapping[str, Any]]
) -> np.ndarray:
    """The place of each tool's first twin (or itself), int32 [tools]. Twins have equal contracts,
    or one name but for case and separators, one non-empty description and the same parameter names.
    An unverified tool is no twin of a launched one."""
    first: dict[Any, int] = {}
    twins = np.arange(len(tools), dtype=np.int32)
    for place, (tool, contract) in enumerate(zip(tools, contracts, strict=True)):
        about = " ".join(contract.get("description", "").split())
        name = _SEPARATORS.sub("", contract["name"].lower())
        signatures: list[Any] = [tool.contract_digest]
        if about and name:
            names = tuple(parameter for parameter, _ in iterate_parameters(contract))
            signatures.append((name, about, names))
        keys = [(signature, tool.unverified) for signature in signatures if signature]
        twins[place] = min((first[key] for key in keys if key in first), default=place)
        for key in keys:
            first.setdefault(key, int(twins[place]))
    return twins


def _write_version(
    place: Path,
    content: IndexContent,
    embed: Embed,
    facts: Mapping[str, Any],
    reranker: Path | None,
    progress: ReportStep,
) -> None:
    target = place / "router" / facts["version"]
    beside = place / "router" / f".{facts['version']}.{uuid.uuid4().hex[:8]}"
    beside.mkdir(parents=True)
    try:
        views = _write_views(beside, content, embed, progress)
        _write_rows(beside, content)
        fields = _write_fields(beside, content)
        if facts["search"]:
            progress("search tables", 0, 1)
            _write_search(beside, content, _find_search_base(place, facts["embedder"], progress))
        if content.moves:
            (beside / HISTORY_FILE).write_bytes(content.moves)
        if reranker is not None:
            shutil.copyfile(reranker, beside / RERANKER_FILE)
        files = {
            str(path.relative_to(beside)): path.stat().st_size
            for path in sorted(beside.rglob("*"))
            if path.is_file()
        }
        counts = {
            name: len(getattr(content, name)) for name in ("tools", "servers", "asked", "recipes")
        }
        meta = {**facts, "counts": counts, "views": views, "fields": fields, "files": files}
        (beside / "index.json").write_text(json.dumps(meta, indent=1))
        if target.exists():  # without index.json: left by a killed process
            shutil.rmtree(target)
        beside.rename(target)
    finally:
        shutil.rmtree(beside, ignore_errors=True)


def _write_views(
    folder: Path, content: IndexContent, embed: Embed, progress: ReportStep
) -> dict[str, dict[str, Any]]:
    of_tools = [build_tool_views(contract) for contract in content.contracts]
    by_server: dict[int, list[dict[str, Any]]] = defaultdict(list)
    for tool, contract in zip(content.tools, content.contracts, strict=True):
        by_server[tool.server].append(contract)
    of_servers = [
        build_server_views(server.name, server.description, server.summary, by_server[at])
        for at, server in enumerate(content.servers)
    ]
    texts: dict[str, tuple[str, list[str], list[int] | None]]
    texts = {name: (TOOL, [views[name] for views in of_tools], None) for name in TOOL_VIEWS}
    texts |= {name: (SERVER, [views[name] for views in of_servers], None) for name in SERVER_VIEWS}
    if content.asked:
        owners = [place for place, _ in content.asked]
        texts[ASKED] = (TOOL, [text for _, text in content.asked], owners)
    views = {}
    for done, (name, (level, lines, owners)) in enumerate(texts.items()):
        progress(f"embed {name}", done, len(texts))
        places = np.arange(len(lines)) if owners is None else np.array(owners)
        np.save(folder / f"view-{name}.npy", _embed_once(lines, embed))
        np.save(folder / f"view-{name}.owner.npy", places.astype(np.int32))
        views[name] = {"level": level, "rows": len(lines)}
    progress("embedded", len(texts), len(texts))
    return views


def _embed_once(texts: Sequence[str], embed: Embed) -> np.ndarray:
    """One vector a text; a text that several tools share is embedded once."""
    unique = list(dict.fromkeys(texts))
    rows = {text: row for row, text in enumerate(unique)}
    vectors = np.asarray(embed(unique), np.float32)
    if len(vectors) != len(unique):
        raise ValueError(f"router index: {len(unique)} texts but {len(vectors)} vectors")
    return np.ascontiguousarray(vectors[[rows[text] for text in texts]])


def _write_rows(folder: Path, content: IndexContent) -> None:
    _write_lines(folder / "tools.jsonl", [asdict(tool) for tool in content.tools])
    _write_lines(folder / "servers.jsonl", [asdict(server) for server in content.servers])
    recipes = [{"server_id": name, "recipe": recipe} for name, recipe in content.recipes.items()]
    _write_lines(folder / "recipes.jsonl", recipes)
    lengths = _write_lines(folder / "contracts.jsonl", content.contracts)
    np.save(folder / "contracts.starts.npy", np.concatenate([[0], np.cumsum(lengths)]))
    np.save(folder / "twins.npy", find_twin_places(content.tools, content.contracts))


def _write_lines(path: Path, rows: Sequence[Any]) -> list[int]:
    """Writes JSON lines; returns the bytes of each, with its line break."""
    lines = [(json.dumps(row, ensure_ascii=False) + "\n").encode() for row in rows]
    path.write_bytes(b"".join(lines))
    return [len(line) for line in lines]


def _write_fields(folder: Path, content: IndexContent) -> dict[str, Any]:
    servers = [
        build_server_field(server.name, server.description, server.summary, server.server_id)
        for server in content.servers
    ]
    rows = [
        build_tool_fields(contract, servers[tool.server])
        for tool, contract in zip(content.tools, content.contracts, strict=True)
    ]
    texts = {name: [fields[name] for fields in rows] for name in TOOL_FIELDS}
    texts[SERVER_FIELD] = servers
    if content.asked:
        requests: dict[int, list[str]] = defaultdict(list)
        for place, text in content.asked:
            requests[place].append(text)
        texts[ASKED] = ["\n".join(requests[place]) for place in range(len(content.tools))]
    for name, lines in texts.items():
        words = BM25.build(lines, stemmed=name not in PLAIN_FIELDS)
        path = folder / f"bm25-{name}.npz"
        np.savez(path, starts=words.starts, documents=words.documents, weights=words.weights)
        terms = json.dumps(list(words.terms), ensure_ascii=False)
        (folder / f"bm25-{name}.terms.json").write_text(terms, encoding="utf-8")
    return {
        name: {"size": len(lines), "stemmed": name not in PLAIN_FIELDS}
        for name, lines in texts.items()
    }


def _find_search_base(place: Path, embedder: str, progress: ReportStep) -> Path | None:
    """The served version's search tables, the next one's start, if whole and of this encoder."""
    try:
        index = load_index(place, read_served_version(place))
    except IndexMissing:
        return None
    except IndexBroken as error:
        progress(f"search tables are written whole: {error}", 0, 1)
        return None
    if index.search is None or index.folder is None:
        return None
    if index.embedder != embedder:
        progress(f"search tables are written whole: the last are of {index.embedder}", 0, 1)
        return None
    return index.folder / SEARCH_FOLDER


def _write_search(folder: Path, content: IndexContent, base: Path | None) -> None:
    """Writes the tables that LanceDB searches, of the views and texts that the folder holds."""
    (folder / SEARCH_FOLDER).mkdir()
    servers = [
        build_server_field(server.name, server.description, server.summary, server.server_id)
        for server in content.servers
    ]
    words: dict[str, list[str]] = {name: [] for name in WORD_FIELDS}
    for tool, contract in zip(content.tools, content.contracts, strict=True):
        fields = build_tool_fields(contract, servers[tool.server])
        for name, lines in words.items():
            cut = split_words if name in PLAIN_FIELDS else stem_words
            lines.append(" ".join(cut(fields[name])))
    ids = [tool.tool_id for tool in content.tools]
    vectors = np.load(folder / f"view-{FULL}.npy", mmap_mode="r")
    write_table(folder / SEARCH_FOLDER, TOOLS, ids, vectors, words, base)
    views = [np.load(folder / f"view-{name}.npy", mmap_mode="r") for name in SERVER_VIEWS]
    keys = [f"{name}|{server.server_id}" for name in SERVER_VIEWS for server in content.servers]
    write_table(folder / SEARCH_FOLDER, SERVERS, keys, np.concatenate(views), {}, base)


VIEWS = "views"  # texts that only the router embeds; `texts` is searched for tools and servers


def make_router_index(
    home: Path,
    source: IndexSource,
    store: LanceStore,
    retriever: str,
    release: str,
    progress: Progress | None = None,
    serve: Callable[[Path, str], str | None] = move_pointer,
    encoder: Embedder | None = None,
    reranker: Path | None = None,
    search_from: int = SEARCH_FROM,
) -> str:
    """Builds a release's index and returns the version that `serve(home, version)` then serves.
    `retriever`: "base" or an adapter's digest, `encoder` it opened (if not MiniLM); `reranker`: a
    trained one's file. Only texts new to the store are embedded."""
    adapter = None if retriever == "base" else retriever
    encoder = encoder or MiniLM(home / "models" / adapter if adapter else None)
    save_encoder(encoder, home)
    step = progress or SilentProgress()
    version = build_index(
        home,
        source,
        lambda texts: embed_views(texts, encoder, store, step),
        embedder=encoder.id,
        adapter=adapter,
        release=release,
        reranker=reranker,
        progress=step.update,
        search_from=search_from,
    )
    store.compact(VIEWS)
    return serve(home, version) or version


def embed_views(
    texts: Sequence[str], encoder: Embedder, store: LanceStore, progress: Progress
) -> np.ndarray:
    """float32 [len(texts), dim]; vectors that `contract_vectors` has are read from there."""
    keys = {text: make_vector_key(digest_text(text), encoder.id) for text in dict.fromkeys(texts)}
    stored = store.find_vectors(keys.values(), TEXTS)
    vector_of = {text: stored[key] for text, key in keys.items() if key in stored}
    new = [text for text in keys if text not in vector_of]
    vectors = embed_texts(
        new,
        encoder,
        store,
        table=VIEWS,
        on_done=lambda done, of: progress.update("embed", done, of),
    )
    vector_of.update(zip(new, vectors, strict=True))
    return np.array([vector_of[text] for text in texts], np.float32).reshape(-1, encoder.dim)


def view_table(index: RouterIndex) -> Markdown:
    rows = [(name, view.level, len(view.vectors)) for name, view in index.views.items()]
    return make_markdown_table(["view", "of each", "vectors"], rows)
