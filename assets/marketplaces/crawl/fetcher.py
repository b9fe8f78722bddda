"""Pace: when the next request to a host may be sent."""

import asyncio
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urljoin, urlsplit

import httpx2

from assets.marketplaces.payload import (
    make_bad_status,
    make_broken_gzip,
    make_forbidden,
    make_too_large,
    make_unreachable,
    parse_json_object,
)
from assets.marketplaces.policy import CrawlError, CrawlPolicy, FetchedPage
from warehouse.network.egress import EgressConnector, PrivateAddress
from warehouse.network.http import AsyncTransport, BodyReader, BodyTooLarge, parse_retry_after


class RequestPacer:
    """Turns for requests to one host; `requests_per_second` of 0 means no limit."""

    def __init__(self, requests_per_second: float) -> None:
        self.gap_s = 1 / requests_per_second if requests_per_second > 0 else 0.0
        self._next_at = 0.0
        self._resume_at = 0.0

    def slow_down(self, gap_s: float) -> None:
        """Leaves at least `gap_s` seconds between requests from now on."""
        self.gap_s = max(self.gap_s, gap_s)

    def pause(self, seconds: float) -> None:
        """Holds every turn back, those already given included."""
        self._resume_at = max(self._resume_at, asyncio.get_running_loop().time() + seconds)

    async def turn(self) -> None:
        """Returns when the next request may be sent."""
        clock = asyncio.get_running_loop().time
        while True:
            at = max(clock(), self._next_at, self._resume_at)
            self._next_at = at + self.gap_s
            await asyncio.sleep(at - clock())
            if clock() >= self._resume_at:
                return  # else the host asked for a pause meanwhile: take a new turn after that


_TRIES = 4
_REDIRECTS = 3
_LONGEST_WAIT_S = 120.0  # a marketplace that asks for more is read again by the next run
_VALIDATORS = {
    "etag": ("If-None-Match", "etag"),
    "modified": ("If-Modified-Since", "last-modified"),
}
_STORM = 25  # refusals (429, 503) in one crawl: the marketplace wants to be left alone


@dataclass(frozen=True)
class FetchResult:
    """A response; `page` is None where the marketplace says that nothing changed (304). validators:
    its `etag` and `modified`, as a conditional request carries them (RFC 9110, section 13)."""

    page: FetchedPage | None
    validators: Mapping[str, str]


class PageFetcher:
    """Requests under one policy, for the tasks of one event loop. One crawl, one fetcher."""

    def __init__(self, policy: CrawlPolicy) -> None:
        self.policy = policy
        self.home = urlsplit(policy.base_url)
        self.hosts = {site.netloc for site in policy.sites}
        self.headers: Mapping[str, str] = {}  # sent to the base URL's host only
        self.requests = 0
        self._refusals = 0
        self._paces = {host: RequestPacer(policy.requests_per_second) for host in self.hosts}
        self._connector = EgressConnector(allow_loopback=policy.allow_loopback)
        limits = httpx2.Limits(max_connections=policy.concurrency + 2)
        self._client = httpx2.AsyncClient(
            timeout=policy.timeout_s,
            follow_redirects=False,
            transport=AsyncTransport(self._connector, limits),
            headers={"User-Agent": policy.user_agent, "Accept-Encoding": "gzip"},
        )

    async def get(self, url: str, validators: Mapping[str, str] | None = None) -> FetchResult:
        """The response at `url`. Raises CrawlError; refusals (429, 503), other 5xx and lost
        connections are tried again, a refusal holding back every request to that host."""
        stamps = validators or {}
        conditions = {
            name: stamps[key] for key, (name, _) in _VALIDATORS.items() if stamps.get(key)
        }
        return await self._request_with_retries(url, "GET", conditions, None)

    async def post_form(self, url: str, form: Mapping[str, str]) -> dict[str, Any]:
        """The JSON object that answers a form. For tokens: neither is recorded anywhere."""
        fetched = await self._request_with_retries(url, "POST", {}, form)
        assert fetched.page is not None
        return parse_json_object(fetched.page)

    def slow_down(self, url: str, delay_s: float) -> None:
        """Leaves at least `delay_s` between requests to the host of `url` (crawl-delay)."""
        self._paces[urlsplit(url).netloc].slow_down(delay_s)

    async def close(self) -> None:
        await self._client.aclose()

    def check_host(self, url: str) -> None:
        """Raises CrawlError where a URL is not on the marketplace's own hosts, or names an address
        that is private; the addresses of names are judged when the connection is opened."""
        url_parts = urlsplit(url)
        if url_parts.scheme not in ("http", "https") or url_parts.netloc not in self.hosts:
            raise make_forbidden(
                url, f"a URL on {url_parts.netloc or url_parts.scheme!r}", self.hosts
            )
        if url_parts.scheme == "http" and self.home.scheme == "https":
            raise make_forbidden(url, "a URL without TLS", {f"https://{url_parts.netloc}"})
        try:
            self._connector.judge_literal(url_parts.hostname or "")
        except PrivateAddress as error:
            raise make_forbidden(url, str(error), {"a public address"}) from error

    async def _request_with_retries(
        self, url: str, method: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> FetchResult:
        for attempt in range(_TRIES):
            try:
                async with asyncio.timeout(4 * self.policy.timeout_s + _LONGEST_WAIT_S):
                    return await self._follow_redirects(url, method, headers, form)
            except _RetryLater as again:
                last = attempt == _TRIES - 1
                if last or again.wait_s > _LONGEST_WAIT_S or self._refusals >= _STORM:
                    raise again.error from again.__cause__
                wait_s = again.wait_s or 0.5 * 2**attempt
                if again.shared:
                    self._paces[urlsplit(again.error.url).netloc].pause(wait_s)
                else:
                    await asyncio.sleep(wait_s)
            except TimeoutError as error:
                raise make_unreachable(url, error) from error
        raise AssertionError("unreachable")

    async def _follow_redirects(
        self, url: str, method: str, headers: Mapping[str, str], form: Mapping[str, str] | None
    ) -> FetchResult:
        for _ in range(_REDIRECTS + 1):
            self.check_host(url)
            host = urlsplit(url).netloc
            own_headers = self.headers if host == self.home.netloc else {}
            await self._paces[host].turn()
            self.requests += 1
            try:
                async with self._client.stream(
                    method, url, headers={**own_headers, **headers}, data=form
                ) as response:
                    if not response.has_redirect_location:
                        return await self._read_response(url, response)
                    url = urljoin(url, response.headers["location"])
            except PrivateAddress as error:
                raise make_forbidden(url, str(error), {"a public address"}) from error
            except (httpx2.HTTPError, httpx2.InvalidURL) as error:
                raise _RetryLater(make_unreachable(url, error)) from error
        raise CrawlError(
            "http_status", url, f"more than {_REDIRECTS} redirects", "a page", "check the base URL"
        )

    async def _read_response(self, url: str, response: httpx2.Response) -> FetchResult:
        status = response.status_code
        if status in (429, 503):
            self._refusals += 1
            wait_s = parse_retry_after(response.headers.get("retry-after", "")) or 0.0
            raise _RetryLater(make_bad_status(url, status), wait_s, shared=True)
        if status >= 500:
            raise _RetryLater(make_bad_status(url, status))
        stamps = {key: response.headers.get(name) for key, (_, name) in _VALIDATORS.items()}
        validators = {key: value for key, value in stamps.items() if value}
        if status == 304:
            return FetchResult(None, validators)
        if status != 200:
            raise make_bad_status(url, status)
        content_type = response.headers.get("content-type", "").partition(";")[0].strip().lower()
        return FetchResult(
            FetchedPage(url, content_type, await self._read_body(url, response)), validators
        )

    async def _read_body(self, url: str, response: httpx2.Response) -> bytes:
        encoding = response.headers.get("content-encoding", "identity").lower()
        if encoding not in ("identity", "gzip"):
            raise CrawlError(
                "wrong_type", url, f"content encoding {encoding!r}", "gzip or none", "report it"
            )
        cap, body = self.policy.max_body_bytes, bytearray()
        reader = BodyReader(encoding, cap)
        try:
            async for part in response.aiter_raw():
                body += reader.read(part)
            reader.finish()
        except BodyTooLarge as error:
            raise make_too_large(url, str(error), cap) from error
        except httpx2.DecodingError as error:
            raise make_broken_gzip(url, str(error)) from error
        return bytes(body)


class _RetryLater(Exception):
    """A failure that may pass: carries the error to raise when it does not. `shared` says that it
    is the host, not this request, that wants a pause."""

    def __init__(self, error: CrawlError, wait_s: float = 0.0, *, shared: bool = False) -> None:
        super().__init__(str(error))
        self.error, self.wait_s, self.shared = error, wait_s, shared
