"""`toolmill index` and `toolmill search`: an index of any file of servers, and questions to it.

<out>/router, encoders   as everywhere (`serving/index/folder.py`)
      source.json.zst    what the index was made of: `search --retriever` makes another of it
      lance/             vectors by text and encoder: what is known is not embedded again
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence, Set
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from assets.synthesis.judging.adhoc import ToolsFile, get_server_name, read_lines
from assets.synthesis.offline_summaries import make_readable, write_summary
from assets.vectors.encoders.embedder import Embedder
from serving.export import open_checked
from serving.index.folder import build_index, move_pointer
from serving.index.model import UNVERIFIED, IndexMissing, Source
from serving.ranking.query import check_ask
from serving.router import Ask, BadQuery, Router
from warehouse.errors import UnusableInput
from warehouse.progress import Progress, Silent
from warehouse.storage.files import write_atomically

AD_HOC = "ad hoc"
_TEXT_CAP = 4_000  # characters of a description that are read


def read_source(path: Path) -> tuple[Source, list[str]]:
    """The source of an index, and why tools were left out. A server a line: qualified_name (or
    server_id, or name), tools, and what is known of display_name, overview or description, tags.
    The tools of one that says `"unverified": true` carry that mark.

    Raises UnusableInput.
    """
    entries, skipped = [], []
    for at, server in read_lines(path):
        where = f"{path}, line {at}"
        if get_server_name(server):
            entries.append((_read_mark(server, where), server))
        else:
            skipped.append(f"{where}: a server without qualified_name, server_id and name")
    tools = ToolsFile()
    servers: dict[str, dict[str, str]] = {}
    for server in (one for marked, one in entries if not marked):
        servers[get_server_name(server)] = _describe_server(server)
        _add_tools(tools, server)
    launched = frozenset(tools.by_id)
    # After those that were launched, whatever the order of the lines: it takes no place of theirs.
    for server in (one for marked, one in entries if marked):
        servers.setdefault(get_server_name(server), _describe_server(server))
        _add_tools(tools, server, launched)
    if not tools.by_id:
        shape = '{"qualified_name": "…", "tools": [{"name": "…", "inputSchema": {…}}]}'
        why = next(iter([*tools.unusable.values(), *skipped]), "no tools found")
        raise UnusableInput(f"{path}: {why}; expected a server a line as {shape}")
    rows = [
        _make_row(name, key, tools) | ({} if key in launched else {"flags": (UNVERIFIED,)})
        for name in servers
        for key in tools.list_server_tools(name)
    ]
    for name, facts in servers.items():
        contracts = [tools.by_id[key] for key in tools.list_server_tools(name)]
        facts["summary"] = facts["summary"] or write_summary(
            facts["name"] or make_readable(name), contracts
        )
    held = {row["server_id"] for row in rows}
    about = {name: facts for name, facts in servers.items() if name in held}
    twice = [f"{key[:200]} stands more than once; the last is kept" for key in tools.repeated]
    return Source(rows, about, {}, {}), [*skipped, *sorted([*tools.unusable.values(), *twice])]


def _read_mark(server: Mapping[str, Any], where: str) -> bool:
    """Whether a server says that nobody launched it; nothing but true and false is read as one."""
    mark = server.get("unverified", False)
    if isinstance(mark, bool):
        return mark
    raise UnusableInput(f"{where}: unverified is {mark!r:.60}; expected true or false")


def _add_tools(tools: ToolsFile, server: Mapping[str, Any], keep: Set[str] = frozenset()) -> None:
    listed = server.get("tools")
    for tool in listed if isinstance(listed, list) else []:
        tools.add(get_server_name(server), tool, keep)


def _make_row(server: str, key: str, tools: ToolsFile) -> dict[str, Any]:
    return {
        "server_id": server,
        "tool": tools.by_id[key]["name"],
        "contract_digest": tools.digests[key],
        "contract": json.dumps(tools.by_id[key], ensure_ascii=False),
        "marketplace": AD_HOC,
    }


def _describe_server(server: Mapping[str, Any]) -> dict[str, str]:
    about = server.get("overview") or server.get("description") or ""
    tags = [tag for tag in server.get("tags") or [] if isinstance(tag, str)]
    text = str(about) if not tags else f"{about}\n{', '.join(tags)}"
    return {
        "name": str(server.get("display_name") or server.get("name") or "")[:200],
        "description": text[:_TEXT_CAP],
        "summary": str(server.get("summary") or "")[:_TEXT_CAP],
    }


_SOURCE = "source.json.zst"
_BATCH = 64  # queries that share one pass of the encoder


def index_command(
    servers: Path, out: Path, encoder: Embedder, progress: Progress | None = None
) -> dict[str, Any]:
    """Indexes every usable tool of a JSON Lines file of servers and points `out` at the index.

    Returns {version, out, tools, servers, skipped, embedder, embedded, known, seconds}.
    Raises UnusableInput.
    """
    began = time.perf_counter()
    source, skipped = read_source(servers)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableInput(
            f"--out {out}: {error.strerror}; name a folder that is there or can be made"
        ) from error
    version, counted = _build_into(out, source, encoder, progress or Silent())
    _keep_source(out, source)
    move_pointer(out, version)
    return {
        "version": version,
        "out": str(out),
        "tools": len(source.rows),
        "servers": len(source.servers),
        "skipped": skipped,
        "embedder": encoder.id,
        **counted,
        "seconds": round(time.perf_counter() - began, 1),
    }


def open_routed(
    place: Path, encoder: Embedder | None = None, progress: Progress | None = None
) -> Router:
    """The router of the served index, or of the same tools embedded by another encoder. An exported
    release is checked first, as `serve --place` does.

    Raises IndexMissing, IndexBroken, BadExport.
    """
    open_place = open_checked()
    if encoder is None:
        return open_place(place, None)
    kept = place / _SOURCE
    if not kept.exists():
        raise IndexMissing(
            f"{place}: no {_SOURCE} to embed with {encoder.id}; make the index with"
            " `toolmill index SERVERS.jsonl --out DIR --retriever PATH`"
        )
    version, _ = _build_into(place, _read_kept(kept), encoder, progress or Silent())
    return open_place(place, version)


def search_command(router: Router, ask: Ask) -> dict[str, Any]:
    """One answer: {index, release, tools, strategy, suitable, no_tool, ms, hits[…]}; `ms` is the
    search with the query's embedding, without loading the index. Raises BadQuery."""
    index = router.index
    about = {"release": index.release, "tools": len(index.tools)}
    return about | asdict(router.find(ask))


def search_many(
    router: Router, rows: Iterable[Mapping[str, str]], ask: Ask
) -> Iterator[dict[str, Any]]:
    """One answer per row {query, server, tool: any of them}, in order; `ms` is a row's share of its
    batch. A row that cannot be answered is an answer without hits that holds `error`. Raises
    BadQuery where the question itself is wrong, as by its k."""
    check_ask(replace(ask, query="any"))
    asks = [replace(ask, **row) for row in rows]
    for part in (asks[start : start + _BATCH] for start in range(0, len(asks), _BATCH)):
        refused = {at: why for at, one in enumerate(part) if (why := _find_refusal(one))}
        found = iter(router.find_many([one for at, one in enumerate(part) if at not in refused]))
        for at in range(len(part)):
            yield {"hits": [], "error": refused[at]} if at in refused else asdict(next(found))


def _find_refusal(ask: Ask) -> str | None:
    try:
        check_ask(ask)
    except BadQuery as error:
        return str(error)
    return None


def _build_into(
    place: Path, source: Source, encoder: Embedder, progress: Progress
) -> tuple[str, dict[str, int]]:
    from assets.vectors.encoders.saved import save_encoder

    save_encoder(encoder, place)
    cache = VectorCache(place, encoder, progress)
    version = build_index(place, source, cache, embedder=encoder.id, progress=progress.update)
    return version, {"embedded": cache.embedded, "known": cache.known}


class VectorCache:
    """Texts to vectors through the store beside the index."""

    def __init__(self, place: Path, encoder: Embedder, progress: Progress) -> None:
        from warehouse.storage.lance import LanceStore

        self._store, self._encoder, self._progress = LanceStore(place / "lance"), encoder, progress
        self.embedded = self.known = 0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        from serving.index.release_index import VIEWS, embed_views

        before = self._store.count(VIEWS)
        found = embed_views(texts, self._encoder, self._store, self._progress)
        new = self._store.count(VIEWS) - before
        self.embedded += new
        self.known += len(set(texts)) - new
        return found


def _keep_source(place: Path, source: Source) -> None:
    import zstandard

    body = json.dumps(asdict(source), ensure_ascii=False).encode("utf-8", "surrogatepass")
    write_atomically(place / _SOURCE, zstandard.compress(body))


def _read_kept(path: Path) -> Source:
    import zstandard

    return Source(**json.loads(zstandard.decompress(path.read_bytes())))
