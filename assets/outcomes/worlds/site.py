"""A web site on a Unix socket: pages, and items that forms and a JSON API change. Third-party code
speaks to it: what it sends is bounded."""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from html import escape
from pathlib import Path
from random import Random
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl

from assets.outcomes.worlds.changes import Facts
from assets.outcomes.worlds.kind import WorldKind, read_file_facts
from assets.outcomes.worlds.template import draw_shop, draw_words, load_words
from assets.outcomes.worlds.tree import Node, Tree, WorldFailed, WorldFileError
from assets.servers.deploy.grants import LocalSite
from warehouse.storage.digest import canonical_json
from warehouse.storage.untrusted_files import clear_folder

Item = dict[str, Any]
Items = dict[str, dict[str, Item]]  # collection -> id -> item
Respond = Callable[[Any], Any]  # (request of Starlette) -> its response

API = "api"
_MOST_BODY, _MOST_ITEMS, _MOST_MEMBERS, _MOST_TEXT = 65_536, 500, 20, 4000
_MOST_NUMBER = 1 << 31  # an id from which none is counted on: beyond 2**53 there is no fact
_PATIENCE_S = 10.0
_TYPES = {".html": "text/html", ".json": "application/json", ".css": "text/css"}


@dataclass(frozen=True)
class SiteReply:
    """What a request is answered."""

    status: int
    body: bytes
    kind: str = "text/html"


class SiteRefusal(ValueError):
    """A request that the site does not carry out."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class SiteItems:
    """pages: path -> bytes. Items are at `/NAME/ID` as pages and `/api/NAME/ID` as JSON."""

    def __init__(self, pages: Mapping[str, bytes], items: Items) -> None:
        self.pages, self._first, self._lock = dict(pages), items, threading.Lock()
        self.reset()

    def reset(self) -> None:
        """The items as they were at first."""
        with self._lock:
            self._items = deepcopy(self._first)

    def copy_items(self) -> Items:
        """The items as they are now."""
        with self._lock:
            return deepcopy(self._items)

    def answer(self, method: str, path: str, query: str, body: bytes, kind: str) -> SiteReply:
        """The answer to one request. kind: its content type."""
        segments = [part for part in path.split("/") if part]
        as_json = segments[:1] == [API]
        names = segments[1:] if as_json else segments
        try:
            with self._lock:
                if method in ("GET", "HEAD"):
                    return self._read(names, parse_qsl(query), as_json)
                if len(names) not in (1, 2) or names[0] not in self._items:
                    raise SiteRefusal(
                        405 if self._find_page(segments) else 404, "nothing to change"
                    )
                status, item = self._write(method, names, _parse_body(body, kind))
                return SiteReply(status, _dump(item), "application/json")
        except SiteRefusal as error:
            if as_json:
                return SiteReply(error.status, _dump({"error": str(error)}), "application/json")
            page = write_page(f"{error.status}", [escape(str(error))])
            return SiteReply(error.status, page)

    def _read(self, names: list[str], query: list[tuple[str, str]], as_json: bool) -> SiteReply:
        items = self._items.get(names[0]) if names and len(names) <= 2 else None
        if items is None:
            page = None if as_json else self._find_page(names)
            if page is None:
                raise SiteRefusal(404, f"no page /{'/'.join(names)[:200]}")
            kind = _TYPES.get(Path(page).suffix, "text/plain")
            return SiteReply(200, self.pages[page], kind)
        if len(names) == 2:
            if (item := items.get(names[1])) is None:
                raise SiteRefusal(404, f"no {names[1][:80]!r} in {names[0]}")
            return _show_json(item) if as_json else SiteReply(200, _write_item(names[0], item))
        matching = [  # a query's members that an item has not are left out
            item
            for item in items.values()
            if all(str(item[name]) == value for name, value in query if name in item)
        ]
        return _show_json(matching) if as_json else SiteReply(200, _write_list(names[0], matching))

    def _find_page(self, names: list[str]) -> str | None:
        path = "/".join(names) or "index"
        return next((item for item in (path, f"{path}.html") if item in self.pages), None)

    def _write(self, method: str, names: list[str], fields: Item) -> tuple[int, Item]:
        """(status, the item that was added, changed or removed). Raises SiteRefusal."""
        items = self._items[names[0]]
        if len(names) == 1:
            if method != "POST":
                raise SiteRefusal(405, f"{method[:20]} is for one item: /{API}/{names[0]}/ID")
            return 201, _add_item(items, fields)
        if (item := items.get(names[1])) is None:
            raise SiteRefusal(404, f"no {names[1][:80]!r} in {names[0]}")
        if method == "DELETE":
            del items[names[1]]
        elif method in ("PUT", "PATCH"):
            base = item if method == "PATCH" else {}
            changed = {**base, **fields, "id": item["id"]}
            if len(changed) > _MOST_MEMBERS + 1:  # what a server adds to bit by bit ends too
                raise SiteRefusal(409, f"an item has at most {_MOST_MEMBERS} members")
            items[names[1]] = item = changed
        else:
            raise SiteRefusal(405, f"{method[:20]} is not for one item")
        return 200, item


@contextmanager
def serve_socket(respond: Respond) -> Iterator[Path]:
    """The socket of a site, in a folder of this user alone. Raises WorldFailed."""
    import uvicorn
    from starlette.applications import Starlette
    from starlette.routing import Route

    methods = ["GET", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]
    app = Starlette(routes=[Route("/{path:path}", respond, methods=methods)])
    with TemporaryDirectory(prefix="toolmill-site-") as folder:
        path = Path(folder) / "socket"
        server = uvicorn.Server(
            uvicorn.Config(
                app,
                uds=str(path),
                log_config=None,
                log_level="critical",  # what a server sends may fill no log
                lifespan="off",
                access_log=False,
                server_header=False,
                date_header=False,  # the same request, the same answer
                limit_concurrency=64,
                timeout_keep_alive=5,
            )
        )
        thread = threading.Thread(target=server.run, daemon=True)
        thread.start()
        try:
            _await_start(server, thread)
            yield path
        finally:
            server.should_exit = server.force_exit = True
            thread.join(_PATIENCE_S)


def _await_start(server: Any, thread: threading.Thread) -> None:
    waited = threading.Event()
    for _ in range(int(_PATIENCE_S / 0.01)):
        if server.started:
            return
        if not thread.is_alive():
            break
        waited.wait(0.01)
    raise WorldFailed("the site's server does not start")


def _parse_body(body: bytes, kind: str) -> Item:
    """The members that a JSON object or a form gives. Raises SiteRefusal."""
    if len(body) > _MOST_BODY:
        raise SiteRefusal(413, f"more than {_MOST_BODY:,} bytes")
    try:
        if kind.startswith("application/x-www-form-urlencoded"):
            fields = parse_qsl(body.decode(), keep_blank_values=True, max_num_fields=100)
            result: Any = {name: int(value) if value.isdigit() else value for name, value in fields}
        else:
            result = json.loads(body or b"{}")
        canonical_json(result)  # a number beyond 2**53, half a character: no fact of a state
    except (ValueError, RecursionError):
        raise SiteRefusal(400, "expected a JSON object, or a form") from None
    if not isinstance(result, dict) or len(result) > _MOST_MEMBERS:
        raise SiteRefusal(400, f"expected an object of at most {_MOST_MEMBERS} members")
    for name, value in result.items():
        plain = value is None or isinstance(value, str | int | float)
        if not plain or len(name) > 80 or len(str(value)) > _MOST_TEXT:
            raise SiteRefusal(400, f"{name[:80]!r}: expected a text or a number")
    return result


def _add_item(items: dict[str, Item], fields: Item) -> Item:
    if len(items) >= _MOST_ITEMS:
        raise SiteRefusal(409, f"at most {_MOST_ITEMS} items")
    numbers = (item["id"] for item in items.values() if isinstance(item["id"], int))
    number = max((number for number in numbers if number < _MOST_NUMBER), default=0) + 1
    item = {"id": number, **fields}
    key = str(item["id"])
    if not key or "/" in key or len(key) > 80:
        raise SiteRefusal(400, "'id': expected a number, or a short text without `/`")
    if key in items:
        raise SiteRefusal(409, f"there is an item {key!r} already")
    items[key] = item
    return item


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _show_json(value: Any) -> SiteReply:
    return SiteReply(200, _dump(value), "application/json")


def write_page(title: str, paragraphs: list[str]) -> bytes:
    """A page of paragraphs that are HTML already."""
    body = "\n".join(f"<p>{part}</p>" for part in paragraphs)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    page = f"<main><article><h1>{escape(title)}</h1>\n{body}\n</article></main>"
    return f"<!doctype html>\n<html><head>{head}</head><body>{page}</body></html>\n".encode()


def _write_item(name: str, item: Item) -> bytes:
    title = str(item.get("name") or item.get("title") or f"{name} {item['id']}")
    texts = {
        key: value if isinstance(value, str) else json.dumps(value) for key, value in item.items()
    }
    paragraphs = [f"{escape(key)}: {escape(text)}" for key, text in texts.items()]
    return write_page(title, [*paragraphs, f'<a href="/{escape(name)}">all {escape(name)}</a>'])


def _write_list(name: str, items: list[Item]) -> bytes:
    links = [
        f'<a href="/{escape(name)}/{escape(str(item["id"]))}">'
        f"{escape(str(item.get('name') or item.get('title') or item['id']))}</a>"
        for item in items
    ]
    return write_page(name, links or ["There is nothing here yet."])


HOST = "site.example"  # a name that no resolver knows (RFC 2606)


def generate_shop_site(rng: Random, size: int) -> Tree:
    """A shop: products, orders and news as items, an empty cart and messages, and a few pages."""
    words, tree = load_words(), dict[str, Node]()
    for table in draw_shop(rng, size):
        names = [name for name, _ in table.columns]
        rows = [dict(zip(names, row, strict=True)) for row in table.rows]
        if table.name != "customers":
            tree[f"{API}/{table.name}.json"] = json.dumps(rows).encode()
    news = [
        {
            "id": number,
            "title": f"{topic.title()} {rng.choice(words['things'])}",
            "author": rng.choice(words["people"]),
            "text": f"{draw_words('sentence', rng)}. {draw_words('sentence', rng)}.",
        }
        for number, topic in enumerate(rng.sample(words["topics"], min(size, 8)), 1)
    ]
    tree[f"{API}/news.json"] = json.dumps(news).encode()
    tree[f"{API}/cart.json"] = tree[f"{API}/messages.json"] = b"[]"
    owner = f"{rng.choice(words['people'])} {rng.choice(words['surnames'])}"
    tree["index.html"] = write_page(
        "The shop", [f'<a href="/{item}">{item}</a>' for item in ("products", "news", "cart")]
    )
    tree["about.html"] = write_page(
        "About the shop", [f"{owner} has run it in {rng.choice(words['cities'])} for years."]
    )
    form = '<form method="post" action="/messages"><input name="name"><input name="text"></form>'
    tree["contact.html"] = write_page("Contact", [f"Write to {escape(owner)}.", form])
    tree["robots.txt"] = b"User-agent: *\nDisallow: /private/\n"
    tree["private/report.html"] = write_page("Report", [draw_words("sentence", rng)])
    return tree


class SiteState:
    """A state that is a site's items; the folder that a server is shown is empty."""

    def __init__(self, folder: Path, tree: Tree) -> None:
        self.folder, self._site = folder, SiteItems(*_read_tree(tree))
        clear_folder(folder)
        self.first_facts = self.read_facts()
        self._held = ExitStack()
        socket = self._held.enter_context(serve_socket(self._respond))
        self.sites = (LocalSite(HOST, socket),)

    def reset(self) -> None:
        self._site.reset()

    def read_facts(self) -> Facts:
        """`NAME/ID` -> an item of the collection NAME; `page/PATH` -> the text of a page."""
        facts = {f"page/{path}": text for path, text in read_file_facts(self._site.pages).items()}
        for name, items in self._site.copy_items().items():
            facts |= {f"{name}/{key}": item for key, item in items.items()}
        return dict(sorted(facts.items()))

    def close(self) -> None:
        self._held.close()

    async def _respond(self, request: Any) -> Any:
        from starlette.responses import Response

        kind = request.headers.get("content-type", "")
        try:
            body = b""
            with suppress(Exception):  # it was ended in the middle
                async for chunk in request.stream():
                    body += chunk
                    if len(body) > _MOST_BODY:
                        break
            if len(body) > _MOST_BODY:
                raise SiteRefusal(413, f"more than {_MOST_BODY:,} bytes")
        except SiteRefusal as error:
            return Response(str(error), error.status, media_type="text/plain")
        reply = self._site.answer(request.method, request.url.path, request.url.query, body, kind)
        return Response(reply.body, reply.status, media_type=reply.kind)


def _read_tree(tree: Tree) -> tuple[dict[str, bytes], Items]:
    """(pages, items) of seed files; items lie below `api/`. Raises WorldFileError."""
    pages, items = dict[str, bytes](), Items()
    for path, node in tree.items():
        if not isinstance(node, bytes):
            continue
        folder, _, name = path.rpartition("/")
        if folder != API or not name.endswith(".json"):
            pages[path] = node
            continue
        if name == "page.json":  # its items would be facts of the same names as pages
            raise WorldFileError(f"{path}: `page` is taken for pages; give it another name")
        try:
            entries = json.loads(node)
            canonical_json(entries)  # a number beyond 2**53 is no fact of a state
            items[name[:-5]] = {str(item["id"]): dict(item) for item in entries}
        except (ValueError, TypeError, KeyError, RecursionError):
            raise WorldFileError(
                f"{path}: expected a JSON list of objects, each with an `id`, and numbers that"
                " JSON can hold"
            ) from None
        if len(items[name[:-5]]) < len(entries):
            raise WorldFileError(f"{path}: two items have one `id`; each needs its own")
    return pages, items


SITE_KIND = WorldKind("site", {"shop": generate_shop_site}, read_file_facts, open_state=SiteState)
