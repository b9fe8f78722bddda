"""Answers: a marketplace that is a dictionary of responses, for adapters without HTTP."""

import asyncio
import json
from collections.abc import Callable, Mapping
from typing import Any

from hypothesis import strategies as st

from assets.marketplaces.listing import Listing
from assets.marketplaces.normalise import clean
from assets.marketplaces.policy import (
    CrawlError,
    CrawlPolicy,
    FetchedPage,
    MarketplaceAdapter,
    RecordPage,
    RecordRef,
)
from tests.support.examples import SCALARS, json_values
from warehouse.sanitize.redact import redact_json

POLICY = CrawlPolicy(base_url="https://market.example")


def read_inputs(items: Any) -> dict[str, tuple[bool, bool, str | None]]:
    """Name -> (required, secret, default) of variables or headers."""
    return {item.name: (item.required, item.secret, item.default) for item in items}


def read(adapter: MarketplaceAdapter, record: Any, native_id: str = "acme/quill") -> list[Listing]:
    raw = redact_json(record)
    ref = RecordRef(native_id, f"{POLICY.base_url}/record", raw=raw)
    return [clean(listing) for listing in adapter.parse(raw, ref)]


class Answers:
    """`get` over a dictionary URL -> JSON value, Page or CrawlError; `asked` is what was asked."""

    def __init__(self, pages: Mapping[str, Any]) -> None:
        self.pages, self.asked = pages, list[str]()

    async def get(
        self, url: str, check: Callable[[FetchedPage], Any], *, ref: RecordRef | None = None
    ) -> Any:
        self.asked.append(url)
        answer = self.pages.get(url)
        if answer is None:
            raise CrawlError("http_status", url, "status 404", "200", "look at the URL", status=404)
        if isinstance(answer, CrawlError):
            raise answer
        if not isinstance(answer, FetchedPage):
            answer = FetchedPage(url, "application/json", json.dumps(answer).encode())
        return redact_json(check(answer))

    def listed(self, adapter: MarketplaceAdapter) -> list[RecordPage]:

        async def collect() -> list[RecordPage]:
            return [page async for page in adapter.refs(self.get)]

        return asyncio.run(collect())

    def detailed(self, adapter: MarketplaceAdapter, ref: RecordRef) -> Any:

        async def unused(url: str, *, ready: str, ref: RecordRef | None = None) -> str:
            raise AssertionError(url)

        return asyncio.run(adapter.detail(ref, self.get, unused))


_TEXTS = ["\ud800", "http://[", "{", "{x}", "--", "a=b", "@", "npm", "https://x/{y}"]
_ODD = json_values(SCALARS | st.integers(-(2**70), 2**70) | st.sampled_from(_TEXTS), leaves=6)


@st.composite
def mutations(draw: st.DrawFn, value: Any) -> Any:
    """A copy of a JSON value with one to three of its parts replaced, taken out or doubled."""
    result = json.loads(json.dumps(value))
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(result))
        if not places:
            return draw(_ODD)
        holder, key = draw(st.sampled_from(places))
        how = draw(st.sampled_from(("replace", "remove", "double")))
        if how == "replace":
            holder[key] = draw(_ODD)
        elif how == "remove":
            del holder[key]
        elif isinstance(holder, list):
            holder.append(holder[key])
        else:
            holder[f"{key}_"] = holder[key]
    return result


def _places(value: Any) -> Any:
    if isinstance(value, dict):
        for key, item in value.items():
            yield value, key
            yield from _places(item)
    elif isinstance(value, list):
        for at, item in enumerate(value):
            yield value, at
            yield from _places(item)


def check_record(adapter: MarketplaceAdapter, raw: Any, ref: RecordRef) -> None:
    """`parse` raises nothing but ValueError, and what is not runnable says why."""
    try:
        listings = adapter.parse(raw, ref)
    except ValueError:
        return
    assert all(listing.runnable or listing.reason for listing in listings)
