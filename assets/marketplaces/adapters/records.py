"""Records of a list from any marketplace: their refs, their cursors, saved payloads."""

from collections.abc import AsyncIterator, Awaitable, Callable, Iterable
from dataclasses import replace
from typing import Any

from assets.marketplaces.crawl.result import make_problem
from assets.marketplaces.launch.mcp_config import record_digest
from assets.marketplaces.payload import FIX, parse_json
from assets.marketplaces.policy import CrawlError, FetchedPage, RecordPage, RecordRef

Problems = list[dict[str, Any]]


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


def read_saved(
    page: FetchedPage,
    members: tuple[str, ...],
    make_ref: Callable[[Any, str], RecordRef | None],
    expected: str,
) -> list[RecordRef]:
    """Refs of a saved payload: a list under one of `members`, a JSON list of records, or a record.
    Raises CrawlError where none of them is the marketplace's."""
    value = parse_json(page)
    records = value if isinstance(value, list) else [value]
    if isinstance(value, dict):
        lists = (value[name] for name in members if isinstance(value.get(name), list))
        records = next(lists, records)
    refs = [replace(ref, raw=item) for item in records if (ref := make_ref(item, page.url))]
    if not refs:
        keys = sorted(map(str, value))[:6] if isinstance(value, dict) else type(value).__name__
        raise CrawlError("missing_key", page.url, f"{keys}", expected, FIX)
    return refs
