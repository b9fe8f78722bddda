"""Records of a list from any marketplace: their refs and their cursors."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any, ClassVar

from assets.marketplaces.crawl.result import make_problem
from assets.marketplaces.crawl.sitemap import Location
from assets.marketplaces.launch.mcp_config import record_digest
from assets.marketplaces.launch.page_facts import CodeBlockParser, find_configs
from assets.marketplaces.payload import read_html
from assets.marketplaces.policy import (
    FetchPage,
    MarketplaceAdapter,
    RecordPage,
    RecordRef,
    RenderPage,
)

Problems = list[dict[str, Any]]


class SitemapAdapter(MarketplaceAdapter):
    """A site whose sitemap names a page for each server. ready: what shows that a rendered page is
    filled in; undated: the revision of a page of which only the address is known."""

    alarm: ClassVar[bool] = True
    ready: ClassVar[str]
    undated: ClassVar[str]

    def read_id(self, url: str) -> str | None:
        """The native id of a server's page; None for any other page."""
        raise NotImplementedError

    def list_pages(self, entries: Iterable[Location]) -> list[RecordRef]:
        """A ref of each server's page among a sitemap's entries."""
        return [
            RecordRef(native_id, url, lastmod or self.undated, weak=lastmod is None)
            for url, lastmod in entries
            if (native_id := self.read_id(url))
        ]

    async def detail(self, ref: RecordRef, get: FetchPage, render: RenderPage) -> Any:
        """{"html", "rendered"}: the page's source, and its rendered form only where the source
        holds no config."""
        raw = {"html": await get(ref.url, read_html, ref=ref), "rendered": None}
        if next(find_configs(CodeBlockParser(raw["html"])), None) is None:
            raw["rendered"] = await render(ref.url, ready=self.ready, ref=ref)
        return raw


def list_refs(
    records: Iterable[Any], url: str, make_ref: Callable[[Any, str], RecordRef | None], fault: str
) -> tuple[list[RecordRef], Problems]:
    """A ref of each record, and a problem for each of which `make_ref` makes none."""
    refs: list[RecordRef] = []
    problems: Problems = []
    for record in records:
        if ref := make_ref(record, url):
            refs.append(ref)
        else:
            made_up = f"malformed-{record_digest(record)[:12]}"
            problems.append(make_problem(made_up, url, "malformed", fault))
    return refs, problems


def cut_list(page: RecordPage, url: str, kind: str, fault: str) -> RecordPage:
    """A page after which the list cannot be read on."""
    hint = f"{fault}; the list was cut there"
    return replace(page, ended=False, problems=[*page.problems, make_problem("", url, kind, hint)])


async def follow_cursor(
    make_url: Callable[[str | None], str],
    read: Callable[[str, bool], Awaitable[tuple[RecordPage, str | None]]],
) -> AsyncIterator[RecordPage]:
    """Pages of a list by cursor. `read` gets a URL and whether it is the first, and gives the page
    and the cursor of the next; a cursor that came before cuts the list."""
    cursor: str | None = None
    cursors: set[str] = set()
    while True:
        url = make_url(cursor)
        page, cursor = await read(url, cursor is None)
        if cursor in cursors:
            yield cut_list(page, url, "cursor_loop", f"the cursor {cursor!r} came twice")
            return
        yield page
        if cursor is None:
            return
        cursors.add(cursor)
