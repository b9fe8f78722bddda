"""A web site of ours on a Unix socket: pages, and items that its forms and its JSON API change.

Whoever speaks to it is third-party code: what it sends is bounded, and nothing of it is run.
"""

import json
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from copy import deepcopy
from dataclasses import dataclass
from html import escape
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from urllib.parse import parse_qsl

from assets.outcomes.worlds.errors import WorldFailed
from warehouse.storage.digest import canonical_json

Item = dict[str, Any]
Items = dict[str, dict[str, Item]]  # collection -> id -> item
Respond = Callable[[Any], Any]  # (request of Starlette) -> its response

API = "api"
_MOST_BODY, _MOST_ITEMS, _MOST_MEMBERS, _MOST_TEXT = 65_536, 500, 20, 4000
_MOST_NUMBER = 1 << 31  # an id from which none is counted on: beyond 2**53 there is no fact
_PATIENCE_S = 10.0
_TYPES = {".html": "text/html", ".json": "application/json", ".css": "text/css"}


@dataclass(frozen=True)
class Reply:
    """What a request is answered."""

    status: int
    body: bytes
    kind: str = "text/html"


class SiteRefusal(ValueError):
    """A request that the site does not carry out."""

    def __init__(self, status: int, why: str) -> None:
        super().__init__(why)
        self.status = status


class Site:
    """pages: path -> bytes. Every collection of items is at `/NAME` and `/NAME/ID` as pages, at
    `/api/NAME` and `/api/NAME/ID` as JSON; requests change it, one at a time."""

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

    def answer(self, method: str, path: str, query: str, body: bytes, kind: str) -> Reply:
        """The answer to one request. kind: its content type."""
        parts = [part for part in path.split("/") if part]
        as_json = parts[:1] == [API]
        names = parts[1:] if as_json else parts
        try:
            with self._lock:
                if method in ("GET", "HEAD"):
                    return self._read(names, parse_qsl(query), as_json)
                if len(names) not in (1, 2) or names[0] not in self._items:
                    raise SiteRefusal(405 if self._find_page(parts) else 404, "nothing to change")
                status, item = self._write(method, names, _parse_body(body, kind))
                return Reply(status, _dump(item), "application/json")
        except SiteRefusal as error:
            if as_json:
                return Reply(error.status, _dump({"error": str(error)}), "application/json")
            page = write_page(f"{error.status}", [escape(str(error))])
            return Reply(error.status, page)

    def _read(self, names: list[str], query: list[tuple[str, str]], as_json: bool) -> Reply:
        held = self._items.get(names[0]) if names and len(names) <= 2 else None
        if held is None:
            page = None if as_json else self._find_page(names)
            if page is None:
                raise SiteRefusal(404, f"no page /{'/'.join(names)[:200]}")
            kind = _TYPES.get(Path(page).suffix, "text/plain")
            return Reply(200, self.pages[page], kind)
        if len(names) == 2:
            if (item := held.get(names[1])) is None:
                raise SiteRefusal(404, f"no {names[1][:80]!r} in {names[0]}")
            return _show_json(item) if as_json else Reply(200, _write_item(names[0], item))
        found = [one for one in held.values() if _fits(one, query)]
        return _show_json(found) if as_json else Reply(200, _write_list(names[0], found))

    def _find_page(self, names: list[str]) -> str | None:
        path = "/".join(names) or "index"
        return next((one for one in (path, f"{path}.html") if one in self.pages), None)

    def _write(self, method: str, names: list[str], given: Item) -> tuple[int, Item]:
        """(status, the item that was added, changed or removed). Raises SiteRefusal."""
        held = self._items[names[0]]
        if len(names) == 1:
            if method != "POST":
                raise SiteRefusal(405, f"{method[:20]} is for one item: /{API}/{names[0]}/ID")
            return 201, _add_item(held, given)
        if (item := held.get(names[1])) is None:
            raise SiteRefusal(404, f"no {names[1][:80]!r} in {names[0]}")
        if method == "DELETE":
            del held[names[1]]
        elif method in ("PUT", "PATCH"):
            kept = item if method == "PATCH" else {}
            changed = {**kept, **given, "id": item["id"]}
            if len(changed) > _MOST_MEMBERS + 1:  # what a server adds to bit by bit ends too
                raise SiteRefusal(409, f"an item has at most {_MOST_MEMBERS} members")
            held[names[1]] = item = changed
        else:
            raise SiteRefusal(405, f"{method[:20]} is not for one item")
        return 200, item


@contextmanager
def serve_socket(respond: Respond) -> Iterator[Path]:
    """The socket at which requests are answered, in a folder of this user alone; gone afterwards.
    Raises WorldFailed."""
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


async def read_body(request: Any) -> bytes:
    """The body of a request. Raises SiteRefusal for more than is taken."""
    body = b""
    with suppress(Exception):  # it was ended in the middle
        async for chunk in request.stream():
            body += chunk
            if len(body) > _MOST_BODY:
                break
    if len(body) > _MOST_BODY:
        raise SiteRefusal(413, f"more than {_MOST_BODY:,} bytes")
    return body


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
            given: Any = {name: int(one) if one.isdigit() else one for name, one in fields}
        else:
            given = json.loads(body or b"{}")
        canonical_json(given)  # a number beyond 2**53, half a character: no fact of a state
    except (ValueError, RecursionError):
        raise SiteRefusal(400, "expected a JSON object, or a form") from None
    if not isinstance(given, dict) or len(given) > _MOST_MEMBERS:
        raise SiteRefusal(400, f"expected an object of at most {_MOST_MEMBERS} members")
    for name, one in given.items():
        plain = one is None or isinstance(one, str | int | float)
        if not plain or len(name) > 80 or len(str(one)) > _MOST_TEXT:
            raise SiteRefusal(400, f"{name[:80]!r}: expected a text or a number")
    return given


def _add_item(held: dict[str, Item], given: Item) -> Item:
    if len(held) >= _MOST_ITEMS:
        raise SiteRefusal(409, f"at most {_MOST_ITEMS} items")
    numbers = (one["id"] for one in held.values() if isinstance(one["id"], int))
    number = max((one for one in numbers if one < _MOST_NUMBER), default=0) + 1
    item = {"id": number, **given}
    key = str(item["id"])
    if not key or "/" in key or len(key) > 80:
        raise SiteRefusal(400, "'id': expected a number, or a short text without `/`")
    if key in held:
        raise SiteRefusal(409, f"there is an item {key!r} already")
    held[key] = item
    return item


def _fits(item: Item, query: list[tuple[str, str]]) -> bool:
    """Whether an item has the members that a query asks for; others of it are left out."""
    return all(str(item[name]) == one for name, one in query if name in item)


def _dump(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def _show_json(value: Any) -> Reply:
    return Reply(200, _dump(value), "application/json")


def write_page(title: str, parts: list[str]) -> bytes:
    """A page of paragraphs that are HTML already."""
    body = "\n".join(f"<p>{part}</p>" for part in parts)
    head = f'<meta charset="utf-8"><title>{escape(title)}</title>'
    page = f"<main><article><h1>{escape(title)}</h1>\n{body}\n</article></main>"
    return f"<!doctype html>\n<html><head>{head}</head><body>{page}</body></html>\n".encode()


def _write_item(name: str, item: Item) -> bytes:
    title = str(item.get("name") or item.get("title") or f"{name} {item['id']}")
    parts = [f"{escape(key)}: {escape(_show_value(value))}" for key, value in item.items()]
    return write_page(title, [*parts, f'<a href="/{escape(name)}">all {escape(name)}</a>'])


def _write_list(name: str, items: list[Item]) -> bytes:
    links = [
        f'<a href="/{escape(name)}/{escape(str(item["id"]))}">'
        f"{escape(str(item.get('name') or item.get('title') or item['id']))}</a>"
        for item in items
    ]
    return write_page(name, links or ["There is nothing here yet."])


def _show_value(value: Any) -> str:
    return value if isinstance(value, str) else json.dumps(value)
