"""`toolmill index` and `toolmill search`: an index of any file of servers, and questions to it.

<out>/router, encoders   as everywhere (`serving/index/folder.py`)
      lance/             vectors by text and encoder, so that no text is embedded twice

`search` runs without the platform's packages, so what only `index` needs is imported in functions.
"""

import json
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import asdict, replace
from pathlib import Path
from typing import Any

import numpy as np

from assets.vectors.encoders.embedder import Embedder
from serving.export import check_place
from serving.index.model import UNVERIFIED, IndexSource
from serving.index.search_table import SEARCH_FROM
from serving.ranking.query import BadQuery, ToolQuery, check_ask
from serving.router import Router, open_router
from warehouse.errors import UnusableInput
from warehouse.progress import Progress, SilentProgress

AD_HOC = "ad hoc"
_TEXT_CAP = 4_000  # characters of a description that are read
_BATCH = 64  # queries that share one pass of the encoder


def read_source(path: Path) -> tuple[IndexSource, list[str]]:
    """An index's source, and why tools were left out. A server a line: qualified_name (or
    server_id, name), tools; optional display_name, overview or description, tags, "unverified":
    true. Raises UnusableInput."""
    from assets.synthesis.judging.adhoc import ToolsFile, get_server_name, read_lines
    from assets.synthesis.offline_summaries import make_readable, write_summary

    launched, unverified, skipped = list[Any](), list[Any](), list[str]()
    for number, server in read_lines(path):
        where = f"{path}, line {number}"
        mark = server.get("unverified", False)
        if not get_server_name(server):
            skipped.append(f"{where}: a server without qualified_name, server_id and name")
        elif not isinstance(mark, bool):
            raise UnusableInput(f"{where}: unverified is {mark!r:.60}; expected true or false")
        else:
            (unverified if mark else launched).append(server)
    tools, servers = ToolsFile(), dict[str, dict[str, str]]()
    for server in launched:
        servers[get_server_name(server)] = _describe_server(server)
        for tool in _list_tools(server):
            tools.add(get_server_name(server), tool)
    verified = frozenset(tools.by_id)
    # After the launched ones, whatever the order of the lines: they replace none of those.
    for server in unverified:
        servers.setdefault(get_server_name(server), _describe_server(server))
        for tool in _list_tools(server):
            tools.add(get_server_name(server), tool, verified)
    if not tools.by_id:
        shape = '{"qualified_name": "…", "tools": [{"name": "…", "inputSchema": {…}}]}'
        why = next(iter([*tools.unusable.values(), *skipped]), "no tools found")
        raise UnusableInput(f"{path}: {why}; expected a server a line as {shape}")
    rows, described = list[dict[str, Any]](), dict[str, dict[str, str]]()
    for name, facts in servers.items():
        keys = tools.list_server_tools(name)
        contracts = [tools.by_id[key] for key in keys]
        for key, contract in zip(keys, contracts, strict=True):
            row: dict[str, Any] = {
                "server_id": name,
                "tool": contract["name"],
                "contract_digest": tools.digests[key],
                "contract": json.dumps(contract, ensure_ascii=False),
                "marketplace": AD_HOC,
            }
            rows.append(row if key in verified else row | {"flags": (UNVERIFIED,)})
        readable = facts["name"] or make_readable(name)
        facts["summary"] = facts["summary"] or write_summary(readable, contracts)
        if keys:
            described[name] = facts
    repeated = [f"{key[:200]} stands more than once; the last is kept" for key in tools.repeated]
    problems = [*skipped, *sorted([*tools.unusable.values(), *repeated])]
    return IndexSource(rows, described, {}, {}), problems


def _list_tools(server: Mapping[str, Any]) -> list[Any]:
    tools = server.get("tools")
    return tools if isinstance(tools, list) else []


def _describe_server(server: Mapping[str, Any]) -> dict[str, str]:
    about = server.get("overview") or server.get("description") or ""
    tags = [tag for tag in server.get("tags") or [] if isinstance(tag, str)]
    text = str(about) if not tags else f"{about}\n{', '.join(tags)}"
    return {
        "name": str(server.get("display_name") or server.get("name") or "")[:200],
        "description": text[:_TEXT_CAP],
        "summary": str(server.get("summary") or "")[:_TEXT_CAP],
    }


def index_command(
    servers: Path,
    out: Path,
    encoder: Embedder,
    progress: Progress | None = None,
    search_from: int = SEARCH_FROM,
) -> dict[str, Any]:
    """Indexes a JSON Lines file's tools and points `out` there. Returns {version, out, tools,
    servers, skipped, embedder, embedded, known, seconds}. Raises UnusableInput."""
    from assets.vectors.encoders.saved import save_encoder
    from serving.index.build import build_index, move_pointer

    began = time.perf_counter()
    source, skipped = read_source(servers)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise UnusableInput(
            f"--out {out}: {error.strerror}; name a folder that is there or can be made"
        ) from error
    progress = progress or SilentProgress()
    save_encoder(encoder, out)
    cache = VectorCache(out, encoder, progress)
    version = build_index(
        out, source, cache, embedder=encoder.id, progress=progress.update, search_from=search_from
    )
    move_pointer(out, version)
    return {
        "version": version,
        "out": str(out),
        "tools": len(source.rows),
        "servers": len(source.servers),
        "skipped": skipped,
        "embedder": encoder.id,
        "embedded": cache.embedded,
        "known": cache.known,
        "seconds": round(time.perf_counter() - began, 1),
    }


class VectorCache:
    def __init__(self, place: Path, encoder: Embedder, progress: Progress) -> None:
        from warehouse.storage.lance import LanceStore

        self._store, self._encoder, self._progress = LanceStore(place / "lance"), encoder, progress
        self.embedded = self.known = 0

    def __call__(self, texts: Sequence[str]) -> np.ndarray:
        from serving.index.build import VIEWS, embed_views

        before = self._store.count(VIEWS)
        vectors = embed_views(texts, self._encoder, self._store, self._progress)
        new = self._store.count(VIEWS) - before
        self.embedded += new
        self.known += len(set(texts)) - new
        return vectors


def open_routed(place: Path) -> Router:
    """The router of the served index; an exported release is checked first. Raises IndexMissing,
    IndexBroken, BadExport."""
    check_place(place)
    return open_router(place)


def search_command(router: Router, ask: ToolQuery) -> dict[str, Any]:
    """One answer: {index, release, tools, strategy, suitable, no_tool, ms, hits[…]}; `ms` is the
    search with the query's embedding, without loading the index. Raises BadQuery."""
    index = router.index
    return {"release": index.release, "tools": len(index.tools)} | asdict(router.find(ask))


def search_many(
    router: Router, rows: Iterable[Mapping[str, str]], ask: ToolQuery
) -> Iterator[dict[str, Any]]:
    """One answer per row {query, server, tool: any of them}, in order, `error` for a bad row; `ms`
    is a row's share of its batch. Raises BadQuery for a wrong k or the like."""
    check_ask(replace(ask, query="any"))
    asks = [replace(ask, **row) for row in rows]
    for batch in (asks[start : start + _BATCH] for start in range(0, len(asks), _BATCH)):
        refusals = dict[int, str]()
        for at, row_ask in enumerate(batch):
            try:
                check_ask(row_ask)
            except BadQuery as error:
                refusals[at] = str(error)
        usable = [row_ask for at, row_ask in enumerate(batch) if at not in refusals]
        answers = iter(router.find_many(usable))
        for at in range(len(batch)):
            if at in refusals:
                yield {"hits": [], "error": refusals[at]}
            else:
                yield asdict(next(answers))
