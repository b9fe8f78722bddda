"""Resources and prompts: the prompt that teaches asking, the catalogue, the index version.

toolmill://prompt, toolmill://prompt/example
toolmill://index
toolmill://catalogue, toolmill://catalogue/2 …      servers with their tool counts, 200 a page
toolmill://servers/{server_id}                      the tools of one server (id URL-encoded)
"""

from collections.abc import Sequence
from typing import Any
from urllib.parse import quote, unquote

from serving.discovery.request import write_system_prompt
from serving.meta.context import MetaContext, VisibleTools, shorten_version
from serving.meta.policy import ClientToken
from serving.meta.schemas import BadField
from serving.router import Router
from serving.untrusted_text import NOTE, dump_json, show_line
from warehouse.sanitize.untrusted_text import escape_exact, escape_name

PROMPT, EXAMPLE = "toolmill://prompt", "toolmill://prompt/example"
INDEX, CATALOGUE, SERVERS = "toolmill://index", "toolmill://catalogue", "toolmill://servers/"
PAGE = 200  # servers of one page of the catalogue
_TOOLS = 1_000  # tools of one server that are listed
PROMPTS = ("find-tools", "find-tools-example")
_TEXT, _JSON = "text/markdown", "application/json"


class NoResource(LookupError):
    """An address that names nothing here, or nothing this token may read."""


def list_resources() -> list[dict[str, Any]]:
    """The fixed resources."""
    return [
        _describe_resource(PROMPT, "prompt", "How to ask for tools, for a system prompt", _TEXT),
        _describe_resource(EXAMPLE, "prompt-example", "The same with one worked example", _TEXT),
        _describe_resource(
            CATALOGUE, "catalogue", f"Servers with their tool counts, {PAGE} a page", _JSON
        ),
        _describe_resource(INDEX, "index", "Version and size of the index that is served", _JSON),
    ]


def list_templates() -> list[dict[str, Any]]:
    """The resources with a place to fill in."""
    rows = [
        ("toolmill://servers/{server_id}", "server", "The tools of one server; id URL-encoded"),
        ("toolmill://catalogue/{page}", "catalogue-page", "A further page of the catalogue"),
    ]
    return [
        {"uriTemplate": uri, "name": name, "description": about, "mimeType": _JSON}
        for uri, name, about in rows
    ]


async def read(desk: MetaContext, token: ClientToken, uri: str) -> dict[str, Any]:
    """The content of one resource. Raises NoResource, BadField, IndexMissing or IndexBroken."""
    if uri in (PROMPT, EXAMPLE):
        return {"uri": uri, "mimeType": _TEXT, "text": prompt(uri == EXAMPLE)}
    page = _parse_page(uri)
    if page is None and uri != INDEX and not uri.startswith(SERVERS):
        raise NoResource(
            f"{escape_exact(uri, 120)!r} names no resource; resources/list has those there are"
        )
    router = await desk.router()
    seen = await desk.seen(router, token)
    if page is not None:
        content = _describe_catalogue(router, seen, page)
    elif uri == INDEX:
        content = {**_describe_index(router, seen), **_describe_learning(desk, router)}
    else:
        content = _describe_server(router, seen, unquote(uri.removeprefix(SERVERS)))
    return {"uri": uri, "mimeType": _JSON, "text": dump_json(content)}


def prompt(example: bool) -> str:
    """What a model is told, by the one module that knows."""

    return write_system_prompt(example=example)


def _describe_resource(uri: str, name: str, about: str, mime: str) -> dict[str, Any]:
    return {"uri": uri, "name": name, "description": about, "mimeType": mime}


def _parse_page(uri: str) -> int | None:
    """The number of a page of the catalogue, None for another address."""
    if uri == CATALOGUE:
        return 1
    number = uri.removeprefix(CATALOGUE + "/")
    if number == uri:
        return None
    if not number.isascii() or not number.isdecimal() or len(number) > 6:
        raise BadField("page", repr(escape_exact(number, 20)), "a number from 1")
    return int(number)


def _describe_index(router: Router, seen: VisibleTools) -> dict[str, Any]:
    index = router.index
    return {
        "index": index.version,
        "release": index.release,
        "embedder": index.embedder,
        "servers": len(seen.servers),
        "tools": len(seen.places),
    }


def _describe_learning(desk: MetaContext, router: Router) -> dict[str, Any]:
    """The reranker of an index that has one; how many outcomes it has learnt since it was fitted,
    where it learns."""
    if router.ranker is None:
        return {}
    learnt = None if desk.learner is None else desk.learner.learnt
    return {"reranker": {"model": router.index.reranker, "learnt_since": learnt}}


def _describe_catalogue(router: Router, seen: VisibleTools, page: int) -> dict[str, Any]:
    order = sorted(seen.servers, key=lambda at: router.index.servers[at].server_id)
    pages = max(1, -(-len(order) // PAGE))
    if not 1 <= page <= pages:
        raise BadField("page", str(page), f"1 to {pages}")
    items = []
    for at in order[(page - 1) * PAGE : page * PAGE]:
        server = router.index.servers[at]
        says = show_line(server.summary or server.description, 120)
        counted = {"server_id": escape_exact(server.server_id, 300), "tools": len(seen.servers[at])}
        items.append({**counted, **({"says": says} if says else {})})
    following = {"next": f"{CATALOGUE}/{page + 1}"} if page < pages else {}
    head = {
        **_describe_index(router, seen),
        "note": NOTE,
        "page": page,
        "pages": pages,
        **following,
    }
    return {**head, "items": items}


def _describe_server(router: Router, seen: VisibleTools, server_id: str) -> dict[str, Any]:
    index = router.index
    places: Sequence[int] = next(
        (of for at, of in seen.servers.items() if index.servers[at].server_id == server_id), ()
    )
    if not places:
        held = (
            f"index {shorten_version(index.version)} has no server {escape_exact(server_id, 120)!r}"
        )
        raise NoResource(f"{held} for this token; the catalogue has those there are")
    server = index.servers[index.tools[places[0]].server]
    tools = [
        {
            "tool_id": escape_name(tool.tool_id, 400),
            "says": show_line(tool.description, 120),
            **({"unverified": True} if tool.unverified else {}),
        }
        for tool in (index.tools[at] for at in places[:_TOOLS])
    ]
    return {
        "index": index.version,
        "note": NOTE,
        "server_id": escape_exact(server.server_id, 300),
        "name": show_line(server.name, 120),
        "says": show_line(server.summary or server.description, 600),
        "count": len(places),
        "tools": tools,
        "address": SERVERS + quote(server.server_id, safe=""),
    }
